"""SyncGroup: the leader's assignment, and each member's part."""

from __future__ import annotations

from pyrklog.errors import ErrorCode
from pyrklog.groups import fencing, persistence, rebalance
from pyrklog.groups.effects import Timer
from pyrklog.groups.group import Group
from pyrklog.groups.messages import SyncRequest, SyncResult
from pyrklog.groups.states import GroupState
from pyrklog.groups.transition import Transition
from pyrklog.plane.internal_log import AppendResult


def sync(transition: Transition, request: SyncRequest, token: int) -> None:
    """The member waits until the leader's assignment has been written."""
    group = transition.group
    error = _check(group, request)
    if error is not ErrorCode.NONE:
        transition.reply(token, SyncResult(error))
        return
    member = group.members[request.member_id]
    _synced(transition, request.member_id)
    if group.state is GroupState.STABLE:
        transition.reply(token, _assigned(group, member.assignment))
        transition.refresh_session(member)
        return
    transition.park_sync(member, token)
    if group.members.is_leader(member.member_id) and group.assigned_generation != group.generation:
        _take_assignment(transition, request)


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


def _synced(transition: Transition, member_id: str) -> None:
    pending = transition.group.pending_syncs
    pending.discard(member_id)
    if not pending:
        transition.cancel_timer(Timer.SYNC)


def _take_assignment(transition: Transition, request: SyncRequest) -> None:
    group = transition.group
    # Departure from Kafka, which writes a repeated assignment: members would have the first one and
    # the log, after a failover, the second.
    group.assigned_generation = group.generation
    assignments = {m: request.assignments.get(m, b"") for m in group.members}
    missing = len(assignments.keys() - request.assignments.keys())
    if missing:
        transition.notice("group_members_without_assignment", "warning", members=missing)
    if not group.members.take_memory_for(assignments):
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        rebalance.fail_syncs(transition, error)
        rebalance.prepare(transition, "there is no memory for the assignment")
        return
    generation = group.generation

    def written(later: Transition, result: AppendResult) -> None:
        if group.state is not GroupState.COMPLETING or group.generation != generation:
            return  # a rebalance has begun
        if result.error is ErrorCode.NONE:
            _assign(later, assignments)
        else:
            error = persistence.group_error(result.error)
            rebalance.fail_syncs(later, error)
            rebalance.prepare(later, f"the assignment could not be written: {error.name}")

    record = persistence.group_record(group, assignments, group.rebalance_reason)
    transition.append([record], written)


def _assign(transition: Transition, assignments: dict[str, bytes]) -> None:
    group = transition.group
    group.move_to(GroupState.STABLE, transition.now_ms)
    for member in group.members.values():
        member.assignment = assignments[member.member_id]
        if transition.answer_sync(member, _assigned(group, member.assignment)):
            # Its session did not run while it waited.
            transition.refresh_session(member)
    group.members.settle_memory()
    transition.notice("group_stable", generation=group.generation, members=len(group.members))


def _assigned(group: Group, assignment: bytes) -> SyncResult:
    return SyncResult(ErrorCode.NONE, assignment, group.protocol_type, group.protocol_name)


def time_over(transition: Transition) -> None:
    """Members that have not sent SyncGroup are taken for dead."""
    group = transition.group
    if group.state not in (GroupState.COMPLETING, GroupState.STABLE) or not group.pending_syncs:
        return
    late = [m for m in group.members.values() if m.member_id in group.pending_syncs]
    for member in late:
        transition.remove_member(member)
    more = f" and {len(late) - 1} more" if len(late) > 1 else ""
    rebalance.prepare(transition, f"no SyncGroup in time from {late[0].member_id}{more}")
