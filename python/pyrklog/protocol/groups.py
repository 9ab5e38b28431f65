"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the classic group protocol (KIP-62).

Later: static members (KIP-345), required member ids (KIP-394), protocol type and name (KIP-559),
reasons (KIP-800), ``skip_assignment`` (KIP-814).
"""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import (
    Bool,
    Bytes,
    Int16,
    Int32,
    Message,
    Str,
    empty_list,
    nullable,
    since,
    until,
)

NO_GENERATION = -1
NO_MEMBER_ID = ""


class JoinGroupRequestProtocol(Message):
    """A protocol of the member; the metadata is the client's."""

    name: Str
    metadata: Bytes


class JoinGroupRequest(Message):
    """``protocols`` are in the member's order of preference.

    Version 0 has no rebalance time-out: the session time-out stands for it.
    """

    group_id: Str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Annotated[Int32, since(1)] = -1
    member_id: Str = NO_MEMBER_ID
    group_instance_id: Annotated[Str | None, since(5)] = None
    protocol_type: Str = ""
    protocols: list[JoinGroupRequestProtocol] = empty_list()
    reason: Annotated[Str | None, since(8)] = None


class JoinGroupResponseMember(Message):
    member_id: Str
    group_instance_id: Annotated[Str | None, since(5)] = None
    metadata: Bytes = b""


class JoinGroupResponse(Message):
    """``members`` is for the leader only."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = NO_GENERATION
    protocol_type: Annotated[Str | None, since(7)] = None
    protocol_name: Annotated[Str | None, nullable(7)] = ""
    leader: Str = ""
    skip_assignment: Annotated[Bool, since(9)] = False
    member_id: Str = NO_MEMBER_ID
    members: list[JoinGroupResponseMember] = empty_list()


class SyncGroupRequestAssignment(Message):
    member_id: Str
    assignment: Bytes


class SyncGroupRequest(Message):
    """``assignments`` is the leader's only."""

    group_id: Str
    generation_id: Int32
    member_id: Str
    group_instance_id: Annotated[Str | None, since(3)] = None
    protocol_type: Annotated[Str | None, since(5)] = None
    protocol_name: Annotated[Str | None, since(5)] = None
    assignments: list[SyncGroupRequestAssignment] = empty_list()


class SyncGroupResponse(Message):
    """The member's own assignment."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[Str | None, since(5)] = None
    protocol_name: Annotated[Str | None, since(5)] = None
    assignment: Bytes = b""


class HeartbeatRequest(Message):
    group_id: Str
    generation_id: Int32
    member_id: Str
    group_instance_id: Annotated[Str | None, since(3)] = None


class HeartbeatResponse(Message):
    """The error tells the member what to do next."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0


class MemberIdentity(Message):
    """A member that leaves, or is removed by its instance id."""

    member_id: Str
    group_instance_id: Str | None = None
    reason: Annotated[Str | None, since(5)] = None


class LeaveGroupRequest(Message):
    """``member_id`` before version 3, ``members`` since."""

    group_id: Str
    member_id: Annotated[Str, until(2)] = NO_MEMBER_ID
    members: Annotated[list[MemberIdentity], since(3)] = empty_list()


class MemberResponse(Message):
    member_id: Str
    group_instance_id: Str | None
    error_code: Int16


class LeaveGroupResponse(Message):
    """Before version 3, ``error_code`` is the member's."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[list[MemberResponse], since(3)] = empty_list()


JOIN_GROUP = Api(11, JoinGroupRequest, JoinGroupResponse, versions=(0, 9), flexible_since=6)
HEARTBEAT = Api(12, HeartbeatRequest, HeartbeatResponse, versions=(0, 4), flexible_since=4)
LEAVE_GROUP = Api(13, LeaveGroupRequest, LeaveGroupResponse, versions=(0, 5), flexible_since=4)
SYNC_GROUP = Api(14, SyncGroupRequest, SyncGroupResponse, versions=(0, 5), flexible_since=4)
