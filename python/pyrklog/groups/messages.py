"""Requests to a group and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyrklog.errors import ErrorCode
from pyrklog.plane.internal_log import Producer

NO_GENERATION = -1
NO_MEMBER_ID = ""
NO_OFFSET = -1
NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1

TopicPartition = tuple[str, int]


class JoinRequest(NamedTuple):
    """``protocols``: (name, metadata) in order of preference."""

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
    """The client can come back with its new id (JoinGroup v4+)."""
    can_skip_assignment: bool = False
    """The client knows leaders that must not assign (JoinGroup v9+)."""
    fresh_id: str = ""
    """The unique end of a new member id."""


class SyncRequest(NamedTuple):
    """Protocol type and name are None in versions without them."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = {}


class MemberHeartbeat(NamedTuple):
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
    """The fields of ``group_records.OffsetValue``. ``expire_ms`` -1: the broker's retention
    counts."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_ms: int = NO_TIMESTAMP
    expire_ms: int = NO_TIMESTAMP


class CommitRequest(NamedTuple):
    """``producer`` is set for a transaction."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    offsets: Mapping[TopicPartition, Offset]
    producer: Producer | None = None
    client_host: str = ""
    guard: int | None = None
    """Of the transaction's first append to the group's partition, from ``begin_verification``."""


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """Only the leader gets ``members``."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: Sequence[JoinedMember] = ()
    skip_assignment: bool = False


class SyncResult(NamedTuple):
    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


class LeaveResult(NamedTuple):
    """A code for each leaving member, in order; none with an error of the group."""

    error: ErrorCode
    members: Sequence[tuple[LeavingMember, ErrorCode]] = ()


class CommitResult(NamedTuple):
    errors: Mapping[TopicPartition, ErrorCode]


class DeleteOffsetsResult(NamedTuple):
    """A code for each partition; none with an error of the group."""

    error: ErrorCode
    errors: Mapping[TopicPartition, ErrorCode] = {}


Result = JoinResult | SyncResult | LeaveResult | CommitResult | DeleteOffsetsResult | ErrorCode
"""Heartbeat and DeleteGroups get a bare code."""


class FetchedOffset(NamedTuple):
    """For OffsetFetch; -1: none."""

    error: ErrorCode
    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


class GroupOverview(NamedTuple):
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
    error: ErrorCode
    group_id: str
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: Sequence[MemberDescription] = ()
