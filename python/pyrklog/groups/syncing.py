"""SyncGroup: the leader hands in the assignment, everybody gets its part."""

from __future__ import annotations

from pyrklog.errors import ErrorCode
from pyrklog.groups import fencing, persistence, rebalance
from pyrklog.groups.group import Group
from pyrklog.groups.states import GroupState
from pyrklog.groups.turn import Turn
from pyrklog.groups.values import (
    SyncRequest,
    SyncResult,
    Timer,
)
from pyrklog.plane.internal_log import AppendResult


def sync(turn: Turn, request: SyncRequest, token: int) -> None:
    """A member asks for its assignment; it waits until the leader's has been written."""
    group = turn.group
    error = _check(group, request)
    if error is not ErrorCode.NONE:
        turn.reply(token, SyncResult(error))
        return
    member = group.roster.members[request.member_id]
    _synced(turn, request.member_id)
    if group.state is GroupState.STABLE:
        turn.reply(token, _assigned(group, member.assignment))
        turn.refresh_session(member)
        return
    turn.park_sync(member, token)
    if group.roster.is_leader(member.member_id) and group.assigned_generation != group.generation:
        _take_assignment(turn, request)


def _check(group: Group, request: SyncRequest) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = fencing.check_generation(
        group, request.generation, request.member_id, request.instance_id
    )
    if error is not ErrorCode.NONE:
        return error
    if request.protocol_type not in (None, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name not in (None, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _synced(turn: Turn, member_id: str) -> None:
    pending = turn.group.pending_syncs
    pending.discard(member_id)
    if not pending:
        turn.cancel_timer(Timer.SYNC)


def _take_assignment(turn: Turn, request: SyncRequest) -> None:
    group = turn.group
    # Departure from Kafka, which writes what a leader hands in twice: members would be told the
    # first assignment, and the log, after a fail-over, the second.
    group.assigned_generation = group.generation
    assignments = {m: request.assignments.get(m, b"") for m in group.roster.members}
    missing = len(assignments.keys() - request.assignments.keys())
    if missing:
        turn.notice("group_members_without_assignment", "warning", members=missing)
    if not group.roster.take_memory_for(assignments):
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        rebalance.fail_syncs(turn, error)
        rebalance.prepare(turn, "there is no memory for the assignment")
        return
    generation = group.generation

    def written(later: Turn, result: AppendResult) -> None:
        if group.state is not GroupState.COMPLETING or group.generation != generation:
            return  # a rebalance has begun since
        if result.error is ErrorCode.NONE:
            _assign(later, assignments)
        else:
            error = persistence.group_error(result.error)
            rebalance.fail_syncs(later, error)
            rebalance.prepare(later, f"the assignment could not be written: {error.name}")

    reason = group.history.reason_of(generation)
    turn.append([persistence.group_record(group, assignments, reason)], written)


def _assign(turn: Turn, assignments: dict[str, bytes]) -> None:
    group = turn.group
    group.move_to(GroupState.STABLE, turn.now_ms)
    for member in group.roster.members.values():
        member.assignment = assignments[member.member_id]
        if turn.answer_sync(member, _assigned(group, member.assignment)):
            # While it waited its session did not count.
            turn.refresh_session(member)
    group.roster.settle_memory()
    turn.notice("group_stable", generation=group.generation, members=len(group.roster))


def _assigned(group: Group, assignment: bytes) -> SyncResult:
    return SyncResult(ErrorCode.NONE, assignment, group.protocol_type, group.protocol_name)


def time_over(turn: Turn) -> None:
    """Members that have not asked for their assignment are taken for dead."""
    group = turn.group
    if group.state not in (GroupState.COMPLETING, GroupState.STABLE) or not group.pending_syncs:
        return
    late = [m for m in group.roster.members.values() if m.member_id in group.pending_syncs]
    for member in late:
        turn.remove_member(member)
    more = f" and {len(late) - 1} more" if len(late) > 1 else ""
    rebalance.prepare(turn, f"no SyncGroup in time from {late[0].member_id}{more}")
