"""Brokers' requests to the controller, between values and Kafka's messages. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import astuple

from pyrklog.cluster.requests import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownResponse,
    IsrChange,
    IsrChangeResult,
    ProducerIdsResponse,
)
from pyrklog.cluster.wire import error_of
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import ProducerIdBlock
from pyrklog.protocol import to_controller as wire

UNKNOWN_EPOCH = -1
TOPIC_IDS_SINCE = 2
EPOCHS_SINCE = 3


def alter_partition_message(request: AlterPartitionRequest) -> wire.AlterPartitionRequest:
    """For version 3."""
    topics: dict[bytes, wire.AlterPartitionTopic] = {}
    for change in request.changes:
        topic = topics.setdefault(
            change.topic_id, wire.AlterPartitionTopic(topic_id=change.topic_id, partitions=[])
        )
        topic.partitions.append(
            wire.AlterPartitionPartition(
                partition_index=change.partition,
                leader_epoch=change.leader_epoch,
                new_isr_with_epochs=[wire.BrokerState(*member) for member in change.isr],
                leader_recovery_state=change.recovery_state,
                partition_epoch=change.partition_epoch,
                whole=change.whole,
            )
        )
    return wire.AlterPartitionRequest(request.broker, request.broker_epoch, list(topics.values()))


def alter_partition_request(
    message: wire.AlterPartitionRequest, version: int, id_of: Callable[[str], bytes]
) -> AlterPartitionRequest:
    """From any version; ``id_of`` maps topic names of versions without ids."""
    changes = []
    for topic in message.topics:
        topic_id = topic.topic_id if version >= TOPIC_IDS_SINCE else id_of(topic.topic_name)
        for item in topic.partitions:
            if version >= EPOCHS_SINCE:
                isr = [(one.broker_id, one.broker_epoch) for one in item.new_isr_with_epochs]
            else:
                isr = [(broker, UNKNOWN_EPOCH) for broker in item.new_isr]
            changes.append(
                IsrChange(
                    topic_id,
                    item.partition_index,
                    item.leader_epoch,
                    item.partition_epoch,
                    isr,
                    item.leader_recovery_state,
                    item.whole,
                )
            )
    return AlterPartitionRequest(message.broker_id, message.broker_epoch, changes)


def altered_message(
    response: AlterPartitionResponse, names: Iterable[tuple[bytes, str]] = ()
) -> wire.AlterPartitionResponse:
    """The answer, with ``names`` for versions without topic ids."""
    known = dict(names)
    topics: dict[bytes, wire.AlteredTopic] = {}
    for result in response.results:
        topic = topics.setdefault(
            result.topic_id,
            wire.AlteredTopic(
                topic_name=known.get(result.topic_id, ""), topic_id=result.topic_id, partitions=[]
            ),
        )
        topic.partitions.append(wire.AlteredPartition(*result[1:]))
    return wire.AlterPartitionResponse(error_code=response.error, topics=list(topics.values()))


def altered_response(message: wire.AlterPartitionResponse) -> AlterPartitionResponse:
    """From version 3."""
    results = [
        IsrChangeResult(topic.topic_id, *astuple(item))._replace(error=error_of(item.error_code))
        for topic in message.topics
        for item in topic.partitions
    ]
    return AlterPartitionResponse(error_of(message.error_code), results)


def left_message(response: ControlledShutdownResponse) -> wire.ControlledShutdownResponse:
    remaining = [wire.RemainingPartition(*key) for key in response.remaining]
    return wire.ControlledShutdownResponse(response.error, remaining)


def left_response(message: wire.ControlledShutdownResponse) -> ControlledShutdownResponse:
    remaining = [(item.topic_name, item.partition_index) for item in message.remaining_partitions]
    return ControlledShutdownResponse(error_of(message.error_code), remaining)


def allocated_message(response: ProducerIdsResponse) -> wire.AllocateProducerIdsResponse:
    block = response.block
    if block is None:
        return wire.AllocateProducerIdsResponse(error_code=response.error)
    return wire.AllocateProducerIdsResponse(
        error_code=response.error,
        producer_id_start=block.first,
        producer_id_len=block.last - block.first + 1,
    )


def allocated_response(
    message: wire.AllocateProducerIdsResponse, broker: int
) -> ProducerIdsResponse:
    """``broker`` is the one that asked."""
    error = error_of(message.error_code)
    if error is not ErrorCode.NONE or message.producer_id_len <= 0:
        return ProducerIdsResponse(error or ErrorCode.UNKNOWN_SERVER_ERROR, None)
    first = message.producer_id_start
    block = ProducerIdBlock(broker, first, first + message.producer_id_len - 1)
    return ProducerIdsResponse(error, block)
