"""What a controller tells brokers: Kafka's LeaderAndIsr, UpdateMetadata and StopReplica, as values.

On one node they are handed over by a function call; in a cluster a codec will carry them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from pyrklog.errors import ErrorCode
from pyrklog.image import BrokerImage

EPOCH_NONE = -1
EPOCH_DURING_DELETE = -2
"""StopReplica's leader epoch for a topic that is being deleted."""

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


class LeaderAndIsrResponse(NamedTuple):
    """``errors`` has every partition asked for, unless the whole request was refused."""

    error: ErrorCode
    errors: Mapping[TopicPartition, ErrorCode]


class UpdateMetadataRequest(NamedTuple):
    """What clients shall be told. A leader of -2 means that the partition is being deleted."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topics: Sequence[TopicPartitions]
    brokers: Sequence[BrokerImage]


class StopReplica(NamedTuple):
    """One replica to stop."""

    topic: str
    partition: int
    leader_epoch: int
    delete: bool


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


ControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


ControlResponse = LeaderAndIsrResponse | StopReplicaResponse | ErrorCode
"""An :class:`ErrorCode` answers UpdateMetadata."""


class BrokerChannel(Protocol):
    """The way from the controller to one broker."""

    def post(self, request: ControlRequest, answered: Callable[[ControlResponse], None]) -> None:
        """Hands over a request; the broker takes them in this order.

        Does not block. ``answered`` is called later on the Trio thread, or never when the broker
        is gone; answers may overtake one another.
        """
