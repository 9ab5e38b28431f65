"""What goes into a group and what comes out of it. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from pyrklog.errors import ErrorCode
from pyrklog.groups.table import OffsetCommit
from pyrklog.plane.internal_log import NewRecord, Producer

NO_GENERATION = -1
NO_MEMBER_ID = ""
NO_OFFSET = -1
NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1

TopicPartition = tuple[str, int]


class Timer(Enum):
    """Every timer of a group."""

    SESSION = auto()
    """A member's session; of a new one: how long its JoinGroup may wait."""
    PENDING_MEMBER = auto()
    """A member id was handed out and has not come back."""
    INITIAL_DELAY = auto()
    """The first members of an empty group wait for more."""
    REBALANCE = auto()
    """Members have this long to join again."""
    SYNC = auto()
    """Members of a new generation have this long to ask for their assignment."""


class GroupSettings(NamedTuple):
    """Options of all groups; Kafka's names are in ``config/group_options.py``."""

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    members_max: int = 2**31 - 1
    metadata_units_max: int = 4_096
    """UTF-16 units of a committed offset's metadata."""
    retention_ms: int = 7 * 24 * 3_600_000
    memory_max_bytes: int = 2**30
    """What groups and members may make the coordinator remember, over all groups."""


# --- requests ------------------------------------------------------------------------------------


class JoinRequest(NamedTuple):
    """``protocols``: (name, metadata) in the member's order of preference."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Sequence[tuple[str, bytes]]
    reason: str | None = None
    member_id_required: bool = False
    """The client can be asked to come back with the id it is given (JoinGroup v4+)."""
    can_skip_assignment: bool = False
    """The client understands a leader that shall not assign (JoinGroup v9+)."""
    fresh_id: str = ""
    """Becomes the end of a member id; never used before."""


class SyncRequest(NamedTuple):
    """Protocol type and name are None where the version has none."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = {}


class HeartbeatRequest(NamedTuple):
    """A member lives."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


class LeavingMember(NamedTuple):
    """A member by its id, or by its instance id alone."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class Offset(NamedTuple):
    """A committed offset; ``expire_ms`` is -1 where the broker's retention counts."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_ms: int = NO_TIMESTAMP
    expire_ms: int = NO_TIMESTAMP


class CommitRequest(NamedTuple):
    """Offsets to keep; ``producer`` where they belong to a transaction."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    offsets: Mapping[TopicPartition, Offset]
    producer: Producer | None = None
    client_host: str = ""


# --- results -------------------------------------------------------------------------------------


class JoinedMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """``members`` is for the leader only."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: Sequence[JoinedMember] = ()
    skip_assignment: bool = False


class SyncResult(NamedTuple):
    """The member's assignment."""

    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


class LeaveResult(NamedTuple):
    """``members`` has one code a leaving member, in order; empty with an error of the group."""

    error: ErrorCode
    members: Sequence[tuple[LeavingMember, ErrorCode]] = ()


class CommitResult(NamedTuple):
    """One code an offset."""

    errors: Mapping[TopicPartition, ErrorCode]


class DeleteOffsetsResult(NamedTuple):
    """No codes of partitions with an error of the group."""

    error: ErrorCode
    errors: Mapping[TopicPartition, ErrorCode] = {}


Result = JoinResult | SyncResult | LeaveResult | CommitResult | DeleteOffsetsResult | ErrorCode
"""What a reply carries; heartbeats and deletions of groups get a bare code."""


class FetchedOffset(NamedTuple):
    """An offset as OffsetFetch shows it; -1 where there is none."""

    error: ErrorCode
    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


class GroupOverview(NamedTuple):
    """A line of ListGroups."""

    group_id: str
    protocol_type: str
    state: str


class MemberDescription(NamedTuple):
    """Metadata and assignment are empty unless the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """A group as DescribeGroups shows it."""

    error: ErrorCode
    group_id: str
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: Sequence[MemberDescription] = ()


# --- effects -------------------------------------------------------------------------------------


class Reply(NamedTuple):
    """The answer to the request that came with this token; each token gets exactly one."""

    token: int
    result: Result


class Append(NamedTuple):
    """Records for the group's partition of ``__consumer_offsets``.

    To be answered by ``append_finished`` with the same ticket, once the high watermark has passed
    them or they have failed.
    """

    ticket: int
    records: Sequence[NewRecord]
    producer: Producer | None = None


class AppendCommit(NamedTuple):
    """A staged commit for the group's partition of ``__consumer_offsets``; the data plane answers
    it and puts it into the group's table."""

    commit: OffsetCommit


class SetTimer(NamedTuple):
    """Starts a timer, or starts it anew; ``member_id`` is empty for the group's own."""

    timer: Timer
    member_id: str
    delay_ms: int


class CancelTimer(NamedTuple):
    """Stops a timer, if it runs."""

    timer: Timer
    member_id: str


class Notice(NamedTuple):
    """A line for the log."""

    event: str
    fields: Mapping[str, object]
    level: str = "info"


Effect = Reply | Append | AppendCommit | SetTimer | CancelTimer | Notice
