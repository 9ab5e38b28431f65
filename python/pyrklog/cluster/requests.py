"""What a controller tells brokers: Kafka's LeaderAndIsr, UpdateMetadata and StopReplica, as values.

On one node they are handed over by a function call; in a cluster a codec will carry them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import ProducerIdBlock
from pyrklog.plane.values import BrokerImage

EPOCH_NONE = -1
EPOCH_DURING_DELETE = -2
"""StopReplica's leader epoch for a topic that is being deleted."""

NO_TOPIC_ID = bytes(16)
"""Where a topic is not named by its id."""

TopicPartition = tuple[str, int]


class PartitionInfo(NamedTuple):
    """One partition as LeaderAndIsr and UpdateMetadata carry it."""

    partition: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    """Version of the state znode."""
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    offline: tuple[int, ...]
    is_new: bool
    recovery_state: int
    eligible: tuple[int, ...] = ()
    """Replicas outside the ISR that may be elected as if they were in it (KIP-966)."""
    unclean: tuple[int, ...] = ()
    """Replicas of either kind that may lack records, where nobody leads; in UpdateMetadata only."""


class TopicPartitions(NamedTuple):
    """The partitions of one topic in a request."""

    topic: str
    topic_id: bytes
    partitions: Sequence[PartitionInfo]


class LeaderAndIsrRequest(NamedTuple):
    """Lead or follow these partitions."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topics: Sequence[TopicPartitions]


class LogEnd(NamedTuple):
    """How far a replica reaches."""

    leader_epoch: int
    """Of the request that was answered."""
    last_epoch: int
    """Of the last record; -1 without any."""
    offset: int
    """Log end offset."""


class LeaderAndIsrResponse(NamedTuple):
    """``errors`` has every partition asked for, unless the whole request was refused."""

    error: ErrorCode
    errors: Mapping[TopicPartition, ErrorCode]
    ends: Mapping[TopicPartition, LogEnd] = {}
    """Of those that nobody leads."""


class UpdateMetadataRequest(NamedTuple):
    """What clients shall be told. A leader of -2 means that the partition is being deleted."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topics: Sequence[TopicPartitions]
    brokers: Sequence[BrokerImage]
    number: int = 0
    """Which of the term's messages it is, from 1 on; 0 = nobody counts."""
    is_full: bool = False
    """There are no other topics. One without partitions is known, and not told of."""


class StopReplica(NamedTuple):
    """One replica to stop."""

    topic: str
    partition: int
    leader_epoch: int
    delete: bool
    topic_id: bytes = NO_TOPIC_ID
    """Not told by Kafka's controllers."""


class StopReplicaRequest(NamedTuple):
    """Stop serving, and perhaps delete, these replicas."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    replicas: Sequence[StopReplica]


class StopReplicaResponse(NamedTuple):
    """As :class:`LeaderAndIsrResponse`."""

    error: ErrorCode
    errors: Mapping[TopicPartition, ErrorCode]


class IsrChange(NamedTuple):
    """The ISR that a leader wants for one partition (AlterPartition, KIP-497)."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    """The version of the state that it builds on."""
    isr: Sequence[tuple[int, int]]
    """(broker, its epoch as the leader knows it, -1 = unknown; KIP-903)."""
    recovery_state: int


class IsrChangeResult(NamedTuple):
    """What holds of the partition now; with an error the rest means nothing."""

    topic_id: bytes
    partition: int
    error: ErrorCode
    leader: int = -1
    leader_epoch: int = -1
    isr: Sequence[int] = ()
    partition_epoch: int = -1
    recovery_state: int = 0
    eligible: Sequence[int] = ()


class AlterPartitionRequest(NamedTuple):
    """A leader asks for other ISRs."""

    broker: int
    broker_epoch: int
    changes: Sequence[IsrChange]


class AlterPartitionResponse(NamedTuple):
    """``error`` refuses the whole request."""

    error: ErrorCode
    results: Sequence[IsrChangeResult]


class ControlledShutdownResponse(NamedTuple):
    """The partitions that the leaving broker still leads."""

    error: ErrorCode
    remaining: Sequence[TopicPartition]


class ProducerIdsResponse(NamedTuple):
    """A block of producer ids for the broker that asked; None with an error."""

    error: ErrorCode
    block: ProducerIdBlock | None


class Refusal(NamedTuple):
    """What became of a partition that an administrator wants changed; NONE: it is done."""

    error: ErrorCode
    message: str | None = None


class ElectionKind(Enum):
    """Which election is asked for (KIP-460); the values are the protocol's."""

    PREFERRED = 0
    """The head of the assignment shall lead."""
    UNCLEAN = 1
    """Anybody who lives shall lead where nobody does, whatever the topic's options say."""


class Elected(NamedTuple):
    """What became of an election."""

    refusal: Refusal
    leader: int = -1
    """Where there was one."""


class ControllerService(Protocol):
    """What brokers ask the controller; NOT_CONTROLLER where another broker is that."""

    async def alter_partitions(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Writes ISRs, each by compare-and-set."""

    async def shut_down(self, broker: int, broker_epoch: int) -> ControlledShutdownResponse:
        """Others lead what a broker leads that is about to end."""

    async def allocate_producer_ids(self, broker: int, broker_epoch: int) -> ProducerIdsResponse:
        """The next block of producer ids (KIP-730)."""


class ControllerAdmin(ControllerService, Protocol):
    """What administrators ask, too; None where another broker is the controller."""

    async def alter_reassignments(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None]
    ) -> Mapping[TopicPartition, Refusal] | None:
        """Other replicas for partitions, None = no others than before."""

    async def reassignments(
        self, keys: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, PartitionAssignment] | None:
        """Of these partitions (None = all) those that move."""

    async def elect(
        self, kind: ElectionKind, keys: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, Elected] | None:
        """Other leaders for partitions (None = all)."""


ControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


ControlResponse = LeaderAndIsrResponse | StopReplicaResponse | ErrorCode
"""An :class:`ErrorCode` answers UpdateMetadata."""


class LiveBroker(NamedTuple):
    """A registered broker; its epoch is the czxid of its registration."""

    image: BrokerImage
    epoch: int
    is_unclean: bool = False
    """Whether it may lack acknowledged records and has not left the ISRs yet."""


OnTrust = Callable[[int, bool], None]
"""Called with a broker and False when it is suspected to be dead, True when it is trusted again."""


class BrokerChannel(Protocol):
    """The way from the controller to one broker."""

    def post(self, request: ControlRequest, answered: Callable[[ControlResponse], None]) -> None:
        """Hands over a request; the broker takes them in this order.

        Does not block. ``answered`` is called later on the Trio thread, or never when the broker
        is gone; answers may overtake one another.
        """
