from collections.abc import Sequence

from pyrklog.cluster.requests import TopicPartition
from pyrklog.handlers.context import Context
from pyrklog.protocol.errors import ApiError, ErrorCode
from pyrklog.protocol.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignedPartition,
    ReassignedTopic,
)


async def alter_partition_reassignments(
    context: Context, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Begins, replaces or cancels reassignments; does not wait for their ends.

    A partition's last entry counts, as in Kafka.
    """
    wanted: dict[TopicPartition, Sequence[int] | None] = {
        (topic.name, item.partition_index): item.replicas
        for topic in request.topics
        for item in topic.partitions
    }
    at_end = {
        (topic.name, item.partition_index)
        for topic in request.topics
        for item in topic.partitions
        if item.at_end
    }
    results = await context.controller.alter_reassignments(wanted, at_end)
    if results is None:
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    topics: dict[str, list[ReassignedPartition]] = {}
    for (topic, partition), (code, message) in results.items():
        answer = ReassignedPartition(partition, code, (message or code.message) if code else None)
        topics.setdefault(topic, []).append(answer)
    return AlterPartitionReassignmentsResponse(
        responses=[ReassignedTopic(topic, partitions) for topic, partitions in topics.items()]
    )


def alter_partition_reassignments_error(
    request: AlterPartitionReassignmentsRequest, code: ErrorCode, message: str | None
) -> AlterPartitionReassignmentsResponse:
    """Repeats the error for each partition: Java's admin client counts the results."""
    topics = [
        ReassignedTopic(
            topic.name,
            [ReassignedPartition(item.partition_index, code, message) for item in topic.partitions],
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(0, code, message, topics)


async def list_partition_reassignments(
    context: Context, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Running reassignments; missing partitions have none."""
    keys = None
    if request.topics is not None:
        keys = [
            (topic.name, index) for topic in request.topics for index in topic.partition_indexes
        ]
    moving = await context.controller.reassignments(keys)
    if moving is None:
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for (topic, partition), assignment in moving.items():
        topics.setdefault(topic, []).append(
            OngoingPartitionReassignment(
                partition,
                list(assignment.replicas),
                list(assignment.adding),
                list(assignment.removing),
            )
        )
    return ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(topic, partitions) for topic, partitions in topics.items()]
    )
