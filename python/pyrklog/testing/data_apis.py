"""Codecs of the APIs that Rust serves, for answers with errors (KIP-98, 107, 320, 392, 467, 516).

Tagged fields that no error answer has are not named: decoding passes over them.
"""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import (
    NO_UUID,
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Str,
    Uuid,
    empty_list,
    nullable,
    since,
    until,
)
from pyrklog.protocol.list_offsets import NO_EPOCH, ListOffsetsRequest, ListOffsetsResponse

NO_OFFSET = -1
NO_SESSION = 0
FULL_FETCH_EPOCHS = frozenset((-1, 0))
"""Session epochs of a Fetch that names all its partitions (KIP-227)."""
OPERATIONS_NOT_ASKED = -(2**31)


# --- Produce -------------------------------------------------------------------------------------


class ProducePartition(Message):
    index: Int32
    records: Bytes | None = None


class ProduceTopic(Message):
    name: Str
    partitions: list[ProducePartition]


class ProduceRequest(Message):
    transactional_id: Annotated[Str | None, since(3)] = None
    acks: Int16 = -1
    timeout_ms: Int32 = 0
    topics: list[ProduceTopic] = empty_list()


class BatchIndexError(Message):
    batch_index: Int32
    message: Str | None = None


class ProducePartitionResult(Message):
    index: Int32
    error_code: Int16 = 0
    base_offset: Int64 = NO_OFFSET
    log_append_time_ms: Annotated[Int64, since(2)] = -1
    log_start_offset: Annotated[Int64, since(5)] = NO_OFFSET
    record_errors: Annotated[list[BatchIndexError], since(8)] = empty_list()
    error_message: Annotated[Str | None, since(8)] = None


class ProduceTopicResult(Message):
    name: Str
    partitions: list[ProducePartitionResult]


class ProduceResponse(Message):
    topics: list[ProduceTopicResult] = empty_list()
    throttle_time_ms: Annotated[Int32, since(1)] = 0


PRODUCE = Api(0, ProduceRequest, ProduceResponse, versions=(0, 12), flexible_since=9)
PRODUCE_AT = Api(20_007, ProduceRequest, ProduceResponse, versions=(11, 11), flexible_since=9)
"""Our own: the body of Produce, with a tagged field of each partition that no answer needs."""


# --- Fetch ---------------------------------------------------------------------------------------


class FetchPartition(Message):
    partition: Int32
    current_leader_epoch: Annotated[Int32, since(9)] = NO_EPOCH
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, since(12)] = NO_EPOCH
    log_start_offset: Annotated[Int64, since(5)] = NO_OFFSET
    partition_max_bytes: Int32 = 0


class FetchTopic(Message):
    """A topic by its name or, since version 13, by its id."""

    topic: Annotated[Str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partitions: list[FetchPartition] = empty_list()


class ForgottenTopic(Message):
    topic: Annotated[Str, since(7, until=12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partitions: list[Int32] = empty_list()


class FetchRequest(Message):
    replica_id: Annotated[Int32, until(14)] = -1
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Annotated[Int32, since(3)] = 0
    isolation_level: Annotated[Int8, since(4)] = 0
    session_id: Annotated[Int32, since(7)] = NO_SESSION
    session_epoch: Annotated[Int32, since(7)] = NO_EPOCH
    topics: list[FetchTopic] = empty_list()
    forgotten_topics: Annotated[list[ForgottenTopic], since(7)] = empty_list()
    rack_id: Annotated[Str, since(11)] = ""


class AbortedTransaction(Message):
    producer_id: Int64
    first_offset: Int64


class FetchPartitionResult(Message):
    partition_index: Int32
    error_code: Int16 = 0
    high_watermark: Int64 = NO_OFFSET
    last_stable_offset: Annotated[Int64, since(4)] = NO_OFFSET
    log_start_offset: Annotated[Int64, since(5)] = NO_OFFSET
    aborted_transactions: Annotated[list[AbortedTransaction] | None, since(4)] = None
    preferred_read_replica: Annotated[Int32, since(11)] = -1
    records: Bytes | None = b""


class FetchTopicResult(Message):
    topic: Annotated[Str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partitions: list[FetchPartitionResult] = empty_list()


class FetchResponse(Message):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Annotated[Int16, since(7)] = 0
    session_id: Annotated[Int32, since(7)] = NO_SESSION
    topics: list[FetchTopicResult] = empty_list()


FETCH = Api(1, FetchRequest, FetchResponse, versions=(0, 17), flexible_since=12)


# --- ListOffsets, OffsetForLeaderEpoch -----------------------------------------------------------


LIST_OFFSETS = Api(2, ListOffsetsRequest, ListOffsetsResponse, versions=(0, 9), flexible_since=6)


class EpochPartition(Message):
    partition: Int32
    current_leader_epoch: Annotated[Int32, since(2)] = NO_EPOCH
    leader_epoch: Int32 = NO_EPOCH


class EpochTopic(Message):
    topic: Str
    partitions: list[EpochPartition]


class OffsetForLeaderEpochRequest(Message):
    replica_id: Annotated[Int32, since(3)] = -1
    topics: list[EpochTopic] = empty_list()


class EpochPartitionResult(Message):
    error_code: Int16
    partition: Int32
    leader_epoch: Annotated[Int32, since(1)] = NO_EPOCH
    end_offset: Int64 = NO_OFFSET


class EpochTopicResult(Message):
    topic: Str
    partitions: list[EpochPartitionResult]


class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: list[EpochTopicResult] = empty_list()


OFFSET_FOR_LEADER_EPOCH = Api(
    23,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    versions=(0, 4),
    flexible_since=4,
)


# --- Metadata ------------------------------------------------------------------------------------


class MetadataRequestTopic(Message):
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    name: Annotated[Str | None, nullable(10)] = ""


class MetadataRequest(Message):
    topics: Annotated[list[MetadataRequestTopic] | None, nullable(1)] = None
    allow_auto_topic_creation: Annotated[Bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, since(8, until=10)] = False
    include_topic_authorized_operations: Annotated[Bool, since(8)] = False


class MetadataBroker(Message):
    node_id: Int32
    host: Str
    port: Int32
    rack: Annotated[Str | None, since(1)] = None


class MetadataPartition(Message):
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Annotated[Int32, since(7)] = NO_EPOCH
    replica_nodes: list[Int32] = empty_list()
    isr_nodes: list[Int32] = empty_list()
    offline_replicas: Annotated[list[Int32], since(5)] = empty_list()


class MetadataTopic(Message):
    error_code: Int16
    name: Annotated[Str | None, nullable(12)]
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    is_internal: Annotated[Bool, since(1)] = False
    partitions: list[MetadataPartition] = empty_list()
    topic_authorized_operations: Annotated[Int32, since(8)] = OPERATIONS_NOT_ASKED


class MetadataResponse(Message):
    throttle_time_ms: Annotated[Int32, since(3)] = 0
    brokers: list[MetadataBroker] = empty_list()
    cluster_id: Annotated[Str | None, since(2)] = None
    controller_id: Annotated[Int32, since(1)] = -1
    topics: list[MetadataTopic] = empty_list()
    cluster_authorized_operations: Annotated[Int32, since(8, until=10)] = OPERATIONS_NOT_ASKED


METADATA = Api(3, MetadataRequest, MetadataResponse, versions=(0, 12), flexible_since=9)


# --- ReplicaStart, our own -----------------------------------------------------------------------


class ReplicaStartRequest(Message):
    """A replica asks its leader where to start."""

    replica_id: Int32
    topic: Str
    topic_id: Uuid
    partition: Int32
    current_leader_epoch: Int32


class StartEpoch(Message):
    epoch: Int32
    start_offset: Int64


class ReplicaStartResponse(Message):
    error_code: Int16
    start_offset: Int64 = NO_OFFSET
    log_start_offset: Int64 = NO_OFFSET
    epochs: list[StartEpoch] = empty_list()
    producers: Bytes | None = None


REPLICA_START = Api(
    20_010, ReplicaStartRequest, ReplicaStartResponse, versions=(0, 0), flexible_since=0
)


# --- ReplicaSegments, our own --------------------------------------------------------------------


class ReplicaSegmentsRequest(Message):
    """A replica asks which records below its log's start another one has."""

    replica_id: Int32
    topic: Str
    topic_id: Uuid
    partition: Int32
    current_leader_epoch: Int32
    end_offset: Int64


class SegmentAborted(Message):
    producer_id: Int64
    first_offset: Int64
    last_offset: Int64
    last_stable_offset: Int64


class ReplicaSegmentsResponse(Message):
    error_code: Int16
    log_start_offset: Int64 = NO_OFFSET
    begin_offset: Int64 = NO_OFFSET
    size_bytes: Int64 = 0
    newest_ms: Int64 = NO_OFFSET
    aborted: list[SegmentAborted] = empty_list()


REPLICA_SEGMENTS = Api(
    20_011, ReplicaSegmentsRequest, ReplicaSegmentsResponse, versions=(0, 0), flexible_since=0
)
