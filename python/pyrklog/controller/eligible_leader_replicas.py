"""Eligible leader replicas (KIP-966): outside the ISR, but with all acknowledged records. Pure.

The high watermark does not move while the ISR is smaller than min(``min.insync.replicas``,
replicas). A replica that leaves the ISR then keeps everything up to it: it is *eligible* and may
lead where nobody in the ISR can (``cluster.md``, section 6). The leader learns that eligible
replicas exist. It does not move its high watermark before it learns that they are given up,
whatever ``min.insync.replicas`` says meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any

from pyrklog.controller.effects import Effect, ReadMinimums
from pyrklog.controller.state import ControllerState, Partition
from pyrklog.metastore.znodes import RECOVERING, Leadership

_Decided = Generator[Effect, Any, dict[Partition, Leadership]]
_Released = Generator[Effect, Any, list[Partition]]


def eligible_after(
    before: Leadership,
    after: Leadership,
    replicas: Sequence[int],
    minimum: int,
    untrusted: Collection[int] = (),
) -> tuple[int, ...]:
    """The eligible replicas once ``after`` follows ``before``, in assignment order.

    ``minimum`` is ``min.insync.replicas``; ``untrusted`` replicas may lack what they had.
    """
    if after.recovery_state == RECOVERING:
        return ()  # its leader may lack records: nobody else has its log
    if is_enough(after, replicas, minimum):
        return ()
    return tuple(
        broker
        for broker in replicas
        if (broker in before.isr or broker in before.eligible)
        and broker not in after.isr
        and broker not in untrusted
    )


def is_enough(leadership: Leadership, replicas: Sequence[int], minimum: int) -> bool:
    return len(leadership.isr) >= min(minimum, len(replicas))


class EligibleReplicas:
    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def decide(self, wanted: Mapping[Partition, Leadership]) -> _Decided:
        """The same leaderships with their eligible replicas.

        Reads options only where a replica leaves the ISR or has left it.
        """
        concerned = {
            partition: partition.leadership
            for partition, after in wanted.items()
            if partition.leadership is not None and _may_have_any(partition.leadership, after)
        }
        minimums = yield from _minimums(concerned)
        decided = {}
        for partition, after in wanted.items():
            before = concerned.get(partition)
            eligible: tuple[int, ...] = ()
            if before is not None:
                eligible = eligible_after(
                    before,
                    after,
                    partition.replicas,
                    minimums[partition.topic.name],
                    (self._untrusted(partition) | set(before.unclean)) - set(after.unclean),
                )
            # A mark goes with its member; all marks go with the next leader.
            members = after.isr + eligible if after.leader < 0 else ()
            marked = tuple(broker for broker in after.unclean if broker in members)
            decided[partition] = after._replace(eligible=eligible, unclean=marked)
        return decided

    def superfluous(self) -> _Released:
        """Partitions with enough replicas in sync, since an option has changed.

        Without a leader there is no high watermark to release, and an eligible replica may lead
        next.
        """
        holding = {
            partition: partition.leadership
            for partition in self._state.partitions()
            if partition.leadership is not None
            and partition.leadership.eligible
            and partition.leadership.leader in self._state.brokers
            and partition.topic.name not in self._state.to_delete
        }
        minimums = yield from _minimums(holding)
        return [
            partition
            for partition, leadership in holding.items()
            if is_enough(leadership, partition.replicas, minimums[partition.topic.name])
        ]

    def _untrusted(self, partition: Partition) -> frozenset[int]:
        state, key = self._state, partition.key
        unclean = {broker for broker, live in state.brokers.items() if live.is_unclean}
        failed = {broker for broker, keys in state.failed_replicas.items() if key in keys}
        return frozenset(unclean | failed)


def _may_have_any(before: Leadership, after: Leadership) -> bool:
    return bool(before.eligible) or not set(before.isr) <= set(after.isr)


def _minimums(concerned: Mapping[Partition, Leadership]) -> Generator[Effect, Any, dict[str, int]]:
    topics = {partition.topic.name for partition in concerned}
    if not topics:
        return {}
    minimums: dict[str, int] = yield ReadMinimums(sorted(topics))
    return minimums
