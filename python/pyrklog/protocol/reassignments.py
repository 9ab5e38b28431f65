"""AlterPartitionReassignments, ListPartitionReassignments (KIP-455)."""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import Bool, Int16, Int32, Message, Str, empty_list, tagged

AT_END_TAG = 10_009
"""Ours, as in :mod:`.inter_broker`."""


class ReassignablePartition(Message):
    """``replicas`` null cancels the running reassignment."""

    partition_index: Int32
    replicas: list[Int32] | None = None
    at_end: Annotated[Bool, tagged(AT_END_TAG, since=0)] = False
    """New replicas start at their leader's end (``expansion.md``); else they copy."""


class ReassignableTopic(Message):
    name: Str
    partitions: list[ReassignablePartition]


class AlterPartitionReassignmentsRequest(Message):
    timeout_ms: Int32 = 60_000
    topics: list[ReassignableTopic] = empty_list()


class ReassignedPartition(Message):
    partition_index: Int32
    error_code: Int16 = 0
    error_message: Str | None = None


class ReassignedTopic(Message):
    name: Str
    partitions: list[ReassignedPartition]


class AlterPartitionReassignmentsResponse(Message):
    """One result for each partition, also if the whole request is refused."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = None
    responses: list[ReassignedTopic] = empty_list()


ALTER_PARTITION_REASSIGNMENTS = Api(
    45,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    versions=(0, 0),
    flexible_since=0,
)


class ListPartitionReassignmentsTopics(Message):
    name: Str
    partition_indexes: list[Int32]


class ListPartitionReassignmentsRequest(Message):
    """``topics`` null: all."""

    timeout_ms: Int32 = 60_000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Message):
    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]


class OngoingTopicReassignment(Message):
    name: Str
    partitions: list[OngoingPartitionReassignment]


class ListPartitionReassignmentsResponse(Message):
    """Running reassignments only."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = None
    topics: list[OngoingTopicReassignment] = empty_list()


LIST_PARTITION_REASSIGNMENTS = Api(
    46,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    versions=(0, 0),
    flexible_since=0,
)
