"""Heartbeat, LeaveGroup, and sessions that end."""

from __future__ import annotations

from collections.abc import Sequence

from pyrklog.errors import ErrorCode
from pyrklog.groups import fencing, rebalance
from pyrklog.groups.messages import LeaveResult, LeavingMember, MemberHeartbeat
from pyrklog.groups.states import GroupState
from pyrklog.groups.transition import Transition


def heartbeat(transition: Transition, request: MemberHeartbeat, token: int) -> None:
    """The answer tells whether the member must join again."""
    group = transition.group
    if group.state is GroupState.DEAD:
        transition.reply(token, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    error = fencing.check_generation(
        group, request.generation, request.member_id, request.instance_id
    )
    if error is ErrorCode.NONE:
        transition.refresh_session(group.members[request.member_id])
        if group.state is GroupState.PREPARING:
            error = ErrorCode.REBALANCE_IN_PROGRESS
    transition.reply(token, error)


def leave(transition: Transition, members: Sequence[LeavingMember], token: int) -> None:
    """Members leave, or an administrator removes static ones by their instance ids."""
    if transition.group.state is GroupState.DEAD:
        transition.reply(token, LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    results = [(member, _leave_one(transition, member)) for member in members]
    transition.reply(token, LeaveResult(ErrorCode.NONE, results))


def _leave_one(transition: Transition, leaving: LeavingMember) -> ErrorCode:
    group = transition.group
    member_id = leaving.member_id
    if not member_id:
        instance_id = leaving.instance_id
        member_id = group.members.ids_by_instance.get(instance_id or "", "")
        if not member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id in group.pending_ids:
        transition.remove_pending_id(member_id)
        rebalance.complete_if_all_joined(transition)
        return ErrorCode.NONE
    else:
        error = fencing.check_member(group, member_id, leaving.instance_id)
        if error is not ErrorCode.NONE:
            return error
    transition.remove_member(group.members[member_id])
    client = f"client reason: {leaving.reason or 'not provided'}"
    transition.notice("group_member_left", member=member_id, reason=leaving.reason)
    rebalance.member_removed(transition, f"member {member_id} left; {client}")
    return ErrorCode.NONE


def session_over(transition: Transition, member_id: str) -> None:
    """Removes a silent member, unless the group lets it wait."""
    member = transition.group.members.get(member_id)
    if member is None:
        return
    waits = member.awaiting_join is not None or member.awaiting_sync is not None
    if waits and not member.is_new:
        return  # the answer restarts its session
    transition.remove_member(member)
    transition.notice("group_member_expired", member=member_id)
    rebalance.member_removed(transition, f"session of member {member_id} expired")


def pending_id_over(transition: Transition, member_id: str) -> None:
    if transition.group.remove_pending_id(member_id):
        rebalance.complete_if_all_joined(transition)
