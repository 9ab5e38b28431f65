"""Requests between controller and brokers, as values: Kafka's LeaderAndIsr, UpdateMetadata,
StopReplica.

A single broker passes them by function call, a cluster over :mod:`.wire`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import ProducerIdBlock
from pyrklog.plane.values import BrokerImage
from pyrklog.protocol.inter_broker import TopicPartitions

EPOCH_NONE = -1
EPOCH_DURING_DELETE = -2
"""StopReplica's leader epoch for a topic that is being deleted."""

NO_TOPIC_ID = bytes(16)
"""Where a topic has no id in a message."""

TopicPartition = tuple[str, int]


class LeaderAndIsrRequest(NamedTuple):
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topics: Sequence[TopicPartitions]


class LogEnd(NamedTuple):
    leader_epoch: int
    """Of the answered request."""
    last_epoch: int
    """Of the last record; -1 without any."""
    offset: int


class LeaderAndIsrResponse(NamedTuple):
    """``errors`` has every partition, unless the whole request was refused."""

    error: ErrorCode
    errors: Mapping[TopicPartition, ErrorCode]
    ends: Mapping[TopicPartition, LogEnd] = {}
    """Of partitions without a leader."""


class UpdateMetadataRequest(NamedTuple):
    """What clients are told. Leader -2 = the partition is being deleted."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topics: Sequence[TopicPartitions]
    brokers: Sequence[BrokerImage]
    number: int = 0
    """Counts the term's messages from 1 on; 0 = not counted."""
    is_full: bool = False
    """Whether there are no other topics. A topic without partitions exists but is not described."""


class StopReplica(NamedTuple):
    topic: str
    partition: int
    leader_epoch: int
    delete: bool
    topic_id: bytes = NO_TOPIC_ID
    """Absent in Kafka's requests."""


class StopReplicaRequest(NamedTuple):
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    replicas: Sequence[StopReplica]


class StopReplicaResponse(NamedTuple):
    """As :class:`LeaderAndIsrResponse`."""

    error: ErrorCode
    errors: Mapping[TopicPartition, ErrorCode]


class IsrChange(NamedTuple):
    """A leader's proposed ISR of one partition (AlterPartition, KIP-497)."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    """The version of the state that it changes."""
    isr: Sequence[tuple[int, int]]
    """(broker, its epoch as the leader knows it, -1 = unknown; KIP-903)."""
    recovery_state: int
    whole: tuple[int, ...] = ()
    """Members that were partial: the leader has seen that they lack nothing any more."""


class IsrChangeResult(NamedTuple):
    """The partition's present state; meaningless with an error. Behind the topic the fields of
    ``to_controller.AlteredPartition``.
    """

    topic_id: bytes
    partition: int
    error: ErrorCode
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    recovery_state: int = 0
    partition_epoch: int = -1
    eligible: tuple[int, ...] = ()


class AlterPartitionRequest(NamedTuple):
    broker: int
    broker_epoch: int
    changes: Sequence[IsrChange]


class AlterPartitionResponse(NamedTuple):
    """``error`` refuses the whole request."""

    error: ErrorCode
    results: Sequence[IsrChangeResult]


class ControlledShutdownResponse(NamedTuple):
    """The partitions that the broker still leads."""

    error: ErrorCode
    remaining: Sequence[TopicPartition]


class ProducerIdsResponse(NamedTuple):
    """A block of producer ids; None with an error."""

    error: ErrorCode
    block: ProducerIdBlock | None


class Refusal(NamedTuple):
    """The result for one partition; NONE = done."""

    error: ErrorCode
    message: str | None = None


class ElectionKind(Enum):
    """Kinds of elections (KIP-460), with the protocol's values."""

    PREFERRED = 0
    """The first replica of the assignment shall lead."""
    UNCLEAN = 1
    """Any live replica may lead where nobody does, whatever the topic's options say."""


class Elected(NamedTuple):
    refusal: Refusal
    leader: int = -1
    """-1 without one."""


class ControllerService(Protocol):
    """Requests of brokers; NOT_CONTROLLER where another broker is the controller."""

    async def alter_partitions(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Writes ISRs, each by compare-and-set."""

    async def shut_down(self, broker: int, broker_epoch: int) -> ControlledShutdownResponse:
        """Others take over what the broker leads."""

    async def allocate_producer_ids(self, broker: int, broker_epoch: int) -> ProducerIdsResponse:
        """The next block of producer ids (KIP-730)."""


class ControllerAdmin(ControllerService, Protocol):
    """Also requests of administrators; None where another broker is the controller."""

    async def alter_reassignments(
        self,
        wanted: Mapping[TopicPartition, Sequence[int] | None],
        at_end: Collection[TopicPartition] = (),
    ) -> Mapping[TopicPartition, Refusal] | None:
        """Wanted replicas of partitions; None cancels. New replicas of ``at_end`` start at their
        leaders' ends.
        """

    async def reassignments(
        self, keys: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, PartitionAssignment] | None:
        """The moving ones of these partitions (None = all)."""

    async def elect(
        self, kind: ElectionKind, keys: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, Elected] | None:
        """Elects leaders of partitions (None = all)."""


ControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


ControlResponse = LeaderAndIsrResponse | StopReplicaResponse | ErrorCode
"""An :class:`ErrorCode` answers UpdateMetadata."""


class LiveBroker(NamedTuple):
    """A registered broker; its epoch is its registration's czxid."""

    image: BrokerImage
    epoch: int
    is_unclean: bool = False
    """Whether it may lack acknowledged records and has not left the ISRs yet."""
    knows_partial: bool = False
    """Whether its version knows partial replicas (``expansion.md``)."""


OnTrust = Callable[[int, bool], None]
"""Called with a broker and False when it is suspected, True when it is trusted again."""


class BrokerChannel(Protocol):
    """The controller's channel to one broker."""

    def post(self, request: ControlRequest, answered: Callable[[ControlResponse], None]) -> None:
        """Queues a request; the broker takes requests in order.

        Does not block. ``answered`` is called later on the Trio thread, or never when the broker is
        gone; answers may overtake one another.
        """
