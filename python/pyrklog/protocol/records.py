"""DeleteRecords (KIP-107)."""

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import Int16, Int32, Int64, Message, Str, empty_list

HIGH_WATERMARK = -1
"""Offset that stands for "everything below the high watermark"."""
NO_LOW_WATERMARK = -1


class DeleteRecordsPartition(Message):
    """Records below ``offset`` go; -1 is the high watermark."""

    partition_index: Int32
    offset: Int64


class DeleteRecordsTopic(Message):
    """Partitions of one topic."""

    name: Str
    partitions: list[DeleteRecordsPartition]


class DeleteRecordsRequest(Message):
    """``timeout_ms`` is how long to wait for the replicas."""

    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32 = 60_000


class DeleteRecordsPartitionResult(Message):
    """``low_watermark`` is the least log start offset of the live replicas, -1 on error."""

    partition_index: Int32
    low_watermark: Int64 = NO_LOW_WATERMARK
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Message):
    """Results of one topic."""

    name: Str
    partitions: list[DeleteRecordsPartitionResult]


class DeleteRecordsResponse(Message):
    """Results by topic and partition."""

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = empty_list()


DELETE_RECORDS = Api(
    21,
    "DeleteRecords",
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    versions=(0, 2),
    flexible_since=2,
)
