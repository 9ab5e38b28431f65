"""What brokers of a cluster say to each other, in the versions of Kafka 3.9 (ZooKeeper mode).

LeaderAndIsr, StopReplica and UpdateMetadata come from the controller, in one version each;
ControlledShutdown, AlterPartition (KIP-497, KIP-704, KIP-841, KIP-903) and AllocateProducerIds
(KIP-730) go to it.
"""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import (
    NO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Str,
    Uuid,
    empty_list,
    since,
    tagged,
    until,
)

ELIGIBLE_TAG = 10_000
"""Our own, far from Kafka's tags, which are counted from 0; unknown tags are passed over."""
TOPIC_ID_TAG = 10_001
"""Our own, too: StopReplica names topics only, and the next one may have the same name."""
NUMBER_TAG = 10_003
"""And this one: which UpdateMetadata of its term a message is."""
FULL_TAG = 10_004
"""And this one: an UpdateMetadata that names every topic says so."""
LOG_END_TAG = 10_005
"""And this one: how far a replica reaches that nobody leads."""
UNCLEAN_TAG = 10_006
"""And this one: replicas that may lack records, in UpdateMetadata."""

UNKNOWN_REQUEST = 0
INCREMENTAL_REQUEST = 1
FULL_REQUEST = 2
"""A request's ``type``: what a partition that is not in it means (KIP-866)."""


class LeaderAndIsrPartitionState(Message):
    """Who leads one partition."""

    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    partition_epoch: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32] = empty_list()
    removing_replicas: list[Int32] = empty_list()
    is_new: Bool = False
    leader_recovery_state: Int8 = 0
    eligible_replicas: Annotated[list[Int32], tagged(ELIGIBLE_TAG, since=7)] = empty_list()


class LeaderAndIsrTopicState(Message):
    """Partitions of one topic."""

    topic_name: Str
    topic_id: Uuid
    partition_states: list[LeaderAndIsrPartitionState]


class LeaderAndIsrLiveLeader(Message):
    """Where a leader listens for brokers."""

    broker_id: Int32
    host_name: Str
    port: Int32


class LeaderAndIsrRequest(Message):
    """Lead or follow these partitions."""

    controller_id: Int32
    is_kraft_controller: Bool = False
    controller_epoch: Int32 = 0
    broker_epoch: Int64 = -1
    type: Int8 = UNKNOWN_REQUEST
    topic_states: list[LeaderAndIsrTopicState] = empty_list()
    live_leaders: list[LeaderAndIsrLiveLeader] = empty_list()


class LeaderAndIsrPartitionError(Message):
    """What became of one partition."""

    partition_index: Int32
    error_code: Int16
    log_end: Annotated[list[Int64], tagged(LOG_END_TAG, since=7)] = empty_list()
    """The order's leader epoch, the last record's, log end offset."""


class LeaderAndIsrTopicError(Message):
    """Partitions of one topic, which goes by its id."""

    topic_id: Uuid
    partition_errors: list[LeaderAndIsrPartitionError]


class LeaderAndIsrResponse(Message):
    """``error_code`` refuses the whole request."""

    error_code: Int16 = 0
    topics: list[LeaderAndIsrTopicError] = empty_list()


LEADER_AND_ISR = Api(
    4,
    "LeaderAndIsr",
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    versions=(7, 7),
    flexible_since=4,
)


class StopReplicaPartitionState(Message):
    """One replica to stop."""

    partition_index: Int32
    leader_epoch: Int32 = -1
    delete_partition: Bool = False


class StopReplicaTopicState(Message):
    """Replicas of one topic."""

    topic_name: Str
    partition_states: list[StopReplicaPartitionState]
    topic_id: Annotated[Uuid, tagged(TOPIC_ID_TAG, since=4)] = NO_UUID


class StopReplicaRequest(Message):
    """Stop serving, and perhaps delete, these replicas."""

    controller_id: Int32
    is_kraft_controller: Bool = False
    controller_epoch: Int32 = 0
    broker_epoch: Int64 = -1
    topic_states: list[StopReplicaTopicState] = empty_list()


class StopReplicaPartitionError(Message):
    """What became of one replica."""

    topic_name: Str
    partition_index: Int32
    error_code: Int16


class StopReplicaResponse(Message):
    """``error_code`` refuses the whole request."""

    error_code: Int16 = 0
    partition_errors: list[StopReplicaPartitionError] = empty_list()


STOP_REPLICA = Api(
    5, "StopReplica", StopReplicaRequest, StopReplicaResponse, versions=(4, 4), flexible_since=2
)


class UpdateMetadataPartitionState(Message):
    """What clients shall be told of one partition."""

    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    zk_version: Int32
    replicas: list[Int32]
    offline_replicas: list[Int32] = empty_list()
    eligible_replicas: Annotated[list[Int32], tagged(ELIGIBLE_TAG, since=8)] = empty_list()
    unclean_replicas: Annotated[list[Int32], tagged(UNCLEAN_TAG, since=8)] = empty_list()


class UpdateMetadataTopicState(Message):
    """Partitions of one topic."""

    topic_name: Str
    topic_id: Uuid
    partition_states: list[UpdateMetadataPartitionState]


class UpdateMetadataEndpoint(Message):
    """One listener of a broker; ``security_protocol`` is Kafka's number for it."""

    port: Int32
    host: Str
    listener: Str
    security_protocol: Int16


class UpdateMetadataBroker(Message):
    """A broker that lives."""

    id: Int32
    endpoints: list[UpdateMetadataEndpoint]
    rack: Str | None = None


class UpdateMetadataRequest(Message):
    """All live brokers, and the partitions that have changed."""

    controller_id: Int32
    is_kraft_controller: Bool = False
    controller_epoch: Int32 = 0
    broker_epoch: Int64 = -1
    topic_states: list[UpdateMetadataTopicState] = empty_list()
    live_brokers: list[UpdateMetadataBroker] = empty_list()
    type: Annotated[Int8, tagged(0, since=8)] = UNKNOWN_REQUEST
    number: Annotated[Int32, tagged(NUMBER_TAG, since=8)] = 0
    is_full: Annotated[Bool, tagged(FULL_TAG, since=8)] = False


class UpdateMetadataResponse(Message):
    """Whether it counts."""

    error_code: Int16 = 0


UPDATE_METADATA = Api(
    6,
    "UpdateMetadata",
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    versions=(8, 8),
    flexible_since=6,
)


class ControlledShutdownRequest(Message):
    """A broker wants to end: others shall lead what it leads."""

    broker_id: Int32
    broker_epoch: Int64 = -1


class RemainingPartition(Message):
    """A partition that the broker still leads."""

    topic_name: Str
    partition_index: Int32


class ControlledShutdownResponse(Message):
    """What is left: the broker asks again while there is something."""

    error_code: Int16 = 0
    remaining_partitions: list[RemainingPartition] = empty_list()


CONTROLLED_SHUTDOWN = Api(
    7,
    "ControlledShutdown",
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    versions=(3, 3),
    flexible_since=3,
)


class BrokerState(Message):
    """A member of an ISR, as its leader knows it; an epoch of -1 is not checked."""

    broker_id: Int32
    broker_epoch: Int64 = -1


class AlterPartitionPartition(Message):
    """The ISR that a leader wants, on top of the partition epoch that it knows."""

    partition_index: Int32
    leader_epoch: Int32
    new_isr: Annotated[list[Int32], until(2)] = empty_list()
    new_isr_with_epochs: Annotated[list[BrokerState], since(3)] = empty_list()
    leader_recovery_state: Annotated[Int8, since(1)] = 0
    partition_epoch: Int32 = -1


class AlterPartitionTopic(Message):
    """Partitions of one topic."""

    topic_name: Annotated[Str, until(1)] = ""
    topic_id: Annotated[Uuid, since(2)] = NO_UUID
    partitions: list[AlterPartitionPartition] = empty_list()


class AlterPartitionRequest(Message):
    """A leader asks for other ISRs."""

    broker_id: Int32
    broker_epoch: Int64 = -1
    topics: list[AlterPartitionTopic] = empty_list()


class AlteredPartition(Message):
    """What holds of the partition now."""

    partition_index: Int32
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = empty_list()
    leader_recovery_state: Annotated[Int8, since(1)] = 0
    partition_epoch: Int32 = 0
    eligible_replicas: Annotated[list[Int32], tagged(ELIGIBLE_TAG, since=3)] = empty_list()


class AlteredTopic(Message):
    """Partitions of one topic."""

    topic_name: Annotated[Str, until(1)] = ""
    topic_id: Annotated[Uuid, since(2)] = NO_UUID
    partitions: list[AlteredPartition] = empty_list()


class AlterPartitionResponse(Message):
    """``error_code`` refuses the whole request."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[AlteredTopic] = empty_list()


ALTER_PARTITION = Api(
    56,
    "AlterPartition",
    AlterPartitionRequest,
    AlterPartitionResponse,
    versions=(0, 3),
    flexible_since=0,
)


class AllocateProducerIdsRequest(Message):
    """A broker wants a block of producer ids."""

    broker_id: Int32
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Message):
    """``producer_id_len`` ids from ``producer_id_start`` on are the broker's."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0


ALLOCATE_PRODUCER_IDS = Api(
    67,
    "AllocateProducerIds",
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    versions=(0, 0),
    flexible_since=0,
)
