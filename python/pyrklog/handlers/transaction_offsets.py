"""TxnOffsetCommit: offsets that count with a transaction's marker (KIP-98, KIP-447)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyrklog.groups.messages import CommitRequest, Offset, TopicPartition
from pyrklog.groups.partitioner import OFFSETS_TOPIC
from pyrklog.handlers.context import Context
from pyrklog.plane.internal_log import Producer, Verification
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.transaction_offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pyrklog.transactions.messages import ProducerEpoch

ENROLS_SINCE = 5
"""The first version that adds the group's partition to the transaction (KIP-890)."""
ABORTABLE_SINCE = 4
"""The first version whose clients know TRANSACTION_ABORTABLE."""
LOADING_SINCE = 2
"""The first version whose clients know COORDINATOR_LOAD_IN_PROGRESS."""

_RETRIED = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""The transaction's coordinator cannot tell now, or cannot be asked."""


async def txn_offset_commit(
    context: Context, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Each partition has a code."""
    missing, offsets = _offsets(context, request)
    if not offsets:
        return _response(request, missing)
    version = context.api_version
    with _guard(context, request) as begun:
        error = await _verify(context, request, begun)
        if error is ErrorCode.NONE:
            guard = None if begun is None else begun.guard
            answers = await _commit(context, request, offsets, guard)
        else:
            answers = dict.fromkeys(offsets, error)
    errors = {one: known_code(error, version) for one, error in answers.items()}
    return _response(request, {**missing, **errors})


async def _commit(
    context: Context,
    request: TxnOffsetCommitRequest,
    offsets: dict[TopicPartition, Offset],
    guard: int | None,
) -> Mapping[TopicPartition, ErrorCode]:
    committing = context.groups.commit(
        CommitRequest(
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            offsets=offsets,
            producer=Producer(request.producer_id, request.producer_epoch),
            client_host=context.client_host,
            guard=guard,
        )
    )
    result = await committing.wait()
    return result.errors


def known_code(error: ErrorCode, version: int) -> ErrorCode:
    """The same error for clients that take COORDINATOR_LOAD_IN_PROGRESS for a fatal one
    (KAFKA-7296)."""
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error


def _offsets(
    context: Context, request: TxnOffsetCommitRequest
) -> tuple[dict[TopicPartition, ErrorCode], dict[TopicPartition, Offset]]:
    """Codes of partitions that do not exist, and the offsets of the others."""
    now_ms = context.groups.now_ms()
    missing: dict[TopicPartition, ErrorCode] = {}
    offsets: dict[TopicPartition, Offset] = {}
    for topic in request.topics:
        known = context.service.topic(topic.name)
        count = 0 if known is None else known.partition_count
        for one in topic.partitions:
            key = (topic.name, one.partition_index)
            if 0 <= one.partition_index < count:
                offsets[key] = Offset(
                    one.committed_offset,
                    one.committed_leader_epoch,
                    one.committed_metadata or "",
                    now_ms,
                )
            else:
                missing[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return missing, offsets


@contextmanager
def _guard(context: Context, request: TxnOffsetCommitRequest) -> Iterator[Verification | None]:
    """Of the transaction's first append to the group's partition, until the request is over;
    ``None``: without verification."""
    groups = context.groups
    if groups.manager.epoch_of(request.group_id) is None:
        yield None  # the group coordinator refuses
        return
    plane = context.transactions.plane
    if context.api_version < ENROLS_SINCE and not plane.verifies_transactions:
        yield None
        return
    number = groups.manager.partition_for(request.group_id)
    producer = Producer(request.producer_id, request.producer_epoch)
    begun = plane.begin_verification(OFFSETS_TOPIC, number, producer)
    try:
        yield begun
    finally:
        if begun.guard:
            plane.end_verification(OFFSETS_TOPIC, number, producer, begun.guard)


async def _verify(
    context: Context, request: TxnOffsetCommitRequest, begun: Verification | None
) -> ErrorCode:
    """Asks the transaction's coordinator where a guard was opened."""
    if begun is None:
        return ErrorCode.NONE
    if begun.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ErrorCode.NOT_COORDINATOR
    if begun.error is not ErrorCode.NONE or not begun.guard:
        return _code(begun.error, context.api_version)
    [error] = await context.transactions.verifier.verify(
        request.transactional_id,
        ProducerEpoch(request.producer_id, request.producer_epoch),
        [(OFFSETS_TOPIC, context.groups.manager.partition_for(request.group_id))],
        enrols=context.api_version >= ENROLS_SINCE,
    )
    return _code(error, context.api_version)


def _code(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and version >= ENROLS_SINCE:
        return error
    if error in _RETRIED:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return error


def _response(
    request: TxnOffsetCommitRequest, errors: Mapping[TopicPartition, ErrorCode]
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [
                    TxnOffsetCommitResponsePartition(
                        one.partition_index, errors[topic.name, one.partition_index]
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def txn_offset_commit_error(
    request: TxnOffsetCommitRequest, code: ErrorCode, _message: str | None
) -> TxnOffsetCommitResponse:
    keys = (
        (topic.name, one.partition_index) for topic in request.topics for one in topic.partitions
    )
    return _response(request, dict.fromkeys(keys, code))
