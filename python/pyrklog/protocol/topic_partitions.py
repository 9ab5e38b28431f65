"""DescribeTopicPartitions (KIP-966)."""

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import (
    NO_UUID,
    Bool,
    Int16,
    Int32,
    Message,
    Str,
    Uuid,
    empty_list,
)

OPERATIONS_UNKNOWN = -(2**31)


class Cursor(Message):
    """The first topic and partition of a page."""

    topic_name: Str
    partition_index: Int32


class TopicRequest(Message):
    name: Str


class DescribeTopicPartitionsRequest(Message):
    """No ``topics``: all of them. ``cursor`` null: the first page."""

    topics: list[TopicRequest]
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Message):
    """``leader_id`` -1: none that the client can reach."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32] = empty_list()
    isr_nodes: list[Int32] = empty_list()
    eligible_leader_replicas: list[Int32] | None = None
    last_known_elr: list[Int32] | None = None
    offline_replicas: list[Int32] = empty_list()


class DescribeTopicPartitionsResponseTopic(Message):
    """``topic_authorized_operations`` is a bit set, -2^31 where it is unknown."""

    error_code: Int16
    name: Str | None
    topic_id: Uuid = NO_UUID
    is_internal: Bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = empty_list()
    topic_authorized_operations: Int32 = OPERATIONS_UNKNOWN


class DescribeTopicPartitionsResponse(Message):
    """``next_cursor`` null: the last page."""

    throttle_time_ms: Int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = empty_list()
    next_cursor: Cursor | None = None


DESCRIBE_TOPIC_PARTITIONS = Api(
    75,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    versions=(0, 0),
    flexible_since=0,
)
