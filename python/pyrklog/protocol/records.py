"""DeleteRecords (KIP-107)."""

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import Int16, Int32, Int64, Message, Str, empty_list

HIGH_WATERMARK = -1
"""Offset that means "everything below the high watermark"."""
NO_LOW_WATERMARK = -1


class DeleteRecordsPartition(Message):
    """Deletes records below ``offset``; -1 is the high watermark."""

    partition_index: Int32
    offset: Int64


class DeleteRecordsTopic(Message):
    name: Str
    partitions: list[DeleteRecordsPartition]


class DeleteRecordsRequest(Message):
    """``timeout_ms``: how long to wait for the replicas."""

    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32 = 60_000


class DeleteRecordsPartitionResult(Message):
    """``low_watermark``: the least log start offset of the live replicas, -1 on error."""

    partition_index: Int32
    low_watermark: Int64 = NO_LOW_WATERMARK
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Message):
    name: Str
    partitions: list[DeleteRecordsPartitionResult]


class DeleteRecordsResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = empty_list()


DELETE_RECORDS = Api(
    21, DeleteRecordsRequest, DeleteRecordsResponse, versions=(0, 2), flexible_since=2
)
