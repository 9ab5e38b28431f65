"""DescribeProducers, DescribeTransactions, ListTransactions (KIP-664, KIP-994)."""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import Int16, Int32, Int64, Message, Str, empty_list, since

NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_COORDINATOR_EPOCH = -1
NO_TRANSACTION = -1
"""Start offset of a producer without an open transaction."""
NO_DURATION = -1


class DescribeProducersTopic(Message):
    name: Str
    partition_indexes: list[Int32]


class DescribeProducersRequest(Message):
    topics: list[DescribeProducersTopic]


class ProducerState(Message):
    """A producer as a partition's leader knows it. ``last_timestamp`` is in ms since 1970."""

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = NO_SEQUENCE
    last_timestamp: Int64 = NO_TIMESTAMP
    coordinator_epoch: Int32 = NO_COORDINATOR_EPOCH
    current_txn_start_offset: Int64 = NO_TRANSACTION


class DescribeProducersPartitionResult(Message):
    partition_index: Int32
    error_code: Int16 = 0
    error_message: Str | None = None
    active_producers: list[ProducerState] = empty_list()


class DescribeProducersTopicResult(Message):
    name: Str
    partitions: list[DescribeProducersPartitionResult]


class DescribeProducersResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[DescribeProducersTopicResult] = empty_list()


class DescribeTransactionsRequest(Message):
    transactional_ids: list[Str]


class TransactionTopic(Message):
    topic: Str
    partitions: list[Int32]


class TransactionState(Message):
    """A transactional id as its coordinator knows it. ``transaction_start_time_ms`` is -1 without
    a transaction; ``topics`` are those that the present one has written to."""

    error_code: Int16
    transactional_id: Str
    transaction_state: Str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[TransactionTopic] = empty_list()


class DescribeTransactionsResponse(Message):
    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState] = empty_list()


class ListTransactionsRequest(Message):
    """Empty filters: all. ``duration_filter``: only transactions open for so many ms (KIP-994)."""

    state_filters: list[Str] = empty_list()
    producer_id_filters: list[Int64] = empty_list()
    duration_filter: Annotated[Int64, since(1)] = NO_DURATION


class ListedTransaction(Message):
    transactional_id: Str
    producer_id: Int64
    transaction_state: Str


class ListTransactionsResponse(Message):
    """The transactional ids that the answering broker coordinates."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[Str] = empty_list()
    transaction_states: list[ListedTransaction] = empty_list()


DESCRIBE_PRODUCERS = Api(
    61, DescribeProducersRequest, DescribeProducersResponse, versions=(0, 0), flexible_since=0
)
DESCRIBE_TRANSACTIONS = Api(
    65,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    versions=(0, 0),
    flexible_since=0,
)
LIST_TRANSACTIONS = Api(
    66, ListTransactionsRequest, ListTransactionsResponse, versions=(0, 1), flexible_since=0
)
