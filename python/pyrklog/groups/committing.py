"""OffsetCommit, OffsetFetch, OffsetDelete, and offsets that expire.

==================  =========================  ==================================================
state               member of the generation   no member, generation -1 (an administrator, or a
                                               consumer that assigns its own partitions)
==================  =========================  ==================================================
Empty               there is none              kept
PreparingRebalance  kept: a heartbeat will     UNKNOWN_MEMBER_ID
                    tell it to join again
CompletingRebalance REBALANCE_IN_PROGRESS      UNKNOWN_MEMBER_ID
Stable              kept                       UNKNOWN_MEMBER_ID
==================  =========================  ==================================================

A transaction's offsets need no member (older producers name none), and any state will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyrklog.errors import ErrorCode
from pyrklog.groups import fencing, persistence
from pyrklog.groups.group import Group
from pyrklog.groups.offsets import Deleted
from pyrklog.groups.states import GroupState
from pyrklog.groups.subscription import CONSUMER
from pyrklog.groups.table import OffsetCommit
from pyrklog.groups.turn import Turn
from pyrklog.groups.values import (
    CommitRequest,
    CommitResult,
    DeleteOffsetsResult,
    FetchedOffset,
    Offset,
    TopicPartition,
)
from pyrklog.plane.internal_log import AppendResult

UNSTABLE = FetchedOffset(ErrorCode.UNSTABLE_OFFSET_COMMIT)


def commit(turn: Turn, request: CommitRequest, token: int) -> None:
    """Keeps offsets; the answer comes when they are safe."""
    group = turn.group
    error = _check(group, request)
    if error is not ErrorCode.NONE:
        turn.reply(token, CommitResult(dict.fromkeys(request.offsets, error)))
        return
    member = group.roster.get(request.member_id)
    if member is not None and request.producer is None:
        turn.refresh_session(member)
    limit = group.settings.metadata_units_max
    kept = {k: v for k, v in request.offsets.items() if _utf16_units(v.metadata) <= limit}
    errors = dict.fromkeys(request.offsets, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    if not kept:
        turn.reply(token, CommitResult(errors))
    elif request.producer is None:
        _append_plain(turn, kept, errors, token)
    else:
        _append_transactional(turn, request, kept, errors, token)


def commit_as_member(turn: Turn, commit: OffsetCommit) -> bool:
    """Takes a commit that a member of the current generation may make just now, which nearly all
    are; False for any other, which is for :func:`commit` to judge."""
    group = turn.group
    if group.state is not GroupState.STABLE and group.state is not GroupState.PREPARING:
        return False
    if commit.metadata_units > group.settings.metadata_units_max:
        return False
    member_id = commit.member_id
    if fencing.check_generation(group, commit.generation, member_id, commit.instance_id):
        return False
    if not turn.append_commit(commit):
        return False
    turn.refresh_session(group.roster.members[member_id])
    return True


def _check(group: Group, request: CommitRequest) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if request.generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    names_member = bool(request.member_id) or request.instance_id is not None
    if request.generation >= 0 or names_member:
        error = fencing.check_generation(
            group, request.generation, request.member_id, request.instance_id
        )
        if error is not ErrorCode.NONE or request.producer is not None:
            return error
        if group.state is GroupState.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE
    if request.producer is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE


def _utf16_units(text: str) -> int:
    # Kafka's limit counts what Java's String.length() does.
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def _append_plain(
    turn: Turn,
    kept: Mapping[TopicPartition, Offset],
    errors: dict[TopicPartition, ErrorCode],
    token: int,
) -> None:
    group = turn.group

    def written(later: Turn, result: AppendResult) -> None:
        if result.error is ErrorCode.NONE:
            if group.state is not GroupState.DEAD:
                group.offsets.commit(ticket, kept, result.base_offset)
        else:
            group.offsets.unstage(ticket, kept)
        errors.update(dict.fromkeys(kept, persistence.commit_error(result.error)))
        later.reply(token, CommitResult(errors))

    ticket = turn.append(persistence.offset_records(group.group_id, kept), written)
    group.offsets.stage(ticket, kept)


def _append_transactional(
    turn: Turn,
    request: CommitRequest,
    kept: Mapping[TopicPartition, Offset],
    errors: dict[TopicPartition, ErrorCode],
    token: int,
) -> None:
    group = turn.group
    producer = request.producer
    assert producer is not None
    producer_id = producer.id

    def written(later: Turn, result: AppendResult) -> None:
        if result.error is not ErrorCode.NONE:
            group.offsets.fail_transaction(producer_id, kept)
        elif group.state is not GroupState.DEAD:
            group.offsets.append_transaction(producer_id, kept, result.base_offset)
        errors.update(dict.fromkeys(kept, persistence.commit_error(result.error)))
        later.reply(token, CommitResult(errors))

    group.offsets.stage_transaction(producer_id, kept)
    turn.append(persistence.offset_records(group.group_id, kept), written, producer)


# --- reading -------------------------------------------------------------------------------------


def fetch(
    group: Group, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
) -> dict[TopicPartition, FetchedOffset]:
    """Committed offsets, in any state; None = all there are (see :func:`fetch_page`).

    With ``require_stable`` a partition whose commit is not over answers UNSTABLE_OFFSET_COMMIT,
    which clients try again (KIP-447).
    """
    offsets = group.offsets
    if partitions is None:
        return fetch_page(group, None, len(offsets), require_stable=require_stable)
    found = {}
    for partition in partitions:
        # In this order: a commit that finishes in between is then seen.
        if require_stable and offsets.is_pending(partition):
            found[partition] = UNSTABLE
            continue
        value = offsets.get(partition)
        found[partition] = FetchedOffset(ErrorCode.NONE) if value is None else _fetched(value)
    return found


def fetch_page(
    group: Group, after: TopicPartition | None, size: int, *, require_stable: bool
) -> dict[TopicPartition, FetchedOffset]:
    """Up to ``size`` committed offsets behind a partition, in order of topic and partition."""
    page = group.offsets.page(after, size)
    if require_stable:
        return fetch(group, [partition for partition, _ in page], require_stable=True)
    return {partition: _fetched(value) for partition, value in page}


def _fetched(value: Offset) -> FetchedOffset:
    return FetchedOffset(ErrorCode.NONE, value.offset, value.leader_epoch, value.metadata)


# --- forgetting ----------------------------------------------------------------------------------


def delete(turn: Turn, partitions: Sequence[TopicPartition], token: int) -> None:
    """OffsetDelete: an administrator forgets offsets of topics that no member reads (KIP-496).

    Departure from Kafka, which answers before the tombstones are written: here they are safe.
    """
    group = turn.group
    if group.state is GroupState.DEAD:
        turn.reply(token, DeleteOffsetsResult(ErrorCode.GROUP_ID_NOT_FOUND))
        return
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER:
        turn.reply(token, DeleteOffsetsResult(ErrorCode.NON_EMPTY_GROUP))
        return
    read = set()
    if group.state is not GroupState.EMPTY:
        read = {item for item in partitions if group.is_subscribed_to(item[0])}
    errors = dict.fromkeys(partitions, ErrorCode.NONE)
    errors.update(dict.fromkeys(read, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
    removed = group.offsets.remove(item for item in errors if item not in read)

    def written(later: Turn, result: AppendResult) -> None:
        error = persistence.commit_error(result.error)
        if error is not ErrorCode.NONE:
            errors.update({item: error for item in partitions if item not in read})
        later.reply(token, DeleteOffsetsResult(ErrorCode.NONE, errors))

    if not removed:
        turn.reply(token, DeleteOffsetsResult(ErrorCode.NONE, errors))
        return
    turn.append(persistence.offset_tombstones(group.group_id, removed), written)


def forget_deleted(turn: Turn, deleted: Deleted) -> None:
    """Topics have been deleted."""
    if turn.group.state is not GroupState.DEAD:
        write_tombstones(turn, turn.group.offsets.remove_deleted(deleted))


def expire(turn: Turn) -> None:
    """Forgets offsets that nobody has used for the retention time (KIP-211).

    It counts since the group became empty; in a stable group of consumers, for topics that they no
    longer read, since the commit; for consumers without a group, since the commit. Offsets with a
    pending commit stay, and so does everything while the group rebalances.
    """
    group = turn.group
    retention_ms = group.settings.retention_ms
    offsets = group.offsets
    expired: list[TopicPartition] = []
    if group.protocol_type is None:
        expired = offsets.remove_expired(turn.now_ms, retention_ms, None)
    elif group.state is GroupState.EMPTY:
        expired = offsets.remove_expired(turn.now_ms, retention_ms, group.state_since_ms)
    elif (
        group.state is GroupState.STABLE
        and group.protocol_type == CONSUMER
        and group.subscribed_topics is not None
    ):
        expired = offsets.remove_expired(turn.now_ms, retention_ms, None, group.subscribed_topics)
    if expired:
        turn.notice("group_offsets_expired", offsets=len(expired))
    write_tombstones(turn, expired)


def write_tombstones(turn: Turn, partitions: Sequence[TopicPartition]) -> None:
    """Nobody waits for these: what is lost of them expires once more after the next load."""
    if partitions:
        turn.append(
            persistence.offset_tombstones(turn.group.group_id, partitions), tombstones_written
        )


def tombstones_written(turn: Turn, result: AppendResult) -> None:
    """Says so where they could not be."""
    if result.error is not ErrorCode.NONE:
        turn.notice("group_tombstones_not_written", "warning", error=result.error.name)
