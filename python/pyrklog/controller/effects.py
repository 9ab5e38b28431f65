"""What the controller's machine asks its driver to do, and what it is told back.

The machine's steps are generators: they yield an effect and are sent its result. A driver that
loses the controllership throws it all away instead.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.cluster.requests import ControlRequest, TopicPartition
from pyrklog.metastore.znodes import Leadership, TopicAssignment


class StateWrite(NamedTuple):
    """A partition state to write; expected version -1 = the node is to be created."""

    key: TopicPartition
    leadership: Leadership
    expected_version: int
    had_eligible: bool = False
    """Whether eligible leader replicas, or unclean ones, are written down already."""


class WriteStates(NamedTuple):
    """Writes partition states, each by compare-and-set and fenced by the controller's epoch.

    A partition's eligible leader replicas are written in the same transaction.

    Result: ``dict[TopicPartition, int | None]``: the new version, None where it was refused.
    """

    writes: Sequence[StateWrite]


class ReadStates(NamedTuple):
    """Result: ``dict[TopicPartition, tuple[Leadership, int]]``, with versions; missing left out."""

    keys: Sequence[TopicPartition]


class ReadUnclean(NamedTuple):
    """Result: ``frozenset[str]``: those of the topics whose options allow unclean elections."""

    topics: Sequence[str]


class ReadMinimums(NamedTuple):
    """Result: ``dict[str, int]``: ``min.insync.replicas`` of each of the topics."""

    topics: Sequence[str]


class WriteAssignments(NamedTuple):
    """Writes other replicas of some partitions of a topic, fenced by the controller's epoch.

    Result: ``ErrorCode``: UNKNOWN_TOPIC_OR_PARTITION where the topic is gone, and
    INVALID_REPLICA_ASSIGNMENT where they are more than the store takes.
    """

    topic: str
    assignments: Mapping[int, PartitionAssignment]


class UnmarkReassignments(NamedTuple):
    """Takes partitions out of /admin/reassign_partitions, which goes with its last. Result: None.

    Only where the node wants these replicas; None = whatever it wants.
    """

    wanted: Mapping[TopicPartition, tuple[int, ...] | None]


class UnmarkElection(NamedTuple):
    """Removes /admin/preferred_replica_election. Result: None."""


class DeleteTopicNodes(NamedTuple):
    """Removes all that is kept of the topics, the mark for deletion last. Result: None."""

    topics: Sequence[str]


class UnmarkDeletion(NamedTuple):
    """Removes the mark from topics that are not there or may not be deleted. Result: None."""

    topics: Sequence[str]


class ForgetUnclean(NamedTuple):
    """Brokers that started unclean have left the ISRs. Result: None."""

    brokers: Sequence[int]


class WaitForOthers(NamedTuple):
    """Brokers that started unclean wait for others of their partitions, which may have more.

    Result: None; the end of the wait comes as an event with this ``number``.
    """

    number: int
    seconds: float


class TakeProducerIds(NamedTuple):
    """Takes the next block of producer ids for a broker.

    Result: ``ProducerIdBlock``, or None when there are none left.
    """

    broker: int


class Send(NamedTuple):
    """Puts a request in a broker's queue. Result: None; an answer comes as an event."""

    broker: int
    request: ControlRequest


class Pause(NamedTuple):
    """Lets others have a turn, in the midst of a long procedure. Result: None."""


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
    | UnmarkReassignments
    | UnmarkElection
    | DeleteTopicNodes
    | UnmarkDeletion
    | ForgetUnclean
    | WaitForOthers
    | TakeProducerIds
    | Send
    | StateChange
    | Pause
)
Steps = Generator[Effect, Any, None]
"""A procedure of the machine."""


class Snapshot(NamedTuple):
    """What a new controller finds in the metadata store."""

    topics: Mapping[str, TopicAssignment]
    states: Mapping[TopicPartition, tuple[Leadership, int]]
    to_delete: Sequence[str]
    unreadable: Sequence[str] = ()
    """Topics whose znode holds no assignment."""
