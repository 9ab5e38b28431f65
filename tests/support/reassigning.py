"""Reassignments by requests to the controller only: other brokers may be paused."""

from collections.abc import Sequence

from pyrklog.protocol.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.support.raw_client import RawClient


def move(
    controller: str, topic: str, replicas: Sequence[int] | None, *, at_end: bool = False
) -> None:
    """Requests a move of partition 0 (None cancels) and checks that it is accepted. ``at_end``: new
    replicas start at their leader's end."""
    partition = ReassignablePartition(0, None if replicas is None else list(replicas), at_end)
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(topic, [partition])])
    with RawClient(controller) as raw:
        response = raw.ask(ALTER_PARTITION_REASSIGNMENTS, 0, request)
    assert response.error_code == 0, response
    codes = [one.error_code for answer in response.responses for one in answer.partitions]
    assert codes == [0], response


def moving(controller: str) -> dict[tuple[str, int], tuple[list[int], list[int], list[int]]]:
    """Moves under way: replicas, those added, those removed."""
    with RawClient(controller) as raw:
        response = raw.ask(LIST_PARTITION_REASSIGNMENTS, 0, ListPartitionReassignmentsRequest())
    assert response.error_code == 0, response
    return {
        (topic.name, one.partition_index): (
            one.replicas,
            one.adding_replicas,
            one.removing_replicas,
        )
        for topic in response.topics
        for one in topic.partitions
    }
