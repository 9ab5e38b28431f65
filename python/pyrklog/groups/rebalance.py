"""From one generation to the next: who is waited for, for how long, and what ends the wait."""

from __future__ import annotations

from pyrklog.errors import ErrorCode
from pyrklog.groups import persistence
from pyrklog.groups.group import InitialDelay
from pyrklog.groups.member import Member
from pyrklog.groups.states import TRANSITIONS, GroupState
from pyrklog.groups.turn import Turn
from pyrklog.groups.values import (
    JoinResult,
    SyncResult,
    Timer,
)
from pyrklog.plane.internal_log import AppendResult

RETRY_DELAY_MIN_MS = 1_000
"""Nobody has joined: the least time until the next look, whatever the members' time-outs say."""


def prepare_if_possible(turn: Turn, reason: str) -> None:
    """A rebalance, unless one is being prepared already."""
    if GroupState.PREPARING in TRANSITIONS[turn.group.state]:
        prepare(turn, reason)


def prepare(turn: Turn, reason: str) -> None:
    """Asks everybody to join again.

    The first members of an empty group wait for more (``group.initial.rebalance.delay.ms``); later
    all known members are waited for, at most the longest of their rebalance time-outs.
    """
    group = turn.group
    was_empty = group.state is GroupState.EMPTY
    if group.state is GroupState.COMPLETING:
        fail_syncs(turn, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_syncs.clear()
    turn.cancel_timer(Timer.SYNC)
    group.move_to(GroupState.PREPARING, turn.now_ms)
    group.history.begin(turn.now_ms, reason, len(group.roster))
    turn.notice("group_rebalancing", generation=group.generation, reason=reason)
    if was_empty:
        delay_ms = max(0, group.settings.initial_rebalance_delay_ms)
        remaining_ms = max(0, group.roster.rebalance_timeout_ms - delay_ms)
        group.initial_delay = InitialDelay(delay_ms, remaining_ms)
        turn.set_timer(Timer.INITIAL_DELAY, delay_ms)
    elif group.all_joined:
        _complete(turn)
    else:
        turn.set_timer(Timer.REBALANCE, group.roster.rebalance_timeout_ms)


def complete_if_all_joined(turn: Turn) -> None:
    """Ends the wait when nobody is missing; the initial delay runs to its end."""
    group = turn.group
    if group.state is GroupState.PREPARING and group.initial_delay is None and group.all_joined:
        _complete(turn)


def initial_delay_over(turn: Turn) -> None:
    """New members prolong the first wait of a new group, up to the rebalance time-out."""
    group = turn.group
    delay = group.initial_delay
    if group.state is not GroupState.PREPARING or delay is None:
        return
    if group.member_added_in_delay and delay.remaining_ms:
        group.member_added_in_delay = False
        next_ms = min(group.settings.initial_rebalance_delay_ms, delay.remaining_ms)
        group.initial_delay = InitialDelay(next_ms, max(0, delay.remaining_ms - delay.running_ms))
        turn.set_timer(Timer.INITIAL_DELAY, next_ms)
        return
    _complete(turn)


def time_over(turn: Turn) -> None:
    """Whoever has not joined yet is late."""
    if turn.group.state is GroupState.PREPARING:
        _complete(turn)


def _complete(turn: Turn) -> None:
    group = turn.group
    group.initial_delay = None
    group.member_added_in_delay = False
    turn.cancel_timer(Timer.REBALANCE)
    late = [m for m in group.roster.members.values() if m.awaiting_join is None]
    for member in late:
        if member.instance_id is None:
            turn.remove_member(member)
            turn.notice("group_member_late", member=member.member_id)
    if len(group.roster) and not group.roster.elect_joined_leader():
        # Only static members are left, and none has joined: their sessions end, or they join.
        turn.notice("group_rebalance_without_members", "warning", members=len(group.roster))
        timeout_ms = group.roster.rebalance_timeout_ms
        turn.set_timer(Timer.REBALANCE, max(timeout_ms, RETRY_DELAY_MIN_MS))
        return
    group.begin_generation(turn.now_ms)
    group.history.end(turn.now_ms, group.generation, len(group.roster))
    if group.state is GroupState.EMPTY:
        turn.notice("group_empty", generation=group.generation)
        reason = group.history.reason_of(group.generation)
        turn.append([persistence.group_record(group, {}, reason)], _empty_generation_written)
        return
    turn.notice("group_generation", generation=group.generation, members=len(group.roster))
    for member in group.roster.members.values():
        turn.answer_join(member, current_generation(turn, member))
        turn.refresh_session(member)
        member.is_new = False
        group.pending_syncs.add(member.member_id)
    turn.set_timer(Timer.SYNC, group.roster.rebalance_timeout_ms)


def _empty_generation_written(turn: Turn, result: AppendResult) -> None:
    # Without that record, the generation before it comes back at the next load, and its members'
    # sessions end unanswered: nothing is lost.
    if result.error is not ErrorCode.NONE:
        turn.notice("group_not_written", "warning", error=result.error.name)


def current_generation(turn: Turn, member: Member) -> JoinResult:
    """The generation as this member is told of it; the leader gets the list of members."""
    group = turn.group
    leads = group.roster.is_leader(member.member_id)
    return JoinResult(
        error=ErrorCode.NONE,
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.roster.leader,
        members=group.roster.joined_members(group.protocol_name or "") if leads else (),
    )


def fail_syncs(turn: Turn, error: ErrorCode) -> None:
    """The generation gets no assignment."""
    for member in turn.group.roster.members.values():
        # Its memory stays the group's, for the assignment that comes next.
        member.assignment = b""
        if turn.answer_sync(member, SyncResult(error)):
            # While it waited its session did not count.
            turn.refresh_session(member)


def member_removed(turn: Turn, reason: str) -> None:
    """What a member's absence leads to."""
    if turn.group.state in (GroupState.STABLE, GroupState.COMPLETING):
        prepare(turn, reason)
    else:
        complete_if_all_joined(turn)
