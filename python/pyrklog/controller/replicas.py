"""Transitions of replicas: serving, offline, being deleted."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyrklog.controller.effects import StateChange, Steps
from pyrklog.controller.leader_election import same_leader, without_replicas
from pyrklog.controller.partitions import Procedures
from pyrklog.controller.state import Partition, ReplicaState
from pyrklog.metastore.znodes import Leadership

Replica = tuple[Partition, int]
"""A partition and the broker of one of its replicas."""


class ReplicaChanges(Procedures):
    def to_new(self, replicas: Sequence[Replica]) -> Steps:
        """NonExistent -> New; tells the broker once the partition has a leader."""
        for partition, broker in replicas:
            yield self._enter(partition, broker, ReplicaState.NEW)
            if partition.leadership is not None:
                self._batch.leader_and_isr([broker], partition, is_new=True)

    def to_online(self, replicas: Sequence[Replica]) -> Steps:
        for partition, broker in replicas:
            was_new = partition.replica_state(broker) is ReplicaState.NEW
            yield self._enter(partition, broker, ReplicaState.ONLINE)
            if partition.leadership is not None and not was_new:
                self._batch.leader_and_isr([broker], partition)

    def to_offline(self, replicas: Sequence[Replica]) -> Steps:
        """Brokers or log directories are gone: the replicas stop and leave the ISRs."""
        gone: dict[Partition, set[int]] = {}
        for partition, broker in replicas:
            self._batch.stop_replica(broker, partition, delete=False)
            yield self._enter(partition, broker, ReplicaState.OFFLINE)
            if partition.leadership is not None:
                gone.setdefault(partition, set()).add(broker)
        if not gone:
            return
        # A topic being deleted keeps its last state; its nodes go anyway.
        kept = [p for p in gone if p.topic.name not in self._state.to_delete]
        yield from self._partitions.write_changed(
            kept, lambda partition: self._without(partition, gone[partition])
        )
        self._batch.update_metadata(self._state.brokers, gone)

    def _without(self, partition: Partition, gone: set[int]) -> Leadership | None:
        leadership, epoch = partition.leadership, self._state.epoch
        if leadership is None:
            return None
        whole: Collection[int] = leadership.isr
        if gone.isdisjoint(self._state.brokers):
            live = self._state.live_replicas(partition)
            whole = [broker for broker in live if broker not in leadership.unclean]
        # A live broker has lost the directory or gives the replica up: it leaves for good.
        left = without_replicas(leadership, gone, whole, epoch)
        failed = {b for b in gone if partition.key in self._state.failed_replicas.get(b, ())}
        if left is None and failed & set(leadership.eligible):
            return same_leader(leadership, epoch)
        return left

    def to_deletion_started(self, replicas: Sequence[Replica]) -> Steps:
        for partition, broker in replicas:
            yield self._enter(partition, broker, ReplicaState.DELETION_STARTED)
            self._batch.stop_replica(broker, partition, delete=True)

    def mark(self, replicas: Sequence[Replica], state: ReplicaState) -> Steps:
        """DeletionSuccessful, DeletionIneligible, NonExistent: no broker is told."""
        for partition, broker in replicas:
            yield self._enter(partition, broker, state)

    def _enter(self, partition: Partition, broker: int, state: ReplicaState) -> StateChange:
        before = partition.enter_replica(broker, state)
        fields = {"broker": broker, "from": before.value, "to": state.value}
        return self._state.partition_change("replica_state", partition, fields)
