"""CreateTopics, DeleteTopics, CreatePartitions."""

from collections import Counter
from collections.abc import Iterable

from pyrklog.cluster.requests import NO_TOPIC_ID
from pyrklog.config.entry import ConfigEntry
from pyrklog.handlers.context import Context
from pyrklog.handlers.service import DeletedTopic, PartitionsSpec, TopicRef, TopicResult, TopicSpec
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

BY_ID_SINCE = 6
"""DeleteTopics: first version with ids (KIP-516)."""
DELETION_DISABLED_SINCE = 3
"""DeleteTopics: first version whose clients know TOPIC_DELETION_DISABLED (KIP-322)."""


async def create_topics(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """A name given twice gets one result, as in Kafka."""
    results = await context.service.create_topics(
        [_topic_spec(topic) for topic in request.topics],
        validate_only=request.validate_only,
        timeout_ms=request.timeout_ms,
    )
    by_name: dict[str, CreatableTopicResult] = {}
    for result in results:
        by_name.setdefault(result.name, _creatable_result(result))
    return CreateTopicsResponse(topics=list(by_name.values()))


def create_topics_error(
    request: CreateTopicsRequest, code: ErrorCode, message: str | None
) -> CreateTopicsResponse:
    names = _unique(topic.name for topic in request.topics)
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name, error_code=code, error_message=message) for name in names
        ]
    )


def _topic_spec(topic: CreatableTopic) -> TopicSpec:
    assigned = Counter(one.partition_index for one in topic.assignments)
    return TopicSpec(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments={one.partition_index: one.broker_ids for one in topic.assignments} or None,
        configs={config.name: config.value for config in topic.configs} or None,
        assigned_twice=next((index for index, times in assigned.items() if times > 1), None),
    )


def _creatable_result(result: TopicResult) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_code=result.error,
        error_message=result.message if result.error else None,
        num_partitions=result.partition_count,
        replication_factor=result.replication_factor,
        configs=[_created_config(entry) for entry in result.configs],
    )


def _created_config(entry: ConfigEntry) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
    )


async def delete_topics(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Deletes topics by name or, since version 6, by id.

    A topic given twice, with both name and id, or with neither is refused; others are deleted.
    Refusals come last in the answer.
    """
    states = _states(context.api_version, request)
    given = Counter((state.name, state.topic_id) for state in states)
    refs: list[TopicRef] = []
    refused: list[DeletableTopicResult] = []
    for (name, topic_id), times in given.items():
        complaint = _complaint(name, topic_id, times)
        if complaint is None:
            refs.append(TopicRef(name, topic_id))
        else:
            refused.append(
                DeletableTopicResult(name, topic_id, ErrorCode.INVALID_REQUEST, complaint)
            )
    deleted = await context.service.delete_topics(refs, timeout_ms=request.timeout_ms)
    done = [_deleted_result(one, context.api_version) for one in deleted]
    return DeleteTopicsResponse(responses=done + refused)


def _complaint(name: str | None, topic_id: bytes, times: int) -> str | None:
    if name is not None and topic_id != NO_TOPIC_ID:
        return "Give a topic's name or its id, not both."
    if name is None and topic_id == NO_TOPIC_ID:
        return "Give a topic's name or its id."
    return "The topic is given twice." if times > 1 else None


def delete_topics_error(
    request: DeleteTopicsRequest, code: ErrorCode, message: str | None
) -> DeleteTopicsResponse:
    states = request.topics or [DeleteTopicState(name) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                state.name, topic_id=state.topic_id, error_code=code, error_message=message
            )
            for state in states
        ]
    )


def _states(version: int, request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    if version >= BY_ID_SINCE:
        return request.topics
    return [DeleteTopicState(name) for name in request.topic_names]


def _deleted_result(deleted: DeletedTopic, version: int) -> DeletableTopicResult:
    code = deleted.error
    if code is ErrorCode.TOPIC_DELETION_DISABLED and version < DELETION_DISABLED_SINCE:
        code = ErrorCode.INVALID_REQUEST
    return DeletableTopicResult(
        name=deleted.name,
        topic_id=deleted.topic_id,
        error_code=code,
        error_message=(deleted.message or code.message) if code else None,
    )


async def create_partitions(
    context: Context, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """A name given twice gets one result, as in Kafka."""
    results = await context.service.create_partitions(
        [_partitions_spec(topic) for topic in request.topics],
        validate_only=request.validate_only,
        timeout_ms=request.timeout_ms,
    )
    by_name: dict[str, CreatePartitionsTopicResult] = {}
    for result in results:
        message = result.message if result.error else None
        by_name.setdefault(
            result.name, CreatePartitionsTopicResult(result.name, result.error, message)
        )
    return CreatePartitionsResponse(results=list(by_name.values()))


def create_partitions_error(
    request: CreatePartitionsRequest, code: ErrorCode, message: str | None
) -> CreatePartitionsResponse:
    names = _unique(topic.name for topic in request.topics)
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name, code, message) for name in names]
    )


def _partitions_spec(topic: CreatePartitionsTopic) -> PartitionsSpec:
    assignments = topic.assignments
    return PartitionsSpec(
        name=topic.name,
        total=topic.count,
        assignments=None if assignments is None else [one.broker_ids for one in assignments],
    )


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
