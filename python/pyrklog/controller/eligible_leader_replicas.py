"""Eligible leader replicas (KIP-966): outside the ISR, with all that clients were told of. Pure.

The high watermark stands still while fewer replicas are in sync than min(``min.insync.replicas``,
replicas). Whoever leaves the ISR then has everything up to it, and goes on having it: the replica
is *eligible*, and may lead where nobody in the ISR can (``cluster.md``, section 6). The leader
is told that there are such replicas, and does not move its high watermark before it hears that they
are given up, whatever ``min.insync.replicas`` says meanwhile.
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
    """Who is eligible once ``after`` follows ``before``, in assignment order.

    ``minimum`` is ``min.insync.replicas``; ``untrusted`` may lack what they had.
    """
    if after.recovery_state == RECOVERING:
        return ()  # its leader was elected without having everything: nobody else has its log
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
    """Whether the high watermark may move, as far as the number of replicas in sync goes."""
    return len(leadership.isr) >= min(minimum, len(replicas))


class EligibleReplicas:
    """Procedures that decide on them wherever a partition's state is written."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def decide(self, wanted: Mapping[Partition, Leadership]) -> _Decided:
        """The same leaderships, with those that are eligible then.

        Options are asked for only where somebody leaves the ISR or has left it.
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
            # A mark goes with its member, and all of them with the next leader.
            members = after.isr + eligible if after.leader < 0 else ()
            marked = tuple(broker for broker in after.unclean if broker in members)
            decided[partition] = after._replace(eligible=eligible, unclean=marked)
        return decided

    def superfluous(self) -> _Released:
        """Partitions in which enough replicas are in sync by now, since an option has changed.

        Where nobody leads there is no high watermark to release, and whoever is eligible may be the
        next leader.
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
        """Who started unclean, or has lost the directory."""
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
