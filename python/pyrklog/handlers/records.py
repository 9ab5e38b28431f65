"""DeleteRecords."""

from pyrklog.handlers.context import Context
from pyrklog.handlers.service import DeleteRecordsTarget
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.records import (
    NO_LOW_WATERMARK,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


async def delete_records(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Moves log start offsets. A partition's last offset counts, as in Kafka.

    The time-out limits the wait for followers.
    """
    offsets = {
        (topic.name, partition.partition_index): partition.offset
        for topic in request.topics
        for partition in topic.partitions
    }
    targets = [
        DeleteRecordsTarget(topic, partition, offset)
        for (topic, partition), offset in offsets.items()
    ]
    deleted = await context.service.delete_records(
        targets, timeout_ms=request.timeout_ms, host=context.session.host
    )
    by_topic: dict[str, DeleteRecordsTopicResult] = {}
    for one in deleted:
        result = DeleteRecordsPartitionResult(one.partition, one.low_watermark, one.error)
        topic = by_topic.setdefault(one.topic, DeleteRecordsTopicResult(one.topic, []))
        topic.partitions.append(result)
    return DeleteRecordsResponse(topics=list(by_topic.values()))


def delete_records_error(
    request: DeleteRecordsRequest, code: ErrorCode, _message: str | None
) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name,
                [
                    DeleteRecordsPartitionResult(one.partition_index, NO_LOW_WATERMARK, code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
