"""From one generation to the next: whom the group waits for, and how long."""

from __future__ import annotations

from pyrklog.errors import ErrorCode
from pyrklog.groups import persistence
from pyrklog.groups.effects import Timer
from pyrklog.groups.group import InitialDelay
from pyrklog.groups.member import Member
from pyrklog.groups.messages import JoinResult, SyncResult
from pyrklog.groups.states import TRANSITIONS, GroupState
from pyrklog.groups.transition import Transition
from pyrklog.plane.internal_log import AppendResult

RETRY_DELAY_MIN_MS = 1_000
"""Shortest wait before the next look while no member has joined."""


def loaded(transition: Transition) -> None:
    """Starts the members' sessions."""
    group = transition.group
    for member in group.members.values():
        transition.refresh_session(member)
    limit = group.settings.members_max
    if len(group.members) > limit:
        prepare(transition, f"loaded with more members than group.max.size ({limit})")


def prepare_if_possible(transition: Transition, reason: str) -> None:
    """Starts a rebalance unless one runs."""
    if GroupState.PREPARING in TRANSITIONS[transition.group.state]:
        prepare(transition, reason)


def prepare(transition: Transition, reason: str) -> None:
    """Asks everybody to join again.

    An empty group waits ``group.initial.rebalance.delay.ms`` for more members, others until all
    members have joined, at most the longest rebalance timeout.
    """
    group = transition.group
    was_empty = group.state is GroupState.EMPTY
    if group.state is GroupState.COMPLETING:
        fail_syncs(transition, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_syncs.clear()
    transition.cancel_timer(Timer.SYNC)
    group.move_to(GroupState.PREPARING, transition.now_ms)
    group.set_rebalance_reason(reason)
    transition.notice("group_rebalancing", generation=group.generation, reason=reason)
    if was_empty:
        delay_ms = max(0, group.settings.initial_rebalance_delay_ms)
        remaining_ms = max(0, group.members.rebalance_timeout_ms - delay_ms)
        group.initial_delay = InitialDelay(delay_ms, remaining_ms)
        transition.set_timer(Timer.INITIAL_DELAY, delay_ms)
    elif group.all_joined:
        _complete(transition)
    else:
        transition.set_timer(Timer.REBALANCE, group.members.rebalance_timeout_ms)


def complete_if_all_joined(transition: Transition) -> None:
    """Ends the wait when all members have joined; an initial delay runs to its end."""
    group = transition.group
    if group.state is GroupState.PREPARING and group.initial_delay is None and group.all_joined:
        _complete(transition)


def initial_delay_over(transition: Transition) -> None:
    """New members prolong the initial delay, up to the rebalance timeout."""
    group = transition.group
    delay = group.initial_delay
    if group.state is not GroupState.PREPARING or delay is None:
        return
    if group.member_added_in_delay and delay.remaining_ms:
        group.member_added_in_delay = False
        next_ms = min(group.settings.initial_rebalance_delay_ms, delay.remaining_ms)
        group.initial_delay = InitialDelay(next_ms, max(0, delay.remaining_ms - delay.running_ms))
        transition.set_timer(Timer.INITIAL_DELAY, next_ms)
        return
    _complete(transition)


def time_over(transition: Transition) -> None:
    """Members that have not joined yet are late."""
    if transition.group.state is GroupState.PREPARING:
        _complete(transition)


def _complete(transition: Transition) -> None:
    group = transition.group
    group.initial_delay = None
    group.member_added_in_delay = False
    transition.cancel_timer(Timer.REBALANCE)
    late = [m for m in group.members.values() if m.awaiting_join is None]
    for member in late:
        if member.instance_id is None:
            transition.remove_member(member)
            transition.notice("group_member_late", member=member.member_id)
    if len(group.members) and not group.members.elect_joined_leader():
        # Only static members are left, none has joined: they will, or their sessions end.
        transition.notice("group_rebalance_without_members", "warning", members=len(group.members))
        timeout_ms = group.members.rebalance_timeout_ms
        transition.set_timer(Timer.REBALANCE, max(timeout_ms, RETRY_DELAY_MIN_MS))
        return
    group.begin_generation(transition.now_ms)
    if group.state is GroupState.EMPTY:
        transition.notice("group_empty", generation=group.generation)
        record = persistence.group_record(group, {}, group.rebalance_reason)
        transition.append([record], _empty_generation_written)
        return
    transition.notice("group_generation", generation=group.generation, members=len(group.members))
    for member in group.members.values():
        transition.answer_join(member, current_generation(transition, member))
        transition.refresh_session(member)
        member.is_new = False
        group.pending_syncs.add(member.member_id)
    transition.set_timer(Timer.SYNC, group.members.rebalance_timeout_ms)


def _empty_generation_written(transition: Transition, result: AppendResult) -> None:
    # Without that record the previous generation comes back at the next load, and its sessions end:
    # nothing is lost.
    if result.error is not ErrorCode.NONE:
        transition.notice("group_not_written", "warning", error=result.error.name)


def current_generation(transition: Transition, member: Member) -> JoinResult:
    """The answer to a member's JoinGroup; the leader gets the members."""
    group = transition.group
    leads = group.members.is_leader(member.member_id)
    return JoinResult(
        error=ErrorCode.NONE,
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.members.leader,
        members=group.members.joined_members(group.protocol_name or "") if leads else (),
    )


def fail_syncs(transition: Transition, error: ErrorCode) -> None:
    for member in transition.group.members.values():
        # The group keeps the memory for the next assignment.
        member.assignment = b""
        if transition.answer_sync(member, SyncResult(error)):
            # Its session did not run while it waited.
            transition.refresh_session(member)


def member_removed(transition: Transition, reason: str) -> None:
    if transition.group.state in (GroupState.STABLE, GroupState.COMPLETING):
        prepare(transition, reason)
    else:
        complete_if_all_joined(transition)
