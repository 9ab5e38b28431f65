"""DescribeProducers, DescribeTransactions, ListTransactions (KIP-664, KIP-994)."""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import Int16, Int32, Int64, Message, Str, empty_list, since

NO_VALUE = -1
NO_DURATION = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


class DescribeProducersRequestTopic(Message):
    name: Str
    partition_indexes: list[Int32]


class DescribeProducersRequest(Message):
    topics: list[DescribeProducersRequestTopic]


class DescribedProducer(Message):
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = NO_VALUE
    last_timestamp: Int64 = NO_VALUE
    coordinator_epoch: Int32 = NO_VALUE
    current_txn_start_offset: Int64 = NO_VALUE


class DescribeProducersPartition(Message):
    partition_index: Int32
    error_code: Int16
    error_message: Str | None = None
    active_producers: list[DescribedProducer] = empty_list()


class DescribeProducersTopic(Message):
    name: Str
    partitions: list[DescribeProducersPartition]


class DescribeProducersResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[DescribeProducersTopic] = empty_list()


class DescribeTransactionsRequest(Message):
    transactional_ids: list[Str]


class DescribedTransactionTopic(Message):
    topic: Str
    partitions: list[Int32]


class DescribedTransaction(Message):
    error_code: Int16
    transactional_id: Str
    transaction_state: Str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[DescribedTransactionTopic] = empty_list()


class DescribeTransactionsResponse(Message):
    throttle_time_ms: Int32 = 0
    transaction_states: list[DescribedTransaction] = empty_list()


class ListTransactionsRequest(Message):
    """Empty filters mean all; ``duration_filter``: transactions older than so many ms."""

    state_filters: list[Str] = empty_list()
    producer_id_filters: list[Int64] = empty_list()
    duration_filter: Annotated[Int64, since(1)] = NO_DURATION


class ListedTransaction(Message):
    transactional_id: Str
    producer_id: Int64
    transaction_state: Str


class ListTransactionsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[Str] = empty_list()
    transaction_states: list[ListedTransaction] = empty_list()


DESCRIBE_PRODUCERS = Api(
    61, DescribeProducersRequest, DescribeProducersResponse, versions=(0, 0), flexible_since=0
)
DESCRIBE_TRANSACTIONS = Api(
    65, DescribeTransactionsRequest, DescribeTransactionsResponse, versions=(0, 0), flexible_since=0
)
LIST_TRANSACTIONS = Api(
    66, ListTransactionsRequest, ListTransactionsResponse, versions=(0, 1), flexible_since=0
)
