"""A static member returns without a member id, but with a known instance id (KIP-345)."""

from __future__ import annotations

from collections.abc import Sequence

from pyrklog.errors import ErrorCode
from pyrklog.groups import persistence, rebalance
from pyrklog.groups.effects import Timer
from pyrklog.groups.member import Member
from pyrklog.groups.messages import NO_MEMBER_ID, JoinRequest, JoinResult, SyncResult
from pyrklog.groups.states import GroupState
from pyrklog.groups.transition import Transition
from pyrklog.plane.internal_log import AppendResult


def replace(
    transition: Transition, request: JoinRequest, token: int, old_id: str, new_id: str
) -> None:
    """Gives the member a new id and fences the old one.

    A stable group with the same protocol does not rebalance: the member gets its old assignment
    once its new id has been written.
    """
    group = transition.group
    old_leader = group.members.leader
    member = group.members[old_id]
    before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
    _rename(transition, member, new_id)
    group.members.update_member(
        member,
        request.protocols,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
    )
    transition.refresh_session(member)
    transition.park_join(member, token)
    client = f"client reason: {request.reason or 'not provided'}"
    if group.state is GroupState.COMPLETING:
        # The leader may be assigning to the old id now.
        rebalance.prepare(transition, f"static member {new_id} comes back; {client}")
    elif group.state is GroupState.STABLE:
        if group.members.select_protocol() != group.protocol_name:
            reason = f"static member {new_id} comes back and changes the protocol; {client}"
            rebalance.prepare(transition, reason)
            return
        transition.notice("group_static_member_back", member=new_id, replaced=old_id)
        generation = group.generation

        def written(later: Transition, result: AppendResult) -> None:
            if group.state is not GroupState.STABLE or group.generation != generation:
                return  # the next generation answers
            if group.members.get(new_id) is not member:
                return  # gone or replaced again, and answered then
            if result.error is ErrorCode.NONE:
                _answer(later, member, request, old_leader)
            else:
                _undo(later, member, old_id, before, result.error)

        assignments = {m.member_id: m.assignment for m in group.members.values()}
        transition.append([persistence.group_record(group, assignments)], written)


def _rename(transition: Transition, member: Member, new_id: str) -> None:
    group = transition.group
    old_id = member.member_id
    transition.answer_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
    transition.answer_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
    transition.cancel_timer(Timer.SESSION, old_id)
    group.members.rename(member, new_id)
    if old_id in group.pending_syncs:
        group.pending_syncs.remove(old_id)
        group.pending_syncs.add(new_id)


def _answer(transition: Transition, member: Member, request: JoinRequest, old_leader: str) -> None:
    result = rebalance.current_generation(transition, member)
    if request.can_skip_assignment:
        # The leader learns that it leads, to watch the topics, but must not assign: the group is
        # stable (KIP-814).
        skip = transition.group.members.is_leader(member.member_id)
        result = result._replace(skip_assignment=skip)
    else:
        # Older clients assign when they see their own id: they get the leader's old one.
        result = result._replace(leader=old_leader, members=())
    transition.answer_join(member, result)
    transition.group.members.settle_memory()
    transition.refresh_session(member)


def _undo(
    transition: Transition,
    member: Member,
    old_id: str,
    before: tuple[Sequence[tuple[str, bytes]], int, int],
    error: ErrorCode,
) -> None:
    """The new id could not be written: restores the old one."""
    group = transition.group
    transition.notice("group_not_written", "warning", error=error.name, member=member.member_id)
    result = rebalance.current_generation(transition, member)._replace(
        error=persistence.group_error(error), member_id=NO_MEMBER_ID, members=()
    )
    transition.answer_join(member, result)
    _rename(transition, member, old_id)
    protocols, rebalance_timeout_ms, session_timeout_ms = before
    group.members.update_member(
        member,
        protocols,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
    )
    transition.refresh_session(member)
