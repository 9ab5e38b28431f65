"""Deletes or expires groups and offsets, or hands groups to another broker."""

from __future__ import annotations

from collections.abc import Sequence

from pyrklog.errors import ErrorCode
from pyrklog.groups import persistence
from pyrklog.groups.effects import Timer
from pyrklog.groups.messages import DeleteOffsetsResult, JoinResult, SyncResult, TopicPartition
from pyrklog.groups.offsets import Deleted
from pyrklog.groups.states import GroupState
from pyrklog.groups.subscription import CONSUMER
from pyrklog.groups.transition import Transition
from pyrklog.plane.internal_log import AppendResult, NewRecord


def delete(transition: Transition, token: int) -> None:
    """DeleteGroups: only a group without members (KIP-229).

    Departure from Kafka: the answer waits for the tombstones, so that a deleted group stays
    deleted.
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


def unload(transition: Transition) -> None:
    """Waiting clients look for the new coordinator."""
    group = transition.group
    if group.state is GroupState.DEAD:
        return
    for member in group.members.values():
        transition.answer_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id))
        transition.answer_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR))
    _die(transition)


def _end_if_unused(transition: Transition) -> None:
    """Removes a group without members, offsets and pending ids."""
    group = transition.group
    if group.is_unused:
        tombstone = _own_tombstone(transition)
        _die(transition)
        if tombstone:
            transition.notice("group_forgotten", generation=group.generation)
            transition.append(tombstone, _tombstones_written)


def _own_tombstone(transition: Transition) -> list[NewRecord]:
    # Generation 0 has never been written.
    group = transition.group
    return [persistence.group_tombstone(group.group_id)] if group.generation > 0 else []


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


def delete_offsets(
    transition: Transition, partitions: Sequence[TopicPartition], token: int
) -> None:
    """OffsetDelete of topics that no member reads (KIP-496). A group without anything left ends.

    Departure from Kafka: the answer waits for the tombstones.
    """
    _delete_offsets(transition, partitions, token)
    _end_if_unused(transition)


def _delete_offsets(
    transition: Transition, partitions: Sequence[TopicPartition], token: int
) -> None:
    group = transition.group
    if group.state is GroupState.DEAD:
        transition.reply(token, DeleteOffsetsResult(ErrorCode.GROUP_ID_NOT_FOUND))
        return
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER:
        transition.reply(token, DeleteOffsetsResult(ErrorCode.NON_EMPTY_GROUP))
        return
    read = set()
    if group.state is not GroupState.EMPTY:
        read = {item for item in partitions if group.is_subscribed_to(item[0])}
    errors = dict.fromkeys(partitions, ErrorCode.NONE)
    errors.update(dict.fromkeys(read, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
    removed = group.offsets.remove(item for item in errors if item not in read)

    def written(later: Transition, result: AppendResult) -> None:
        error = persistence.commit_error(result.error)
        if error is not ErrorCode.NONE:
            errors.update({item: error for item in partitions if item not in read})
        later.reply(token, DeleteOffsetsResult(ErrorCode.NONE, errors))

    if not removed:
        transition.reply(token, DeleteOffsetsResult(ErrorCode.NONE, errors))
        return
    transition.append(persistence.offset_tombstones(group.group_id, removed), written)


def forget_deleted(transition: Transition, deleted: Deleted) -> None:
    """Removes the offsets of deleted partitions, then the group if unused."""
    if transition.group.state is not GroupState.DEAD:
        _write_tombstones(transition, transition.group.offsets.remove_deleted(deleted))
    _end_if_unused(transition)


def expire(transition: Transition) -> None:
    """Removes offsets after their retention (KIP-211), then the group if unused.

    The retention counts since the group became empty; since the commit for consumers without a
    group, and in a stable group of consumers for topics that they no longer read. Pending offsets
    stay, and a rebalancing group keeps everything.
    """
    group = transition.group
    retention_ms = group.settings.retention_ms
    offsets = group.offsets
    expired: list[TopicPartition] = []
    if group.protocol_type is None:
        expired = offsets.remove_expired(transition.now_ms, retention_ms, None)
    elif group.state is GroupState.EMPTY:
        expired = offsets.remove_expired(transition.now_ms, retention_ms, group.state_since_ms)
    elif (
        group.state is GroupState.STABLE
        and group.protocol_type == CONSUMER
        and group.subscribed_topics is not None
    ):
        expired = offsets.remove_expired(
            transition.now_ms, retention_ms, None, group.subscribed_topics
        )
    if expired:
        transition.notice("group_offsets_expired", offsets=len(expired))
    _write_tombstones(transition, expired)
    _end_if_unused(transition)


def _write_tombstones(transition: Transition, partitions: Sequence[TopicPartition]) -> None:
    """Without a wait: an offset whose tombstone is lost expires again after a load."""
    if partitions:
        tombstones = persistence.offset_tombstones(transition.group.group_id, partitions)
        transition.append(tombstones, _tombstones_written)


def _tombstones_written(transition: Transition, result: AppendResult) -> None:
    if result.error is not ErrorCode.NONE:
        transition.notice("group_tombstones_not_written", "warning", error=result.error.name)
