"""OffsetCommit and OffsetFetch.

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

A transaction's offsets are kept in any state and need no member: older producers name none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyrklog.errors import ErrorCode
from pyrklog.groups import fencing, persistence
from pyrklog.groups.core_types import OffsetCommit
from pyrklog.groups.group import Group
from pyrklog.groups.messages import (
    CommitRequest,
    CommitResult,
    FetchedOffset,
    Offset,
    TopicPartition,
)
from pyrklog.groups.states import GroupState
from pyrklog.groups.transaction_offsets import pending_bytes
from pyrklog.groups.transition import Transition
from pyrklog.plane.internal_log import AppendResult, Producer

UNSTABLE = FetchedOffset(ErrorCode.UNSTABLE_OFFSET_COMMIT)


def commit(transition: Transition, request: CommitRequest, token: int) -> None:
    """Writes offsets; answers once they are committed."""
    group = transition.group
    error = _check(group, request)
    if error is not ErrorCode.NONE:
        transition.reply(token, CommitResult(dict.fromkeys(request.offsets, error)))
        return
    member = group.members.get(request.member_id)
    if member is not None and request.producer is None:
        transition.refresh_session(member)
    limit = group.settings.metadata_units_max
    kept = {k: v for k, v in request.offsets.items() if _utf16_units(v.metadata) <= limit}
    errors = dict.fromkeys(request.offsets, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    if kept and request.producer is not None and not _has_room(group, kept):
        errors.update(dict.fromkeys(kept, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        kept = {}
    if not kept:
        transition.reply(token, CommitResult(errors))
    else:
        _append(transition, request, kept, errors, token)


def _has_room(group: Group, offsets: Mapping[TopicPartition, Offset]) -> bool:
    """Whether the group may keep so much more until a marker comes."""
    return group.memory.has_room(pending_bytes(offsets.values()))


def commit_as_member(transition: Transition, commit: OffsetCommit) -> bool:
    """Takes a commit of a member of the current generation, the common case; False for others,
    which go to :func:`commit`."""
    group = transition.group
    if group.state is not GroupState.STABLE and group.state is not GroupState.PREPARING:
        return False
    if commit.metadata_units > group.settings.metadata_units_max:
        return False
    member_id = commit.member_id
    if fencing.check_generation(group, commit.generation, member_id, commit.instance_id):
        return False
    if not transition.append_commit(commit):
        return False
    transition.refresh_session(group.members[member_id])
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
    # As Java's String.length(), the unit of Kafka's limit.
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def _append(
    transition: Transition,
    request: CommitRequest,
    kept: Mapping[TopicPartition, Offset],
    errors: dict[TopicPartition, ErrorCode],
    token: int,
) -> None:
    group, producer = transition.group, request.producer

    def written(later: Transition, result: AppendResult) -> None:
        is_dead = group.state is GroupState.DEAD
        match result.error, producer:
            case ErrorCode.NONE, _ if is_dead:
                pass
            case ErrorCode.NONE, None:
                group.offsets.commit(ticket, kept, result.base_offset)
            case ErrorCode.NONE, Producer(id):
                group.offsets.append_transaction(id, ticket, kept, result.base_offset)
            case _, None:
                group.offsets.unstage(ticket, kept)
            case _, Producer(id):
                group.offsets.transactions.fail(id, ticket)
        errors.update(dict.fromkeys(kept, persistence.commit_error(result.error)))
        later.reply(token, CommitResult(errors))

    records = persistence.offset_records(group.group_id, kept)
    ticket = transition.append(records, written, producer, request.guard)
    if producer is None:
        group.offsets.stage(ticket, kept)
    else:
        group.offsets.transactions.stage(producer.id, ticket, kept)


def fetch(
    group: Group, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
) -> dict[TopicPartition, FetchedOffset]:
    """Committed offsets of these partitions; None: all (see :func:`fetch_page`).

    With ``require_stable`` a partition with a pending commit gets UNSTABLE_OFFSET_COMMIT, and
    clients retry (KIP-447).
    """
    offsets = group.offsets
    if partitions is None:
        return fetch_page(group, None, len(offsets), require_stable=require_stable)
    found = {}
    for partition in partitions:
        # In this order, so that a commit that finishes in between is seen.
        if require_stable and offsets.is_pending(partition):
            found[partition] = UNSTABLE
            continue
        value = offsets.get(partition)
        found[partition] = FetchedOffset(ErrorCode.NONE) if value is None else _fetched(value)
    return found


def fetch_page(
    group: Group, after: TopicPartition | None, size: int, *, require_stable: bool
) -> dict[TopicPartition, FetchedOffset]:
    """Up to ``size`` committed offsets after a partition, in order of topic and partition."""
    page = group.offsets.page(after, size)
    if require_stable:
        return fetch(group, [partition for partition, _ in page], require_stable=True)
    return {partition: _fetched(value) for partition, value in page}


def _fetched(value: Offset) -> FetchedOffset:
    return FetchedOffset(ErrorCode.NONE, value.offset, value.leader_epoch, value.metadata)
