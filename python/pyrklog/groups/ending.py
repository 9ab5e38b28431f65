"""How a group ends: deleted, expired, or coordinated by another broker."""

from __future__ import annotations

from pyrklog.errors import ErrorCode
from pyrklog.groups import committing, persistence
from pyrklog.groups.states import GroupState
from pyrklog.groups.turn import Turn
from pyrklog.groups.values import (
    JoinResult,
    SyncResult,
    Timer,
)
from pyrklog.plane.internal_log import AppendResult, NewRecord


def delete(turn: Turn, token: int) -> None:
    """DeleteGroups: only a group without members (KIP-229).

    Departure from Kafka, which answers before the tombstones are written: here they are safe, so
    that a deleted group stays deleted whatever happens next.
    """
    group = turn.group
    if group.state is GroupState.DEAD:
        turn.reply(token, ErrorCode.GROUP_ID_NOT_FOUND)
        return
    if group.state is not GroupState.EMPTY:
        turn.reply(token, ErrorCode.NON_EMPTY_GROUP)
        return
    tombstones = persistence.offset_tombstones(group.group_id, group.offsets.remove_all())
    tombstones += _own_tombstone(turn)
    _die(turn)
    turn.notice("group_deleted", generation=group.generation)
    if not tombstones:
        turn.reply(token, ErrorCode.NONE)
        return

    def written(later: Turn, result: AppendResult) -> None:
        later.reply(token, persistence.commit_error(result.error))

    turn.append(tombstones, written)


def end_if_unused(turn: Turn) -> None:
    """A group without members and offsets is forgotten, unless somebody is about to join it."""
    group = turn.group
    if group.state is GroupState.EMPTY and group.offsets.is_empty and not group.pending_ids:
        tombstone = _own_tombstone(turn)
        _die(turn)
        if tombstone:
            turn.notice("group_forgotten", generation=group.generation)
            turn.append(tombstone, committing.tombstones_written)


def _own_tombstone(turn: Turn) -> list[NewRecord]:
    # Generation 0 has never been written.
    group = turn.group
    return [persistence.group_tombstone(group.group_id)] if group.generation > 0 else []


def unload(turn: Turn) -> None:
    """Another broker coordinates the group now; whoever waits here shall look for it."""
    group = turn.group
    if group.state is GroupState.DEAD:
        return
    for member in group.roster.members.values():
        turn.answer_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id))
        turn.answer_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR))
    _die(turn)


def _die(turn: Turn) -> None:
    group = turn.group
    for member_id in group.roster.members:
        turn.cancel_timer(Timer.SESSION, member_id)
    for member_id in list(group.pending_ids):
        turn.remove_pending_id(member_id)
    group.pending_syncs.clear()
    group.initial_delay = None
    for timer in (Timer.INITIAL_DELAY, Timer.REBALANCE, Timer.SYNC):
        turn.cancel_timer(timer)
    group.move_to(GroupState.DEAD, turn.now_ms)
