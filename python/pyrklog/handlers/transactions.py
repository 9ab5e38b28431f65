"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from pyrklog.base.pending import Pending, then
from pyrklog.cluster.image import INTERNAL_TOPICS
from pyrklog.groups.partitioner import OFFSETS_TOPIC
from pyrklog.handlers.context import Context, Deferred, Later, now_or_later, step
from pyrklog.plane.internal_log import Marker, MarkerResult
from pyrklog.protocol.errors import ApiError, ErrorCode
from pyrklog.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsPartitionResult,
    AddPartitionsResult,
    AddPartitionsTopic,
    AddPartitionsTopicResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsTransaction,
    EndTxnRequest,
    EndTxnResponse,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pyrklog.transactions.messages import (
    VERSION_2,
    AddRequest,
    EndRequest,
    ProducerEpoch,
    ProducerResult,
    TopicPartition,
)

SEVERAL_SINCE = 4
"""AddPartitionsToTxn: first version with several transactions, of brokers."""
ABORTABLE_SINCE = 5
"""AddPartitionsToTxn: first version whose clients know TRANSACTION_ABORTABLE."""
FENCED_SINCE = 2
"""First version of the requests here whose clients know PRODUCER_FENCED (KIP-588)."""
VERSION_2_SINCE = 5
"""EndTxn: first version of transaction version 2 (KIP-890)."""

Errors = Mapping[TopicPartition, ErrorCode]


def known_code(error: ErrorCode, version: int, fenced_since: int = FENCED_SINCE) -> ErrorCode:
    """The same error for clients that do not know PRODUCER_FENCED."""
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def add_partitions_to_txn_now(
    context: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Deferred[AddPartitionsToTxnResponse]:
    """Each partition has a code. Of a transaction with a partition that does not exist, or that a
    client may not write to, none is added; the others get OPERATION_NOT_ATTEMPTED."""
    if context.api_version < SEVERAL_SINCE:
        return _add_one(context, _only_transaction(request))
    if len(request.transactions) == 1:
        return _add_one(context, request.transactions[0])
    return Later(partial(_add_several, context, request), waits=False, is_limited=True)


def _add_one(
    context: Context, transaction: AddPartitionsTransaction
) -> AddPartitionsToTxnResponse | Deferred[AddPartitionsToTxnResponse]:
    coordinator = context.transactions.coordinator
    held = coordinator.hold(transaction.transactional_id)
    adding = (
        _add(context, transaction)
        if held is None
        else then(held, lambda _: _add(context, transaction))
    )
    added = partial(_one_response, context.api_version, transaction)
    return (
        now_or_later(adding, added, is_limited=True)
        if isinstance(adding, Pending)
        else added(adding)
    )


def _one_response(
    version: int, transaction: AddPartitionsTransaction, errors: Errors
) -> AddPartitionsToTxnResponse:
    topics = _topic_results(transaction.topics, errors)
    if version < SEVERAL_SINCE:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
    result = AddPartitionsResult(transaction.transactional_id, topics)
    return AddPartitionsToTxnResponse(results_by_transaction=[result])


async def _add_several(
    context: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """An id that changes gets its error at once: it would hold up the others."""
    results = []
    for count, transaction in enumerate(request.transactions, 1):
        adding = _add(context, transaction)
        errors = await adding if isinstance(adding, Pending) else adding
        topics = _topic_results(transaction.topics, errors)
        results.append(AddPartitionsResult(transaction.transactional_id, topics))
        await step(count)
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _only_transaction(request: AddPartitionsToTxnRequest) -> AddPartitionsTransaction:
    return AddPartitionsTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _add(context: Context, transaction: AddPartitionsTransaction) -> Errors | Pending[Errors]:
    """The code of each partition."""
    partitions = _partitions(transaction.topics)
    producer = ProducerEpoch(transaction.producer_id, transaction.producer_epoch)
    name, version = transaction.transactional_id, context.api_version
    refused = _refused(context, partitions)
    if refused:
        return {**dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED), **refused}
    if transaction.verify_only:
        found = context.transactions.coordinator.verify(name, producer, partitions)
        return {one: _verified_code(code, version) for one, code in found.items()}
    client_version = VERSION_2 if version >= SEVERAL_SINCE else 0
    try:
        adding = context.transactions.coordinator.add_partitions(
            AddRequest(name, producer, frozenset(partitions), client_version)
        )
    except ApiError as failure:
        return dict.fromkeys(partitions, known_code(failure.code, version))
    return then(adding, lambda error: dict.fromkeys(partitions, known_code(error, version)))


def _verified_code(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return error


def _partitions(topics: Iterable[AddPartitionsTopic]) -> list[TopicPartition]:
    """Each once, in order."""
    return list(dict.fromkeys((topic.name, i) for topic in topics for i in topic.partitions))


def _refused(context: Context, partitions: Iterable[TopicPartition]) -> Errors:
    """Partitions that do not exist, and those of internal topics, to which clients write only by
    requests of their own (``KafkaApis.handleAddPartitionsToTxnRequest``)."""
    is_client = context.api_version < SEVERAL_SINCE
    counts: dict[str, int] = {}
    refused = {}
    for topic, index in partitions:
        if is_client and topic in INTERNAL_TOPICS:
            refused[topic, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            continue
        if topic not in counts:
            known = context.service.topic(topic)
            counts[topic] = 0 if known is None else known.partition_count
        if not 0 <= index < counts[topic]:
            refused[topic, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _topic_results(
    topics: Iterable[AddPartitionsTopic], errors: Errors
) -> list[AddPartitionsTopicResult]:
    return [
        AddPartitionsTopicResult(
            topic.name,
            [AddPartitionsPartitionResult(i, errors[topic.name, i]) for i in topic.partitions],
        )
        for topic in topics
    ]


def add_partitions_to_txn_error(
    request: AddPartitionsToTxnRequest, code: ErrorCode, _message: str | None
) -> AddPartitionsToTxnResponse:
    """On the whole since version 4, on each partition before."""
    topics = request.v3_and_below_topics
    errors = dict.fromkeys(_partitions(topics), code)
    return AddPartitionsToTxnResponse(
        error_code=code, results_by_topic_v3_and_below=_topic_results(topics, errors)
    )


async def add_offsets_to_txn(
    context: Context, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Adds the group's partition of ``__consumer_offsets``, which is created where it is missing:
    the client may look for the group's coordinator only afterwards."""
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    partition = await context.groups.find_partition(request.group_id)
    if partition is None:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    coordinator = context.transactions.coordinator
    await coordinator.wait_until_settled(request.transactional_id)
    adding = coordinator.add_partitions(
        AddRequest(
            request.transactional_id,
            ProducerEpoch(request.producer_id, request.producer_epoch),
            frozenset({(OFFSETS_TOPIC, partition)}),
        )
    )
    error = await adding.wait()
    return AddOffsetsToTxnResponse(error_code=known_code(error, context.api_version))


def end_txn_now(
    context: Context, request: EndTxnRequest
) -> EndTxnResponse | Deferred[EndTxnResponse]:
    """The decision is replicated when this answers; the markers follow."""
    version = context.api_version
    asked = EndRequest(
        request.transactional_id,
        ProducerEpoch(request.producer_id, request.producer_epoch),
        request.committed,
        VERSION_2 if version >= VERSION_2_SINCE else 0,
    )
    coordinator = context.transactions.coordinator
    ending = coordinator.end_now(asked)
    if ending is not None:
        return now_or_later(ending, partial(_ended, version), is_limited=True)

    async def end() -> EndTxnResponse:
        return _ended(version, await coordinator.end(asked))

    return Later(end, waits=True, is_limited=True)


def _ended(version: int, result: ProducerResult) -> EndTxnResponse:
    return EndTxnResponse(
        error_code=known_code(result.error, version),
        producer_id=result.producer_id,
        producer_epoch=result.epoch,
    )


async def write_txn_markers(
    context: Context, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Ends transactions in partitions that this broker leads; answers once all are replicated. A
    marker that is named again is written once, one without a producer not at all
    (INVALID_REQUEST)."""
    named = [marker for one in request.markers for marker in _markers(one)]
    by_marker = dict.fromkeys(named, MarkerResult(ErrorCode.INVALID_REQUEST))
    markers = [one for one in by_marker if one.producer_id >= 0 and one.producer_epoch >= 0]
    results = await context.transactions.writer.write(markers) if markers else ()
    by_marker.update(zip(markers, results, strict=True))
    left = iter(by_marker[marker] for marker in named)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(one.producer_id, _marker_results(one, left))
            for one in request.markers
        ]
    )


def _markers(one: WritableTxnMarker) -> Sequence[Marker]:
    return [
        Marker(
            topic.name,
            index,
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.transaction_result,
            one.transaction_version,
        )
        for topic in one.topics
        for index in topic.partition_indexes
    ]


def _marker_results(
    one: WritableTxnMarker, results: Iterable[MarkerResult]
) -> list[WritableTxnMarkerTopicResult]:
    """Takes one result for each partition, in order."""
    left = iter(results)
    return [
        WritableTxnMarkerTopicResult(
            topic.name,
            [
                WritableTxnMarkerPartitionResult(i, next(left).error)
                for i in topic.partition_indexes
            ],
        )
        for topic in one.topics
    ]


def write_txn_markers_error(
    request: WriteTxnMarkersRequest, code: ErrorCode, _message: str | None
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                one.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        [
                            WritableTxnMarkerPartitionResult(i, code)
                            for i in topic.partition_indexes
                        ],
                    )
                    for topic in one.topics
                ],
            )
            for one in request.markers
        ]
    )
