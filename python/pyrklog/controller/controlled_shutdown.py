"""Controlled shutdown: others take over leadership, the broker leaves all ISRs. Pure."""

from __future__ import annotations

from pyrklog.base.pieces import pieces
from pyrklog.cluster.requests import TopicPartition
from pyrklog.controller.broker_request_batch import RequestBatch
from pyrklog.controller.effects import StateChange, Steps
from pyrklog.controller.leader_election import shutdown_election, without_replica
from pyrklog.controller.partitions import PartitionChanges
from pyrklog.controller.state import ControllerState, Partition


class ControlledShutdown:
    def __init__(
        self,
        state: ControllerState,
        batch: RequestBatch,
        partitions: PartitionChanges,
    ) -> None:
        self._state = state
        self._batch = batch
        self._partitions = partitions

    def shut_down(self, broker: int, remaining: list[TopicPartition]) -> Steps:
        """``remaining`` gets the partitions that it still leads although other replicas exist."""
        state = self._state
        state.shutting_down.add(broker)
        yield StateChange("broker_leaves", {"broker": broker, "controller_epoch": state.epoch})
        shared = [
            partition
            for partition, _ in state.partitions_on([broker])
            if len(partition.replicas) > 1
            and partition.leadership is not None
            and partition.topic.name not in state.to_delete
        ]
        led = [partition for partition in shared if self._leads(broker, partition)]
        followed = [partition for partition in shared if not self._leads(broker, partition)]
        # Each piece's requests are sent at once: the broker sees progress and waits.
        for some in pieces(led):
            yield from self._partitions.to_online(some, shutdown_election)
            yield from self._batch.flush()
        # It follows until it ends, so that no request reaches it while it shuts down.
        for some in pieces(followed):
            yield from self._partitions.write_changed(
                some,
                lambda partition: (
                    partition.leadership
                    and without_replica(partition.leadership, broker, state.epoch)
                ),
            )
            yield from self._batch.flush()
        remaining += [partition.key for partition in led if self._leads(broker, partition)]

    def _leads(self, broker: int, partition: Partition) -> bool:
        return partition.leadership is not None and partition.leadership.leader == broker
