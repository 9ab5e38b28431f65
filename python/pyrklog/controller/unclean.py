"""Brokers that started without all that they had: they leave the ISRs. Pure.

Of a broker whose machine lost power, or whose disk was replaced, nobody knows whether it has what
was acknowledged. It must not be elected as one that has: it leaves the ISRs, and is eligible no
more, before anything else is decided, and comes back into them as every follower does, by having
what the leader has (the unclean shutdown of KIP-966; ``docs/cluster.md``, section 6).
"""

from __future__ import annotations

from collections.abc import Collection

from pyrklog.controller.effects import ForgetUnclean, StateChange, Steps
from pyrklog.controller.election import without_unclean
from pyrklog.controller.partitions import PartitionChanges
from pyrklog.controller.state import ControllerState, PartitionState


class UncleanStarts:
    """Procedures over brokers that came back unclean."""

    def __init__(self, state: ControllerState, partitions: PartitionChanges) -> None:
        self._state = state
        self._partitions = partitions

    def expel(self, brokers: Collection[int]) -> Steps:
        """Those of ``brokers`` that started unclean leave ISRs where others remain or are eligible.

        Leaves requests in the batch, and partitions without a leader offline.
        """
        state = self._state
        unclean = sorted(broker for broker in brokers if state.brokers[broker].is_unclean)
        if not unclean:
            return
        concerned = dict.fromkeys(
            partition
            for partition, broker in state.partitions_on(unclean)
            if partition.leadership is not None
            and broker in partition.leadership.isr + partition.leadership.eligible
            and partition.topic.name not in state.to_delete
        )
        yield StateChange(
            "unclean_start",
            {
                "brokers": unclean,
                "partitions": len(concerned),
                "controller_epoch": state.epoch,
            },
        )
        yield from self._partitions.write_changed(
            list(concerned),
            lambda partition: (
                partition.leadership and without_unclean(partition.leadership, unclean, state.epoch)
            ),
        )
        yield from self._partitions.to_offline(
            [
                partition
                for partition in concerned
                if partition.state is PartitionState.ONLINE
                and partition.leadership is not None
                and partition.leadership.leader not in state.brokers
            ]
        )
        yield ForgetUnclean(unclean)
        for broker in unclean:
            state.brokers[broker] = state.brokers[broker]._replace(is_unclean=False)
