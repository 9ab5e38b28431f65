"""DescribeProducers, DescribeTransactions, ListTransactions (KIP-664)."""

from pyrklog.cluster.topic_names import wrong_with_name
from pyrklog.handlers.context import Context, step
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.transaction_admin import (
    DescribeProducersPartitionResult,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProducerState,
    TransactionState,
    TransactionTopic,
)
from pyrklog.transactions.manager import TransactionFilter


async def describe_producers(
    context: Context, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Producers with state in this broker's replicas, each as its replica knows it. All together
    they are limited to a request's most elements; those with an open transaction come first."""
    left = context.elements_max
    topics = []
    count = 0
    for topic in request.topics:
        answered = []
        for index in topic.partition_indexes:
            found = _describe(context, topic.name, index, left)
            left -= len(found.active_producers)
            answered.append(found)
            count += 1 + len(found.active_producers)
            await step(count)
        topics.append(DescribeProducersTopicResult(topic.name, answered))
    return DescribeProducersResponse(topics=topics)


def _describe(
    context: Context, topic: str, index: int, left: int
) -> DescribeProducersPartitionResult:
    known = context.service.topic(topic)
    if known is None or not 0 <= index < known.partition_count:
        wrong = wrong_with_name(topic)
        error = ErrorCode.INVALID_TOPIC_EXCEPTION if wrong else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DescribeProducersPartitionResult(index, error, wrong or error.message)
    error, found = context.transactions.plane.active_producers(topic, index, max_count=max(0, left))
    if error is not ErrorCode.NONE:
        return DescribeProducersPartitionResult(index, error, error.message)
    return DescribeProducersPartitionResult(
        index, error, active_producers=[ProducerState(*one) for one in found]
    )


def describe_producers_error(
    request: DescribeProducersRequest, code: ErrorCode, message: str | None
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResult(
                topic.name,
                [
                    DescribeProducersPartitionResult(i, code, message)
                    for i in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


async def describe_transactions(
    context: Context, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """An id with partitions is described once."""
    described = []
    count = 0
    with_partitions: set[str] = set()
    for name in request.transactional_ids:
        if name in with_partitions:
            continue
        found = context.transactions.coordinator.manager.describe(name)
        topics = [
            TransactionTopic(topic, list(indexes)) for topic, indexes in found.partitions.items()
        ]
        if topics:
            with_partitions.add(name)
        described.append(TransactionState(*found[:-1], topics))
        for _ in range(1 + sum(len(topic.partitions) for topic in topics)):
            count += 1
            await step(count)
    return DescribeTransactionsResponse(transaction_states=described)


def describe_transactions_error(
    request: DescribeTransactionsRequest, code: ErrorCode, _message: str | None
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[TransactionState(code, name) for name in request.transactional_ids]
    )


async def list_transactions(
    context: Context, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """The transactional ids that this broker coordinates and that match all filters."""
    transactions = context.transactions.coordinator
    if transactions.manager.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    wanted = TransactionFilter(
        frozenset(request.state_filters),
        frozenset(request.producer_id_filters),
        request.duration_filter,
    )
    listed = []
    for count, one in enumerate(transactions.manager.list_ids(wanted, transactions.now_ms()), 1):
        if one is not None:
            listed.append(ListedTransaction(*one))
        await step(count)
    return ListTransactionsResponse(
        unknown_state_filters=wanted.unknown_states, transaction_states=listed
    )
