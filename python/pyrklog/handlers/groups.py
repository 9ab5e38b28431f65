"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

=========  =====================================================================================
JoinGroup  v0 has no rebalance time-out; from v4 on, a client may be told to retry with its member
           id; v7 allows a null protocol name; v9 allows a leader that skips the assignment
SyncGroup  v5 must name the protocol
LeaveGroup v3 has several members with a code each; before, the response has the one code
=========  =====================================================================================
"""

from functools import partial

from pyrklog.groups.messages import (
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    MemberHeartbeat,
    SyncRequest,
    SyncResult,
)
from pyrklog.handlers.context import Context, WhenDone, now_or_later
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

REBALANCE_TIMEOUT_SINCE = 1
MEMBER_ID_REQUIRED_SINCE = 4
NO_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9
PROTOCOL_MANDATORY_SINCE = 5
SEVERAL_LEAVE_SINCE = 3


def join_group_now(
    context: Context, request: JoinGroupRequest
) -> JoinGroupResponse | WhenDone[JoinGroupResponse]:
    """Waits until the group has a generation."""
    version = context.api_version
    has_own_timeout = version >= REBALANCE_TIMEOUT_SINCE
    joining = context.groups.join(
        JoinRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            client_id=context.session.client_id or "",
            client_host=context.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=(
                request.rebalance_timeout_ms if has_own_timeout else request.session_timeout_ms
            ),
            protocol_type=request.protocol_type,
            protocols=tuple((one.name, one.metadata) for one in request.protocols),
            reason=request.reason,
            member_id_required=(
                version >= MEMBER_ID_REQUIRED_SINCE and request.group_instance_id is None
            ),
            can_skip_assignment=version >= SKIP_ASSIGNMENT_SINCE,
        )
    )
    return now_or_later(joining, partial(_joined, version))


def _joined(version: int, result: JoinResult) -> JoinGroupResponse:
    no_protocol = None if version >= NO_PROTOCOL_SINCE else ""
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=no_protocol if result.protocol_name is None else result.protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(one.member_id, one.instance_id, one.metadata)
            for one in result.members
        ],
    )


def join_group_error(
    request: JoinGroupRequest, code: ErrorCode, _message: str | None
) -> JoinGroupResponse:
    """Repeats the member id, as Kafka's coordinator does with COORDINATOR_NOT_AVAILABLE."""
    return JoinGroupResponse(error_code=code, member_id=request.member_id)


def sync_group_now(
    context: Context, request: SyncGroupRequest
) -> SyncGroupResponse | WhenDone[SyncGroupResponse]:
    unnamed = request.protocol_type is None or request.protocol_name is None
    if context.api_version >= PROTOCOL_MANDATORY_SINCE and unnamed:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    syncing = context.groups.sync(
        SyncRequest(
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={one.member_id: one.assignment for one in request.assignments},
        )
    )
    return now_or_later(syncing, _synced)


def _synced(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


def heartbeat_now(context: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    error = context.groups.heartbeat(
        MemberHeartbeat(
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
        )
    )
    return HeartbeatResponse(error_code=error)


def leave_group_now(
    context: Context, request: LeaveGroupRequest
) -> LeaveGroupResponse | WhenDone[LeaveGroupResponse]:
    several = context.api_version >= SEVERAL_LEAVE_SINCE
    members = [LeavingMember(request.member_id)]
    if several:
        members = [
            LeavingMember(one.member_id, one.group_instance_id, one.reason)
            for one in request.members
        ]
    leaving = context.groups.leave(request.group_id, members)
    return now_or_later(leaving, _all_left if several else _one_left)


def _one_left(result: LeaveResult) -> LeaveGroupResponse:
    codes = [code for _, code in result.members]
    return LeaveGroupResponse(error_code=result.error or codes[0])


def _all_left(result: LeaveResult) -> LeaveGroupResponse:
    return LeaveGroupResponse(
        error_code=result.error,
        members=[
            MemberResponse(member.member_id, member.instance_id, code)
            for member, code in result.members
        ],
    )
