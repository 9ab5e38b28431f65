"""AlterPartition: the leader proposes an ISR, the controller checks and writes it. Pure.

The order of the checks is Kafka's (3.9). A write raises only the partition epoch; UpdateMetadata
tells all brokers.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyrklog.cluster.image import LEADER_NONE
from pyrklog.cluster.requests import (
    AlterPartitionRequest,
    IsrChange,
    IsrChangeResult,
    TopicPartition,
)
from pyrklog.controller.broker_request_batch import BrokerRequestBatch
from pyrklog.controller.effects import ReadStates, StateChange, Steps, WriteStates
from pyrklog.controller.partitions import PartitionChanges, state_write
from pyrklog.controller.state import ControllerState, Partition, Topic
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import RECOVERING, Leadership

UNKNOWN_EPOCH = -1

_Wanted = dict[TopicPartition, tuple[IsrChange, Partition, Leadership]]


class IsrChanges:
    def __init__(
        self, state: ControllerState, batch: BrokerRequestBatch, partitions: PartitionChanges
    ) -> None:
        self._state = state
        self._batch = batch
        self._eligible = partitions.eligible
        self._partial = partitions.partial

    def alter(self, request: AlterPartitionRequest, results: list[IsrChangeResult]) -> Steps:
        """Checks and writes; ``results`` gets one for each change, in any order."""
        wanted: _Wanted = {}
        topics = {topic.id: topic for topic in self._state.topics.values()}
        for change in request.changes:
            topic = topics.get(change.topic_id)
            partition = topic.partitions.get(change.partition) if topic is not None else None
            refusal = self._refusal(change, topic, partition)
            if refusal is not None:
                results.append(IsrChangeResult(change.topic_id, change.partition, refusal))
                continue
            assert partition is not None
            before = partition.leadership
            assert before is not None
            after = before._replace(
                isr=tuple(broker for broker, _ in change.isr),
                controller_epoch=self._state.epoch,
                recovery_state=change.recovery_state,
            )
            if set(after.isr) == set(before.isr) and after.recovery_state == before.recovery_state:
                results.append(_result(change, partition))
            else:
                wanted[partition.key] = (change, partition, after)
        if wanted:
            yield from self._write(wanted, results)
            yield from self._batch.flush()

    def _refusal(
        self, change: IsrChange, topic: Topic | None, partition: Partition | None
    ) -> ErrorCode | None:
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if partition is None or topic.name in self._state.to_delete:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        current = partition.leadership
        if current is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if (
            change.leader_epoch > current.leader_epoch
            or change.partition_epoch > partition.partition_epoch
        ):
            # The leader knows more: another controller has decided since.
            return ErrorCode.NOT_CONTROLLER
        if change.leader_epoch < current.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if {broker for broker, _ in change.isr} == set(current.isr) and (
            change.recovery_state == current.recovery_state
        ):
            return None
        if change.partition_epoch < partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        if change.recovery_state == RECOVERING and (
            len(change.isr) > 1 or current.recovery_state != RECOVERING
        ):
            return ErrorCode.INVALID_REQUEST
        if not _is_an_isr(current.leader, [broker for broker, _ in change.isr]):
            return ErrorCode.INVALID_REQUEST
        if not all(self._may_join(broker, epoch, partition) for broker, epoch in change.isr):
            return ErrorCode.INELIGIBLE_REPLICA
        lacking = set(partition.partial).difference(change.whole)
        if not lacking.isdisjoint(broker for broker, _ in change.isr):
            # Its leader is of another version, or has not looked.
            return ErrorCode.INELIGIBLE_REPLICA
        return None

    def _may_join(self, broker: int, epoch: int, partition: Partition) -> bool:
        state = self._state
        if broker not in partition.replicas or not state.is_live(broker, partition.key):
            return False
        if broker in state.shutting_down:
            return False
        return epoch in (UNKNOWN_EPOCH, state.brokers[broker].epoch)

    def _write(self, wanted: _Wanted, results: list[IsrChangeResult]) -> Steps:
        decided = yield from self._eligible.decide(
            {partition: after for _, partition, after in wanted.values()}
        )
        whole = {partition: change.whole for change, partition, _ in wanted.values()}
        writes = [state_write(p, after, whole[p]) for p, after in decided.items()]
        written: dict[TopicPartition, int | None] = yield WriteStates(writes)
        stale = [key for key, version in written.items() if version is None]
        for key, (change, partition, _) in wanted.items():
            version = written[key]
            if version is None:
                error = ErrorCode.INVALID_UPDATE_VERSION
                results.append(IsrChangeResult(change.topic_id, change.partition, error))
                continue
            before = partition.leadership
            partition.lead(decided[partition], version)
            self._batch.update_metadata(self._state.brokers, [partition])
            results.append(_result(change, partition))
            yield self._changed(partition, before.isr if before else ())
        yield from self._partial.settle([partition for _, partition, _ in wanted.values()])
        if stale:
            found: dict[TopicPartition, tuple[Leadership, int]] = yield ReadStates(stale)
            for key, (leadership, version) in found.items():
                wanted[key][1].lead(leadership, version)

    def _changed(self, partition: Partition, before: Sequence[int]) -> StateChange:
        assert partition.leadership is not None
        fields = {
            "from": list(before),
            "to": list(partition.leadership.isr),
            "eligible": list(partition.leadership.eligible),
            "leader_epoch": partition.leadership.leader_epoch,
            "partition_epoch": partition.partition_epoch,
        }
        return self._state.partition_change("isr_changed", partition, fields)


def _is_an_isr(leader: int, isr: Sequence[int]) -> bool:
    return len(set(isr)) == len(isr) and (leader == LEADER_NONE or leader in isr)


def _result(change: IsrChange, partition: Partition) -> IsrChangeResult:
    current = partition.leadership
    assert current is not None
    return IsrChangeResult(
        change.topic_id,
        change.partition,
        ErrorCode.NONE,
        current.leader,
        current.leader_epoch,
        current.isr,
        current.recovery_state,
        partition.partition_epoch,
        current.eligible,
    )
