"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the classic group protocol (KIP-62).

Static members (``group_instance_id``) came with KIP-345, the demand for a member id with KIP-394,
protocol type and name with KIP-559, reasons with KIP-800, ``skip_assignment`` with KIP-814.
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
    """One way of assigning partitions that the member knows; its metadata is the client's."""

    name: Str
    metadata: Bytes


class JoinGroupRequest(Message):
    """``protocols`` stand in the order of the member's preference.

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
    """A member as the leader sees it."""

    member_id: Str
    group_instance_id: Annotated[Str | None, since(5)] = None
    metadata: Bytes = b""


class JoinGroupResponse(Message):
    """``members`` is for the leader only; ``protocol_name`` may be null from version 7 on."""

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
    """What the leader gives to one member."""

    member_id: Str
    assignment: Bytes


class SyncGroupRequest(Message):
    """``assignments`` counts in the leader's request only."""

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
    """A member lives."""

    group_id: Str
    generation_id: Int32
    member_id: Str
    group_instance_id: Annotated[Str | None, since(3)] = None


class HeartbeatResponse(Message):
    """An error says what the member shall do next."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0


class MemberIdentity(Message):
    """A member that leaves, or is removed by its instance id."""

    member_id: Str
    group_instance_id: Str | None = None
    reason: Annotated[Str | None, since(5)] = None


class LeaveGroupRequest(Message):
    """One ``member_id`` before version 3, ``members`` from then on."""

    group_id: Str
    member_id: Annotated[Str, until(2)] = NO_MEMBER_ID
    members: Annotated[list[MemberIdentity], since(3)] = empty_list()


class MemberResponse(Message):
    """What became of one member."""

    member_id: Str
    group_instance_id: Str | None
    error_code: Int16


class LeaveGroupResponse(Message):
    """Before version 3, ``error_code`` is the one member's."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[list[MemberResponse], since(3)] = empty_list()


JOIN_GROUP = Api(
    11, "JoinGroup", JoinGroupRequest, JoinGroupResponse, versions=(0, 9), flexible_since=6
)
HEARTBEAT = Api(
    12, "Heartbeat", HeartbeatRequest, HeartbeatResponse, versions=(0, 4), flexible_since=4
)
LEAVE_GROUP = Api(
    13, "LeaveGroup", LeaveGroupRequest, LeaveGroupResponse, versions=(0, 5), flexible_since=4
)
SYNC_GROUP = Api(
    14, "SyncGroup", SyncGroupRequest, SyncGroupResponse, versions=(0, 5), flexible_since=4
)
