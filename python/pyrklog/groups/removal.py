"""How a group ends: deleted, expired, or coordinated by another broker."""

from __future__ import annotations

from pyrklog.errors import ErrorCode
from pyrklog.groups import committing, persistence
from pyrklog.groups.effects import Timer
from pyrklog.groups.messages import JoinResult, SyncResult
from pyrklog.groups.states import GroupState
from pyrklog.groups.transition import Transition
from pyrklog.internal_log import (
    AppendResult,
    NewRecord,
)


def delete(transition: Transition, token: int) -> None:
    """DeleteGroups: only a group without members (KIP-229).

    Departure from Kafka, which answers before the tombstones are written: here they are safe, so
    that a deleted group stays deleted whatever happens next.
    """
    group = transition.group
    if group.state is GroupState.DEAD:
        transition.reply(token, ErrorCode.GROUP_ID_NOT_FOUND)
        return
    if group.state is not GroupState.EMPTY:
        transition.reply(token, ErrorCode.NON_EMPTY_GROUP)
        return
    tombstones = persistence.offset_tombstones(group.group_id, group.offsets.remove_all())
    tombstones += _own_tombstone(transition)
    _die(transition)
    transition.notice("group_deleted", generation=group.generation)
    if not tombstones:
        transition.reply(token, ErrorCode.NONE)
        return

    def written(later: Transition, result: AppendResult) -> None:
        later.reply(token, persistence.commit_error(result.error))

    transition.append(tombstones, written)


def end_if_unused(transition: Transition) -> None:
    """A group without members and offsets is forgotten, unless somebody is about to join it."""
    group = transition.group
    if group.state is GroupState.EMPTY and group.offsets.is_empty and not group.pending_ids:
        tombstone = _own_tombstone(transition)
        _die(transition)
        if tombstone:
            transition.notice("group_forgotten", generation=group.generation)
            transition.append(tombstone, committing.tombstones_written)


def _own_tombstone(transition: Transition) -> list[NewRecord]:
    # Generation 0 has never been written.
    group = transition.group
    return [persistence.group_tombstone(group.group_id)] if group.generation > 0 else []


def unload(transition: Transition) -> None:
    """Another broker coordinates the group now; whoever waits here shall look for it."""
    group = transition.group
    if group.state is GroupState.DEAD:
        return
    for member in group.members.values():
        transition.answer_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id))
        transition.answer_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR))
    _die(transition)


def _die(transition: Transition) -> None:
    group = transition.group
    for member_id in group.members:
        transition.cancel_timer(Timer.SESSION, member_id)
    for member_id in list(group.pending_ids):
        transition.remove_pending_id(member_id)
    group.pending_syncs.clear()
    group.initial_delay = None
    for timer in (Timer.INITIAL_DELAY, Timer.REBALANCE, Timer.SYNC):
        transition.cancel_timer(timer)
    group.move_to(GroupState.DEAD, transition.now_ms)
