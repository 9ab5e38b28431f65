"""A broker that ends in good order: others lead what it leads, then its replicas stop. Pure."""

from __future__ import annotations

from pyrklog.controller.batch import RequestBatch
from pyrklog.controller.effects import StateChange, Steps
from pyrklog.controller.election import shutdown_election
from pyrklog.controller.partitions import PartitionChanges
from pyrklog.controller.replicas import ReplicaChanges
from pyrklog.controller.requests import TopicPartition
from pyrklog.controller.state import ControllerState, Partition


class Leaving:
    """Procedures over brokers that are about to end."""

    def __init__(
        self,
        state: ControllerState,
        batch: RequestBatch,
        partitions: PartitionChanges,
        replicas: ReplicaChanges,
    ) -> None:
        self._state = state
        self._batch = batch
        self._partitions = partitions
        self._replicas = replicas

    def shut_down(self, broker: int, remaining: list[TopicPartition]) -> Steps:
        """``remaining`` gets the partitions that it still leads although others could."""
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
        followed = [partition for partition in shared if partition not in led]
        yield from self._partitions.to_online(led, shutdown_election)
        for partition in followed:
            self._batch.stop_replica(broker, partition, delete=False)
        yield from self._batch.flush()
        yield from self._replicas.to_offline([(partition, broker) for partition in followed])
        yield from self._batch.flush()
        remaining += [partition.key for partition in led if self._leads(broker, partition)]

    def _leads(self, broker: int, partition: Partition) -> bool:
        return partition.leadership is not None and partition.leadership.leader == broker
