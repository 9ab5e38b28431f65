"""Effects: what the controller's machine asks of its driver, and the results.

Procedures yield an effect and receive its result.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.cluster.requests import ControlRequest, TopicPartition
from pyrklog.metastore.znodes import Leadership, PartialReplicas, TopicAssignment


class StateWrite(NamedTuple):
    """Expected version -1 = create the node."""

    key: TopicPartition
    leadership: Leadership
    expected_version: int
    had_eligible: bool = False
    """Whether a node of eligible or unclean replicas exists."""


class WriteStates(NamedTuple):
    """Writes partition states by compare-and-set, fenced by the controller's epoch.

    The same transaction writes a partition's eligible leader replicas.

    Result: ``dict[TopicPartition, int | None]``: the new version, None where it was refused.
    """

    writes: Sequence[StateWrite]


class ReadStates(NamedTuple):
    """Result: ``dict[TopicPartition, tuple[Leadership, int]]``, with versions, without missing
    ones.
    """

    keys: Sequence[TopicPartition]


class ReadUnclean(NamedTuple):
    """Result: ``frozenset[str]``: the topics whose options allow unclean elections."""

    topics: Sequence[str]


class ReadMinimums(NamedTuple):
    """Result: ``dict[str, int]``: each topic's ``min.insync.replicas``."""

    topics: Sequence[str]


class WriteAssignments(NamedTuple):
    """Writes new replicas for partitions of a topic, fenced by the controller's epoch.

    Result: ``ErrorCode``: UNKNOWN_TOPIC_OR_PARTITION where the topic is gone,
    INVALID_REPLICA_ASSIGNMENT where the node would be too large for the store.
    """

    topic: str
    assignments: Mapping[int, PartitionAssignment]


class WritePartialReplicas(NamedTuple):
    """Writes which replicas of partitions lack older records; without any the node goes.

    Result: None.
    """

    partial: Mapping[TopicPartition, PartialReplicas]


class UnmarkReassignments(NamedTuple):
    """Removes partitions from /admin/reassign_partitions, and the node with its last. Result: None.

    Keeps an entry that wants other replicas than these; None = any.
    """

    wanted: Mapping[TopicPartition, tuple[int, ...] | None]


class DeleteTopicNodes(NamedTuple):
    """The mark for deletion goes last. Result: None."""

    topics: Sequence[str]


class DeleteNodes(NamedTuple):
    """Deletes nodes without children, which may be gone already. Result: None."""

    paths: Sequence[str]


class WaitForOthers(NamedTuple):
    """Waits for replicas that may have more than those that are back.

    Result: None; the end of the wait is an event with this ``number``.
    """

    number: int
    seconds: float


class TakeProducerIds(NamedTuple):
    """Result: ``ProducerIdBlock``, or None when none are left."""

    broker: int


class Send(NamedTuple):
    """Queues a request to a broker. Result: None; the answer is an event."""

    broker: int
    request: ControlRequest


class Pause(NamedTuple):
    """Lets other tasks run during a long procedure. Result: None."""


UNCLEAN_ELECTION = "unclean_election"
"""A state change: the new leader of a partition may lack acknowledged records."""


class StateChange(NamedTuple):
    """A line of the state-change log. Result: None."""

    event: str
    fields: Mapping[str, object]


Effect = (
    WriteStates
    | ReadStates
    | ReadUnclean
    | ReadMinimums
    | WriteAssignments
    | WritePartialReplicas
    | UnmarkReassignments
    | DeleteTopicNodes
    | DeleteNodes
    | WaitForOthers
    | TakeProducerIds
    | Send
    | StateChange
    | Pause
)
Steps = Generator[Effect, Any, None]


class Snapshot(NamedTuple):
    topics: Mapping[str, TopicAssignment]
    states: Mapping[TopicPartition, tuple[Leadership, int]]
    to_delete: Sequence[str]
    unreadable: Sequence[str] = ()
    partial: Mapping[TopicPartition, tuple[int, ...]] = {}
    """Also void entries (``expansion.md``, section 3)."""
