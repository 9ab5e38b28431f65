"""OffsetCommit, OffsetFetch, OffsetDelete."""

from collections.abc import Iterable, Mapping

from pyrklog.groups.values import CommitRequest, FetchedOffset, Offset, TopicPartition
from pyrklog.handlers.context import Context, Later, now_or_later
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
"""OffsetFetch: first version that asks for several groups (KIP-709)."""
GROUP_ERROR_SINCE = 2
"""OffsetFetch: first version whose answer has an error of its own."""
INT64_MAX = 2**63 - 1

Errors = Mapping[TopicPartition, ErrorCode]


# --- commit --------------------------------------------------------------------------------------


def offset_commit_now(
    context: Context, request: OffsetCommitRequest
) -> OffsetCommitResponse | Later[OffsetCommitResponse]:
    """Keeps the offsets of partitions that exist; each has its own code."""
    errors = dict.fromkeys(
        ((topic.name, one.partition_index) for topic in request.topics for one in topic.partitions),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
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
            client_host=f"/{context.session.host}",
        )
    )
    return now_or_later(
        committing, lambda result: _commit_response(request, {**errors, **result.errors})
    )


def offset_commit_error(
    request: OffsetCommitRequest, code: ErrorCode, _message: str | None
) -> OffsetCommitResponse:
    """The same code on each partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                [
                    OffsetCommitResponsePartition(one.partition_index, code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


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
    """The offsets as they are kept. Versions 2 to 4 may give them their own time to live."""
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
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                [
                    OffsetCommitResponsePartition(
                        one.partition_index, errors[(topic.name, one.partition_index)]
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


# --- fetch ---------------------------------------------------------------------------------------


def offset_fetch_now(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Committed offsets of one group, or of several from version 8 on; of a group that is named
    again the last word counts."""
    version = context.api_version
    if version >= SEVERAL_GROUPS_SINCE:
        asked = {group.group_id: group for group in request.groups}
        groups = [_fetch_group(context, one, request.require_stable) for one in asked.values()]
        return OffsetFetchResponse(groups=groups)
    group = OffsetFetchRequestGroup(request.group_id, topics=request.topics)
    found = _fetch_group(context, group, request.require_stable)
    if found.error_code and version < GROUP_ERROR_SINCE:
        return offset_fetch_error(request, ErrorCode(found.error_code), None)
    return OffsetFetchResponse(topics=found.topics, error_code=found.error_code)


def offset_fetch_error(
    request: OffsetFetchRequest, code: ErrorCode, _message: str | None
) -> OffsetFetchResponse:
    """The code wherever a version looks for it: on each group, on the whole, and on each partition
    for version 1, which knows no other place (Kafka forgot it there: KAFKA-19439)."""
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
    error, found = context.groups.fetch_offsets(
        group.group_id, wanted, require_stable=require_stable
    )
    topics = [] if error else _fetched_topics(found)
    return OffsetFetchResponseGroup(group.group_id, topics, error)


def _fetched_topics(
    found: Mapping[TopicPartition, FetchedOffset],
) -> list[OffsetFetchResponseTopic]:
    by_name: dict[str, OffsetFetchResponseTopic] = {}
    for (topic, partition), value in found.items():
        entry = by_name.get(topic)
        if entry is None:
            entry = by_name[topic] = OffsetFetchResponseTopic(topic, [])
        entry.partitions.append(
            OffsetFetchResponsePartition(
                partition, value.offset, value.leader_epoch, value.metadata, value.error
            )
        )
    return list(by_name.values())


# --- delete --------------------------------------------------------------------------------------


async def offset_delete(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Forgets offsets of partitions that exist; each has its own code."""
    errors = dict.fromkeys(
        ((topic.name, one.partition_index) for topic in request.topics for one in topic.partitions),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    existing = _existing(context, errors)
    result = await context.groups.delete_offsets(
        request.group_id, [partition for partition in errors if partition in existing]
    )
    if result.error:
        return OffsetDeleteResponse(error_code=result.error)
    errors.update(result.errors)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                topic.name,
                [
                    OffsetDeleteResponsePartition(
                        one.partition_index, errors[(topic.name, one.partition_index)]
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def offset_delete_error(
    _request: OffsetDeleteRequest, code: ErrorCode, _message: str | None
) -> OffsetDeleteResponse:
    """The group's code; no partitions with it."""
    return OffsetDeleteResponse(error_code=code)
