"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers (KIP-98, KIP-890, KIP-1228)."""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Str,
    empty_list,
    since,
    until,
)

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


class AddPartitionsTopic(Message):
    name: Str
    partitions: list[Int32]


class AddPartitionsTransaction(Message):
    """``verify_only``: only asks whether the partitions were added."""

    transactional_id: Str
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = False
    topics: list[AddPartitionsTopic] = empty_list()


class AddPartitionsToTxnRequest(Message):
    """One transaction of a client before version 4; later ones come from brokers, with several."""

    transactions: Annotated[list[AddPartitionsTransaction], since(4)] = empty_list()
    v3_and_below_transactional_id: Annotated[Str, until(3)] = ""
    v3_and_below_producer_id: Annotated[Int64, until(3)] = NO_PRODUCER_ID
    v3_and_below_producer_epoch: Annotated[Int16, until(3)] = NO_PRODUCER_EPOCH
    v3_and_below_topics: Annotated[list[AddPartitionsTopic], until(3)] = empty_list()


class AddPartitionsPartitionResult(Message):
    partition_index: Int32
    partition_error_code: Int16


class AddPartitionsTopicResult(Message):
    name: Str
    results_by_partition: list[AddPartitionsPartitionResult]


class AddPartitionsResult(Message):
    transactional_id: Str
    topic_results: list[AddPartitionsTopicResult]


class AddPartitionsToTxnResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(4)] = 0
    results_by_transaction: Annotated[list[AddPartitionsResult], since(4)] = empty_list()
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsTopicResult], until(3)] = (
        empty_list()
    )


class AddOffsetsToTxnRequest(Message):
    transactional_id: Str
    producer_id: Int64
    producer_epoch: Int16
    group_id: Str


class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


class EndTxnRequest(Message):
    transactional_id: Str
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


class EndTxnResponse(Message):
    """The id and epoch of the producer's next transaction, since version 5."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, since(5)] = NO_PRODUCER_ID
    producer_epoch: Annotated[Int16, since(5)] = NO_PRODUCER_EPOCH


class WritableTxnMarkerTopic(Message):
    name: Str
    partition_indexes: list[Int32]


class WritableTxnMarker(Message):
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    """True commits, false aborts."""
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Annotated[Int8, since(2)] = 0


class WriteTxnMarkersRequest(Message):
    markers: list[WritableTxnMarker]


class WritableTxnMarkerPartitionResult(Message):
    partition_index: Int32
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(Message):
    name: Str
    partitions: list[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerResult(Message):
    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


class WriteTxnMarkersResponse(Message):
    markers: list[WritableTxnMarkerResult] = empty_list()


ADD_PARTITIONS_TO_TXN = Api(
    24, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, versions=(0, 5), flexible_since=3
)
ADD_OFFSETS_TO_TXN = Api(
    25, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, versions=(0, 4), flexible_since=3
)
END_TXN = Api(26, EndTxnRequest, EndTxnResponse, versions=(0, 5), flexible_since=3)
WRITE_TXN_MARKERS = Api(
    27, WriteTxnMarkersRequest, WriteTxnMarkersResponse, versions=(1, 2), flexible_since=1
)
