"""What brokers ask the controller, in the versions of Kafka 3.9 (ZooKeeper mode).

ControlledShutdown, AlterPartition (KIP-497, 704, 841, 903), AllocateProducerIds (KIP-730).
"""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import (
    NO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Str,
    Uuid,
    empty_list,
    since,
    tagged,
    until,
)
from pyrklog.protocol.inter_broker import ELIGIBLE_TAG

WHOLE_TAG = 10_008
"""In AlterPartition: partial replicas that the leader has found whole."""


class ControlledShutdownRequest(Message):
    """The broker wants others to lead its partitions."""

    broker_id: Int32
    broker_epoch: Int64 = -1


class RemainingPartition(Message):
    """A partition that the broker still leads."""

    topic_name: Str
    partition_index: Int32


class ControlledShutdownResponse(Message):
    """The broker asks again until nothing remains."""

    error_code: Int16 = 0
    remaining_partitions: list[RemainingPartition] = empty_list()


CONTROLLED_SHUTDOWN = Api(
    7, ControlledShutdownRequest, ControlledShutdownResponse, versions=(3, 3), flexible_since=3
)


class BrokerState(Message):
    """An ISR member as its leader knows it; epoch -1 is not checked."""

    broker_id: Int32
    broker_epoch: Int64 = -1


class AlterPartitionPartition(Message):
    """The leader's wanted ISR, on top of the partition epoch that it knows."""

    partition_index: Int32
    leader_epoch: Int32
    new_isr: Annotated[list[Int32], until(2)] = empty_list()
    new_isr_with_epochs: Annotated[list[BrokerState], since(3)] = empty_list()
    leader_recovery_state: Annotated[Int8, since(1)] = 0
    partition_epoch: Int32 = -1
    whole: Annotated[tuple[Int32, ...], tagged(WHOLE_TAG, since=3)] = ()


class AlterPartitionTopic(Message):
    topic_name: Annotated[Str, until(1)] = ""
    topic_id: Annotated[Uuid, since(2)] = NO_UUID
    partitions: list[AlterPartitionPartition] = empty_list()


class AlterPartitionRequest(Message):
    broker_id: Int32
    broker_epoch: Int64 = -1
    topics: list[AlterPartitionTopic] = empty_list()


class AlteredPartition(Message):
    """The partition's state now."""

    partition_index: Int32
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: tuple[Int32, ...] = ()
    leader_recovery_state: Annotated[Int8, since(1)] = 0
    partition_epoch: Int32 = 0
    eligible_replicas: Annotated[tuple[Int32, ...], tagged(ELIGIBLE_TAG, since=3)] = ()


class AlteredTopic(Message):
    topic_name: Annotated[Str, until(1)] = ""
    topic_id: Annotated[Uuid, since(2)] = NO_UUID
    partitions: list[AlteredPartition] = empty_list()


class AlterPartitionResponse(Message):
    """``error_code`` refuses the whole request."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[AlteredTopic] = empty_list()


ALTER_PARTITION = Api(
    56, AlterPartitionRequest, AlterPartitionResponse, versions=(0, 3), flexible_since=0
)


class AllocateProducerIdsRequest(Message):
    broker_id: Int32
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Message):
    """The broker gets ``producer_id_len`` ids from ``producer_id_start`` on."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0


ALLOCATE_PRODUCER_IDS = Api(
    67, AllocateProducerIdsRequest, AllocateProducerIdsResponse, versions=(0, 0), flexible_since=0
)
