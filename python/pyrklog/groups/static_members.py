"""A static member comes back: it has no member id, but its instance id is known (KIP-345)."""

from __future__ import annotations

from pyrklog.errors import ErrorCode
from pyrklog.groups import persistence, rebalance
from pyrklog.groups.member import Member
from pyrklog.groups.states import GroupState
from pyrklog.groups.turn import Turn
from pyrklog.groups.values import (
    NO_MEMBER_ID,
    JoinRequest,
    JoinResult,
    SyncResult,
    Timer,
)
from pyrklog.plane.internal_log import AppendResult


def replace(turn: Turn, request: JoinRequest, token: int, old_id: str, new_id: str) -> None:
    """Gives the member a new id and fences the old one.

    In a stable group whose protocol stays the same, nothing else happens: the member takes up its
    old assignment once its new id has been written.
    """
    group = turn.group
    old_leader = group.roster.leader
    member = group.roster.members[old_id]
    before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
    _rename(turn, member, new_id)
    group.roster.update(
        member,
        request.protocols,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
    )
    turn.refresh_session(member)
    turn.park_join(member, token)
    client = f"client reason: {request.reason or 'not provided'}"
    if group.state is GroupState.COMPLETING:
        # The leader may be assigning to the old id right now.
        rebalance.prepare(turn, f"static member {new_id} comes back; {client}")
    elif group.state is GroupState.STABLE:
        if group.roster.select_protocol() != group.protocol_name:
            reason = f"static member {new_id} comes back and changes the protocol; {client}"
            rebalance.prepare(turn, reason)
            return
        turn.notice("group_static_member_back", member=new_id, replaced=old_id)
        generation = group.generation

        def written(later: Turn, result: AppendResult) -> None:
            if group.state is not GroupState.STABLE or group.generation != generation:
                return  # the next generation answers
            if group.roster.get(new_id) is not member:
                return  # gone, or replaced once more: answered by what did that
            if result.error is ErrorCode.NONE:
                _answer(later, member, request, old_leader)
            else:
                _undo(later, member, old_id, before, result.error)

        assignments = {m.member_id: m.assignment for m in group.roster.members.values()}
        turn.append([persistence.group_record(group, assignments)], written)


def _rename(turn: Turn, member: Member, new_id: str) -> None:
    group = turn.group
    old_id = member.member_id
    turn.answer_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
    turn.answer_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
    turn.cancel_timer(Timer.SESSION, old_id)
    group.roster.rename(member, new_id)
    if old_id in group.pending_syncs:
        group.pending_syncs.remove(old_id)
        group.pending_syncs.add(new_id)


def _answer(turn: Turn, member: Member, request: JoinRequest, old_leader: str) -> None:
    result = rebalance.current_generation(turn, member)
    if request.can_skip_assignment:
        # The leader learns that it leads, and watches the topics again, but shall not assign: a
        # stable group would not hear of it (KIP-814).
        skip = turn.group.roster.is_leader(member.member_id)
        result = result._replace(skip_assignment=skip)
    else:
        # Older clients assign when they find their own id: they are shown the leader's old one.
        result = result._replace(leader=old_leader, members=())
    turn.answer_join(member, result)
    turn.group.roster.settle_memory()
    turn.refresh_session(member)


def _undo(
    turn: Turn,
    member: Member,
    old_id: str,
    before: tuple[tuple[tuple[str, bytes], ...], int, int],
    error: ErrorCode,
) -> None:
    """The new id could not be written: the old one counts again."""
    group = turn.group
    turn.notice("group_not_written", "warning", error=error.name, member=member.member_id)
    result = rebalance.current_generation(turn, member)._replace(
        error=persistence.group_error(error), member_id=NO_MEMBER_ID, members=()
    )
    turn.answer_join(member, result)
    _rename(turn, member, old_id)
    protocols, rebalance_timeout_ms, session_timeout_ms = before
    group.roster.update(
        member,
        protocols,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
    )
    turn.refresh_session(member)
