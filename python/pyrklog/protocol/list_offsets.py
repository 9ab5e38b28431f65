"""ListOffsets as a client asks for it (KIP-79, leader epochs: KIP-320). Brokers answer it in Rust
(``rust/requests``)."""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import (
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

LATEST, EARLIEST = -1, -2
"""Instead of a timestamp."""
CONSUMER = -1
NO_EPOCH = -1


class ListOffsetsPartition(Message):
    """``timestamp``: in milliseconds, or :data:`LATEST`, :data:`EARLIEST`."""

    partition_index: Int32
    current_leader_epoch: Annotated[Int32, since(4)] = NO_EPOCH
    timestamp: Int64 = LATEST
    max_num_offsets: Annotated[Int32, until(0)] = 1


class ListOffsetsTopic(Message):
    name: Str
    partitions: list[ListOffsetsPartition]


class ListOffsetsRequest(Message):
    """``isolation_level`` 0: up to the high watermark."""

    replica_id: Int32 = CONSUMER
    isolation_level: Annotated[Int8, since(2)] = 0
    topics: list[ListOffsetsTopic] = empty_list()


class ListOffsetsPartitionResponse(Message):
    """``offset`` -1: there is no record at or after the timestamp."""

    partition_index: Int32
    error_code: Int16 = 0
    old_style_offsets: Annotated[list[Int64], until(0)] = empty_list()
    timestamp: Annotated[Int64, since(1)] = -1
    offset: Annotated[Int64, since(1)] = -1
    leader_epoch: Annotated[Int32, since(4)] = NO_EPOCH


class ListOffsetsTopicResponse(Message):
    name: Str
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsResponse(Message):
    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: list[ListOffsetsTopicResponse] = empty_list()


LIST_OFFSETS = Api(2, ListOffsetsRequest, ListOffsetsResponse, versions=(1, 6), flexible_since=6)
"""Without version 0, which has several offsets a partition; Kafka 4 no longer knows it."""
