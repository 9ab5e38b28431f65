"""Metadata as a client asks for it. Brokers answer it in Rust (``rust/dataplane``)."""

from pyrklog.protocol.api import NEVER_FLEXIBLE, Api
from pyrklog.protocol.fields import Bool, Int16, Int32, Message, Str, empty_list

NO_LEADER = -1


class MetadataRequestTopic(Message):
    """A topic by name."""

    name: Str


class MetadataRequest(Message):
    """``topics`` null: all of them."""

    topics: list[MetadataRequestTopic] | None = None
    allow_auto_topic_creation: Bool = False


class MetadataBroker(Message):
    """A live broker's endpoint of the listener that was asked."""

    node_id: Int32
    host: Str
    port: Int32
    rack: Str | None = None


class MetadataPartition(Message):
    """``leader_id`` is -1 where there is none."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32]


class MetadataTopic(Message):
    """A topic with all its partitions."""

    error_code: Int16
    name: Str
    is_internal: Bool
    partitions: list[MetadataPartition] = empty_list()


class MetadataResponse(Message):
    """The cluster as the broker that answers knows it."""

    throttle_time_ms: Int32
    brokers: list[MetadataBroker]
    cluster_id: Str | None
    controller_id: Int32
    topics: list[MetadataTopic] = empty_list()


METADATA = Api(
    3,
    "Metadata",
    MetadataRequest,
    MetadataResponse,
    versions=(7, 7),
    flexible_since=NEVER_FLEXIBLE,
)
"""Version 7 (Kafka 2.1 to 4.x) is the first one with leader epochs."""
