"""OffsetCommit, OffsetFetch, OffsetDelete."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import TypeVar

import trio

from pyrklog.groups.messages import CommitRequest, FetchedOffset, Offset, TopicPartition
from pyrklog.handlers.context import Context, Later, WhenDone, now_or_later
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.offsets import (
    NO_OFFSET,
    NO_RETENTION,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

SEVERAL_GROUPS_SINCE = 8
"""OffsetFetch: first version with several groups (KIP-709)."""
GROUP_ERROR_SINCE = 2
"""OffsetFetch: first version with a top-level error."""
INT64_MAX = 2**63 - 1
FETCHED_AT_ONCE_MAX = 1_000
"""Offsets fetched and encoded before a checkpoint: some milliseconds."""
LARGE_WAITING_MAX = 2
"""Larger requests waiting for their turn; others are told to retry."""

Errors = Mapping[TopicPartition, ErrorCode]
Answer = TypeVar("Answer")


def offset_commit_now(
    context: Context, request: OffsetCommitRequest
) -> OffsetCommitResponse | WhenDone[OffsetCommitResponse]:
    """Keeps offsets of existing partitions; each has its own code."""
    errors = _each(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    existing = _existing(context, errors)
    offsets = _stamped(context, request, existing)
    if not offsets:
        return _commit_response(request, errors)
    committing = context.groups.commit(
        CommitRequest(
            group_id=request.group_id,
            generation=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            offsets=offsets,
            client_host=context.client_host,
        )
    )
    return now_or_later(
        committing, lambda result: _commit_response(request, {**errors, **result.errors})
    )


def offset_commit_error(
    request: OffsetCommitRequest, code: ErrorCode, _message: str | None
) -> OffsetCommitResponse:
    return _commit_response(request, _each(request, code))


def _each(
    request: OffsetCommitRequest | OffsetDeleteRequest, code: ErrorCode
) -> dict[TopicPartition, ErrorCode]:
    keys = (
        (topic.name, one.partition_index) for topic in request.topics for one in topic.partitions
    )
    return dict.fromkeys(keys, code)


def _existing(context: Context, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
    counts: dict[str, int] = {}
    found = set()
    for topic, partition in partitions:
        if topic not in counts:
            known = context.service.topic(topic)
            counts[topic] = known.partition_count if known is not None else 0
        if 0 <= partition < counts[topic]:
            found.add((topic, partition))
    return found


def _stamped(
    context: Context, request: OffsetCommitRequest, existing: set[TopicPartition]
) -> dict[TopicPartition, Offset]:
    now_ms = context.groups.now_ms()
    expires = request.retention_time_ms != NO_RETENTION
    expire_ms = min(now_ms + request.retention_time_ms, INT64_MAX) if expires else -1
    return {
        (topic.name, one.partition_index): Offset(
            one.committed_offset,
            one.committed_leader_epoch,
            one.committed_metadata or "",
            now_ms,
            expire_ms,
        )
        for topic in request.topics
        for one in topic.partitions
        if (topic.name, one.partition_index) in existing
    }


def _commit_response(request: OffsetCommitRequest, errors: Errors) -> OffsetCommitResponse:
    topics = _by_topic(request, errors, OffsetCommitResponsePartition)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(*topic) for topic in topics])


def _by_topic(
    request: OffsetCommitRequest | OffsetDeleteRequest,
    errors: Errors,
    answer: Callable[[int, ErrorCode], Answer],
) -> list[tuple[str, list[Answer]]]:
    """Each partition's code, in the order of the request."""
    return [
        (
            topic.name,
            [
                answer(one.partition_index, errors[topic.name, one.partition_index])
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]


def offset_fetch_now(
    context: Context, request: OffsetFetchRequest
) -> OffsetFetchResponse | Later[OffsetFetchResponse]:
    """Committed offsets of one group, of several since version 8; the last entry of a group counts.

    A request for all offsets of groups may mean very many. These are gathered in steps, for one
    request at a time, and limited to a request's most elements: a group beyond that gets
    UNKNOWN_SERVER_ERROR. Many named offsets are gathered in steps, too.
    """
    asked = {group.group_id: group for group in _asked_groups(context, request)}
    if sum(_count(context, group) for group in asked.values()) <= FETCHED_AT_ONCE_MAX:
        stable = request.require_stable
        groups = [_fetch_group(context, one, stable) for one in asked.values()]
        return _fetch_response(context, request, groups)
    gather = partial(_gather, context, request, list(asked.values()))
    if all(group.topics is not None for group in asked.values()):
        return Later(gather, waits=False, is_large=True)
    if context.large_answers.statistics().tasks_waiting >= LARGE_WAITING_MAX:
        return offset_fetch_error(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)

    async def gather_in_turn() -> OffsetFetchResponse:
        async with context.large_answers:
            return await gather()

    return Later(gather_in_turn, waits=False, is_large=True)


async def _gather(
    context: Context, request: OffsetFetchRequest, asked: list[OffsetFetchRequestGroup]
) -> OffsetFetchResponse:
    groups, left = [], context.elements_max
    for group in asked:
        found = await _fetch_in_steps(context, group, request.require_stable, left)
        left -= sum(len(topic.partitions) for topic in found.topics)
        groups.append(found)
    return _fetch_response(context, request, groups)


def _asked_groups(context: Context, request: OffsetFetchRequest) -> list[OffsetFetchRequestGroup]:
    if context.api_version >= SEVERAL_GROUPS_SINCE:
        return request.groups
    return [OffsetFetchRequestGroup(request.group_id, topics=request.topics)]


def _fetch_response(
    context: Context, request: OffsetFetchRequest, groups: list[OffsetFetchResponseGroup]
) -> OffsetFetchResponse:
    version = context.api_version
    if version >= SEVERAL_GROUPS_SINCE:
        return OffsetFetchResponse(groups=groups)
    [found] = groups
    if found.error_code and version < GROUP_ERROR_SINCE:
        return offset_fetch_error(request, ErrorCode(found.error_code), None)
    return OffsetFetchResponse(topics=found.topics, error_code=found.error_code)


def _count(context: Context, group: OffsetFetchRequestGroup) -> int:
    if group.topics is None:
        return context.groups.manager.committed_count(group.group_id)
    return sum(len(topic.partition_indexes) for topic in group.topics)


def offset_fetch_error(
    request: OffsetFetchRequest, code: ErrorCode, _message: str | None
) -> OffsetFetchResponse:
    """The code is where each version looks: on each group, on the whole, and on each partition for
    version 1, which has no other place (Kafka omits it there: KAFKA-19439). Versions 2 to 7 have it
    in both places. Kafka leaves their partitions out; Java's clients read the top-level code
    first."""
    return OffsetFetchResponse(
        topics=[_failed_topic(topic, code) for topic in request.topics or []],
        error_code=code,
        groups=[OffsetFetchResponseGroup(group.group_id, [], code) for group in request.groups],
    )


def _failed_topic(topic: OffsetFetchRequestTopic, code: ErrorCode) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        topic.name,
        [
            OffsetFetchResponsePartition(index, NO_OFFSET, error_code=code)
            for index in topic.partition_indexes
        ],
    )


def _fetch_group(
    context: Context, group: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    wanted = None
    if group.topics is not None:
        wanted = [(topic.name, i) for topic in group.topics for i in topic.partition_indexes]
    error, found = context.groups.manager.fetch_offsets(
        group.group_id, wanted, require_stable=require_stable
    )
    topics = [] if error else _fetched_topics(found)
    return OffsetFetchResponseGroup(group.group_id, topics, error)


async def _fetch_in_steps(
    context: Context, group: OffsetFetchRequestGroup, require_stable: bool, left: int
) -> OffsetFetchResponseGroup:
    """Other tasks run in between: each offset is as of its step."""
    await trio.lowlevel.checkpoint()
    count = _count(context, group)
    if count == 0:
        return _fetch_group(context, group, require_stable)
    if group.topics is not None:
        return await _fetch_named(context, group, require_stable)
    if count > left:
        return OffsetFetchResponseGroup(group.group_id, [], ErrorCode.UNKNOWN_SERVER_ERROR)
    by_name: dict[str, OffsetFetchResponseTopic] = {}
    after = None
    while True:
        page = context.groups.manager.fetch_page(
            group.group_id, after, FETCHED_AT_ONCE_MAX, require_stable=require_stable
        )
        if page is None:
            return _fetch_group(context, group, require_stable)
        _add_fetched(by_name, page)
        if len(page) < FETCHED_AT_ONCE_MAX:
            return OffsetFetchResponseGroup(group.group_id, list(by_name.values()))
        after = next(reversed(page))
        await trio.lowlevel.checkpoint()


async def _fetch_named(
    context: Context, group: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    wanted: dict[str, dict[int, None]] = {}
    for topic in group.topics or ():
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    places = ((name, index) for name, indexes in wanted.items() for index in indexes)
    by_name: dict[str, OffsetFetchResponseTopic] = {}
    while page := list(islice(places, FETCHED_AT_ONCE_MAX)):
        error, found = context.groups.manager.fetch_offsets(
            group.group_id, page, require_stable=require_stable
        )
        if error:
            return OffsetFetchResponseGroup(group.group_id, [], error)
        _add_fetched(by_name, found)
        await trio.lowlevel.checkpoint()
    return OffsetFetchResponseGroup(group.group_id, list(by_name.values()))


def _fetched_topics(
    found: Mapping[TopicPartition, FetchedOffset],
) -> list[OffsetFetchResponseTopic]:
    by_name: dict[str, OffsetFetchResponseTopic] = {}
    _add_fetched(by_name, found)
    return list(by_name.values())


def _add_fetched(
    by_name: dict[str, OffsetFetchResponseTopic], found: Mapping[TopicPartition, FetchedOffset]
) -> None:
    for (topic, partition), value in found.items():
        entry = by_name.get(topic)
        if entry is None:
            entry = by_name[topic] = OffsetFetchResponseTopic(topic, [])
        entry.partitions.append(
            OffsetFetchResponsePartition(
                partition, value.offset, value.leader_epoch, value.metadata, value.error
            )
        )


async def offset_delete(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Deletes offsets of existing partitions; each has its own code."""
    errors = _each(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    existing = _existing(context, errors)
    result = await context.groups.delete_offsets(
        request.group_id, [partition for partition in errors if partition in existing]
    )
    if result.error:
        return OffsetDeleteResponse(error_code=result.error)
    errors.update(result.errors)
    topics = _by_topic(request, errors, OffsetDeleteResponsePartition)
    return OffsetDeleteResponse(topics=[OffsetDeleteResponseTopic(*topic) for topic in topics])
