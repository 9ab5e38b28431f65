"""What the controller tells brokers: one version each, of Kafka 3.9 (ZooKeeper mode).

Tags from 10,000 on are ours, far from Kafka's, which count from 0. Other brokers skip unknown tags.
"""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import (
    NO_UUID,
    Bool,
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

ELIGIBLE_TAG = 10_000
TOPIC_ID_TAG = 10_001
"""StopReplica has names only; the next topic may have the same name."""
NUMBER_TAG = 10_003
"""Number of an UpdateMetadata in its controller epoch."""
FULL_TAG = 10_004
"""Set if an UpdateMetadata names every topic."""
LOG_END_TAG = 10_005
"""How far a replica without a leader reaches."""
UNCLEAN_TAG = 10_006
"""Replicas that may lack records, in UpdateMetadata."""
PARTIAL_TAG = 10_007
"""Added replicas that lack older records."""

UNKNOWN_REQUEST = 0
INCREMENTAL_REQUEST = 1
FULL_REQUEST = 2
"""``type`` of a request: what a partition's absence means (KIP-866)."""


class ControlRequest(Message):
    """What the controller's requests begin with."""

    controller_id: Int32
    is_kraft_controller: Bool = False
    controller_epoch: Int32 = 0
    broker_epoch: Int64 = -1


class PartitionInfo(Message):
    """One partition in LeaderAndIsr (version 7) and UpdateMetadata (version 8)."""

    partition: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: tuple[Int32, ...]
    partition_epoch: Int32
    replicas: tuple[Int32, ...]
    adding: Annotated[tuple[Int32, ...], until(7)] = ()
    removing: Annotated[tuple[Int32, ...], until(7)] = ()
    offline: Annotated[tuple[Int32, ...], since(8)] = ()
    is_new: Annotated[Bool, until(7)] = False
    recovery_state: Annotated[Int8, until(7)] = 0
    eligible: Annotated[tuple[Int32, ...], tagged(ELIGIBLE_TAG, since=7)] = ()
    """Replicas outside the ISR that may lead (KIP-966)."""
    unclean: Annotated[tuple[Int32, ...], tagged(UNCLEAN_TAG, since=8)] = ()
    """Members that may lack records, where nobody leads."""
    partial: Annotated[tuple[Int32, ...], tagged(PARTIAL_TAG, since=7)] = ()
    """Added replicas that lack older records (``expansion.md``)."""


class TopicPartitions(Message):
    topic: Str
    topic_id: Uuid
    partitions: list[PartitionInfo]


class LeaderAndIsrLiveLeader(Message):
    """Where a leader listens for brokers."""

    broker_id: Int32
    host_name: Str
    port: Int32


class LeaderAndIsrRequest(ControlRequest):
    """Lead or follow these partitions."""

    type: Int8 = UNKNOWN_REQUEST
    topic_states: list[TopicPartitions] = empty_list()
    live_leaders: list[LeaderAndIsrLiveLeader] = empty_list()


class LeaderAndIsrPartitionError(Message):
    partition_index: Int32
    error_code: Int16
    log_end: Annotated[list[Int64], tagged(LOG_END_TAG, since=7)] = empty_list()
    """The request's leader epoch, the last record's, log end offset."""


class LeaderAndIsrTopicError(Message):
    topic_id: Uuid
    partition_errors: list[LeaderAndIsrPartitionError]


class LeaderAndIsrResponse(Message):
    """``error_code`` refuses the whole request."""

    error_code: Int16 = 0
    topics: list[LeaderAndIsrTopicError] = empty_list()


LEADER_AND_ISR = Api(
    4, LeaderAndIsrRequest, LeaderAndIsrResponse, versions=(7, 7), flexible_since=4
)


class StopReplicaPartitionState(Message):
    partition_index: Int32
    leader_epoch: Int32 = -1
    delete_partition: Bool = False


class StopReplicaTopicState(Message):
    topic_name: Str
    partition_states: list[StopReplicaPartitionState]
    topic_id: Annotated[Uuid, tagged(TOPIC_ID_TAG, since=4)] = NO_UUID


class StopReplicaRequest(ControlRequest):
    """Stop, and perhaps delete, these replicas."""

    topic_states: list[StopReplicaTopicState] = empty_list()


class StopReplicaPartitionError(Message):
    topic_name: Str
    partition_index: Int32
    error_code: Int16


class StopReplicaResponse(Message):
    """``error_code`` refuses the whole request."""

    error_code: Int16 = 0
    partition_errors: list[StopReplicaPartitionError] = empty_list()


STOP_REPLICA = Api(5, StopReplicaRequest, StopReplicaResponse, versions=(4, 4), flexible_since=2)


class UpdateMetadataEndpoint(Message):
    """``security_protocol`` is Kafka's number of it."""

    port: Int32
    host: Str
    listener: Str
    security_protocol: Int16


class UpdateMetadataBroker(Message):
    """A live broker."""

    id: Int32
    endpoints: list[UpdateMetadataEndpoint]
    rack: Str | None = None


class UpdateMetadataRequest(ControlRequest):
    """All live brokers and the changed partitions."""

    topic_states: list[TopicPartitions] = empty_list()
    live_brokers: list[UpdateMetadataBroker] = empty_list()
    type: Annotated[Int8, tagged(0, since=8)] = UNKNOWN_REQUEST
    number: Annotated[Int32, tagged(NUMBER_TAG, since=8)] = 0
    is_full: Annotated[Bool, tagged(FULL_TAG, since=8)] = False


class UpdateMetadataResponse(Message):
    error_code: Int16 = 0


UPDATE_METADATA = Api(
    6, UpdateMetadataRequest, UpdateMetadataResponse, versions=(8, 8), flexible_since=6
)
