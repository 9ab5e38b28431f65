"""DescribeTopicPartitions (KIP-966)."""

from pyrklog.cluster.topic_pages import PagedTopic
from pyrklog.handlers.context import Context
from pyrklog.plane.values import PartitionImage
from pyrklog.protocol.errors import ApiError, ErrorCode
from pyrklog.protocol.topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

READ, WRITE, CREATE, DELETE, ALTER = 3, 4, 5, 6, 7
DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 8, 10, 11
_OPERATIONS = (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
TOPIC_OPERATIONS = sum(1 << operation for operation in _OPERATIONS)
"""All operations on a topic, as bits (KIP-430); without ACLs, everyone may do all."""


async def describe_topic_partitions(
    context: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """A page of the topics, in order of their names."""
    names = [topic.name for topic in request.topics] or None
    cursor = request.cursor
    if cursor is not None:
        _check(cursor, names)
    if not context.service.knows_brokers:
        await context.service.wait_for_brokers()
    page = context.service.topic_page(
        names,
        (cursor.topic_name, cursor.partition_index) if cursor else ("", 0),
        request.response_partition_limit,
        context.session.listener,
    )
    return DescribeTopicPartitionsResponse(
        topics=[_topic(topic) for topic in page.topics],
        next_cursor=None if page.after is None else Cursor(*page.after),
    )


def _check(cursor: Cursor, names: list[str] | None) -> None:
    if names is not None and cursor.topic_name not in names:
        message = f"The cursor's topic {cursor.topic_name} is none of those asked for."
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    if cursor.partition_index < 0:
        message = f"The cursor's partition {cursor.partition_index} is negative."
        raise ApiError(ErrorCode.INVALID_REQUEST, message)


def _topic(topic: PagedTopic) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        topic.error,
        topic.name,
        topic.topic_id,
        topic.is_internal,
        [_partition(one) for one in topic.partitions],
        TOPIC_OPERATIONS,
    )


def _partition(partition: PartitionImage) -> DescribeTopicPartitionsResponsePartition:
    """Eligible replicas are the controller's alone, so none are named (departures.md)."""
    return DescribeTopicPartitionsResponsePartition(
        ErrorCode.NONE,
        partition.partition,
        partition.leader,
        partition.leader_epoch,
        list(partition.replicas),
        list(partition.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=list(partition.offline),
    )


def describe_topic_partitions_error(
    request: DescribeTopicPartitionsRequest, code: ErrorCode, _message: str | None
) -> DescribeTopicPartitionsResponse:
    """Repeats the error for each topic that was named."""
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(code, topic.name) for topic in request.topics]
    )
