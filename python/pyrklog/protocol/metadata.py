"""Metadata as a client asks for it. Brokers answer it in Rust (``rust/requests``)."""

from pyrklog.protocol.api import NEVER_FLEXIBLE, Api
from pyrklog.protocol.fields import Bool, Int16, Int32, Message, Str, empty_list

NO_LEADER = -1


class MetadataRequestTopic(Message):
    name: Str


class MetadataRequest(Message):
    """``topics`` null: all."""

    topics: list[MetadataRequestTopic] | None = None
    allow_auto_topic_creation: Bool = False


class MetadataBroker(Message):
    """An endpoint of a live broker, of the listener asked."""

    node_id: Int32
    host: Str
    port: Int32
    rack: Str | None = None


class MetadataPartition(Message):
    """``leader_id`` -1: none."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32]


class MetadataTopic(Message):
    error_code: Int16
    name: Str
    is_internal: Bool
    partitions: list[MetadataPartition] = empty_list()


class MetadataResponse(Message):
    """The answering broker's view of the cluster."""

    throttle_time_ms: Int32
    brokers: list[MetadataBroker]
    cluster_id: Str | None
    controller_id: Int32
    topics: list[MetadataTopic] = empty_list()


METADATA = Api(3, MetadataRequest, MetadataResponse, versions=(7, 7), flexible_since=NEVER_FLEXIBLE)
"""Version 7 (Kafka 2.1 to 4.x) is the first with leader epochs."""
