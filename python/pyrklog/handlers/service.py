"""The control plane's interface to the handlers: signatures and values, no logic.

Handlers decode a request, call :class:`ClusterService`, and encode the answer. ``broker.py`` puts
the implementation together.

Methods return one result per item, in the order asked, with an :class:`ErrorCode`; they raise only
for bugs. ``message`` is one sentence for the client, or None. Topic ids are 16 bytes, all zero for
none. Times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from pyrklog.cluster.requests import NO_TOPIC_ID, TopicPartition
from pyrklog.cluster.topic_pages import TopicPage
from pyrklog.config.entry import ConfigEntry
from pyrklog.controller.state_log import LogPiece
from pyrklog.errors import ErrorCode
from pyrklog.plane.seam import DigestRange, LogDirUsage, ReplicaDigest
from pyrklog.protocol.health import BrokerHealthRequest, BrokerHealthResponse
from pyrklog.protocol.lag import (
    GroupLagRequest,
    GroupLagResponse,
    PartitionOffsetsRequest,
    PartitionOffsetsResponse,
)
from pyrklog.protocol.observation import Outcome
from pyrklog.telemetry.client_metrics import ClientMetrics

# Resource types of the config APIs (KIP-133).
RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
RESOURCE_BROKER_LOGGER = 8
RESOURCE_CLIENT_METRICS = 16

# Operations of IncrementalAlterConfigs (KIP-339).
OP_SET = 0
OP_DELETE = 1
OP_APPEND = 2
OP_SUBTRACT = 3

STORE_AWAY = "This broker's session with the metadata store has ended; try again."
"""The message where the metadata store may, or may not, have acted."""


class TopicSpec(NamedTuple):
    """A topic to create; -1 means ``num.partitions`` / ``default.replication.factor``.

    ``assignments`` (partition -> brokers) requires both counts to be -1. ``assigned_twice`` is a
    partition that the client assigned more than once, which is refused.
    """

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str | None] | None = None
    assigned_twice: int | None = None


class TopicResult(NamedTuple):
    """A refused topic has counts of -1 and no configs."""

    name: str
    error: ErrorCode
    message: str | None = None
    topic_id: bytes = NO_TOPIC_ID
    partition_count: int = -1
    replication_factor: int = -1
    configs: Sequence[ConfigEntry] = ()


class TopicRef(NamedTuple):
    name: str | None = None
    topic_id: bytes = NO_TOPIC_ID


class DeletedTopic(NamedTuple):
    """``name`` None: the id is unknown."""

    name: str | None
    topic_id: bytes
    error: ErrorCode
    message: str | None = None


class PartitionsSpec(NamedTuple):
    """``total`` is the new number of partitions; ``assignments`` lists the added ones only."""

    name: str
    total: int
    assignments: Sequence[Sequence[int]] | None = None


class NamedResult(NamedTuple):
    name: str
    error: ErrorCode
    message: str | None = None


class ConfigResource(NamedTuple):
    """``type`` is a RESOURCE_ constant; a broker's name is its id, or "" for the default of all."""

    type: int
    name: str


class DescribedConfigs(NamedTuple):
    resource: ConfigResource
    error: ErrorCode
    message: str | None
    entries: Sequence[ConfigEntry]


class ConfigAlteration(NamedTuple):
    """``operation`` is an OP_ constant; ``value`` is None for OP_DELETE."""

    operation: int
    name: str
    value: str | None


class AlteredConfigs(NamedTuple):
    resource: ConfigResource
    error: ErrorCode
    message: str | None = None


class ClusterBroker(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None


class ClusterDescription(NamedTuple):
    """``controller_id`` -1: none."""

    cluster_id: str
    controller_id: int
    brokers: Sequence[ClusterBroker]


class DeleteRecordsTarget(NamedTuple):
    """``offset`` -1 = the high watermark."""

    topic: str
    partition: int
    offset: int


class DeletedRecords(NamedTuple):
    """``low_watermark``: the least log start offset of the live replicas; -1 with an error other
    than REQUEST_TIMED_OUT."""

    topic: str
    partition: int
    error: ErrorCode
    low_watermark: int


class TopicInfo(NamedTuple):
    name: str
    topic_id: bytes
    partition_count: int
    internal: bool


class ClusterService(Protocol):
    node_id: int

    @property
    def client_metrics(self) -> ClientMetrics:
        """Who pushes what to this broker."""

    async def create_topics(
        self, specs: Sequence[TopicSpec], *, validate_only: bool, timeout_ms: int
    ) -> list[TopicResult]:
        """Done when every partition leader serves (or REQUEST_TIMED_OUT). NOT_CONTROLLER where
        another broker is the controller."""

    async def create_own_topic(self, spec: TopicSpec, *, timeout_ms: int) -> TopicResult:
        """Creates a topic for this broker's own use, controller or not."""

    @property
    def knows_brokers(self) -> bool:
        """Whether this broker knows the cluster."""

    async def wait_for_brokers(self) -> None:
        """Waits, with a limit, until this broker knows the cluster."""

    async def auto_create_topics(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        """Creates missing topics with the broker's defaults, for a Metadata request.

        Returns the names that the image cannot answer now, with their codes
        (INVALID_TOPIC_EXCEPTION, or a retriable LEADER_NOT_AVAILABLE).
        """

    async def delete_topics(
        self, topics: Sequence[TopicRef], *, timeout_ms: int
    ) -> list[DeletedTopic]:
        """Done when the topics are gone from the metadata."""

    async def create_partitions(
        self, specs: Sequence[PartitionsSpec], *, validate_only: bool, timeout_ms: int
    ) -> list[NamedResult]:
        """Done when the added leaders serve."""

    async def describe_configs(
        self,
        resources: Sequence[tuple[ConfigResource, Set[str] | None]],
    ) -> list[DescribedConfigs]:
        """Options of each resource; names of None mean all."""

    async def incremental_alter_configs(
        self,
        alterations: Sequence[tuple[ConfigResource, Sequence[ConfigAlteration]]],
        *,
        validate_only: bool,
    ) -> list[AlteredConfigs]:
        """Changes the named options only."""

    async def alter_configs(
        self,
        replacements: Sequence[tuple[ConfigResource, Mapping[str, str | None]]],
        *,
        validate_only: bool,
    ) -> list[AlteredConfigs]:
        """Replaces all options of each resource; others are reset."""

    def describe_cluster(self, listener: str) -> ClusterDescription:
        """Live brokers as advertised on ``listener``."""

    def topics(self) -> Sequence[TopicInfo]:
        """All topics of the metadata, by name."""

    def topic(self, name: str) -> TopicInfo | None:
        """One topic of the metadata."""

    def topic_page(
        self, names: Sequence[str] | None, start: TopicPartition, limit: int, listener: str
    ) -> TopicPage:
        """Topics and partitions from ``start`` on, as clients of ``listener`` see them; names of
        None mean all. ``limit`` is the client's, within the broker's."""

    async def delete_records(
        self, targets: Sequence[DeleteRecordsTarget], *, timeout_ms: int, host: str
    ) -> list[DeletedRecords]:
        """Moves log start offsets of partitions that this broker leads, each named once; done when
        all live replicas have followed (or REQUEST_TIMED_OUT). Waiting requests are limited by
        ``host``, the client's address."""

    def log_start_moved(self, topic: str, partition: int) -> None:
        """A follower has reported its new log start offset."""

    async def alter_log_dirs(self, wanted: Sequence[tuple[str, int, str]]) -> Sequence[int]:
        """Moves this broker's replicas between log directories: each (topic, partition, path),
        named once; error codes in order."""

    async def describe_log_dirs(
        self, partitions: Sequence[tuple[str, Sequence[int]]] | None
    ) -> Sequence[LogDirUsage]:
        """This broker's log directories; None = all partitions."""

    async def replica_digest(self, topic: str, partition: int, asked: DigestRange) -> ReplicaDigest:
        """Of this broker's replica; NOT_LEADER_OR_FOLLOWER for none."""

    async def state_changes(self, *, older: bool, position: int, max_bytes: int) -> LogPiece:
        """Of this broker's state-change log. Raises :class:`OSError`."""

    async def observe(self, broker: int, seconds: float) -> Outcome:
        """Whether another broker answers this one within the time."""

    async def health(self, request: BrokerHealthRequest, address: str) -> BrokerHealthResponse:
        """This broker's findings, and its view of the cluster, for a client at this address."""

    async def group_lag(self, request: GroupLagRequest, address: str) -> GroupLagResponse:
        """The lag of groups that this broker coordinates."""

    async def partition_offsets(
        self, request: PartitionOffsetsRequest, address: str
    ) -> PartitionOffsetsResponse:
        """Log ends of partitions that this broker leads, and ages of offsets."""

    async def wait_for_leaders(
        self, leaders: Mapping[tuple[str, int], int], *, timeout_ms: int
    ) -> set[tuple[str, int]]:
        """Waits until clients of this broker see these leaders; returns the late partitions."""

    async def next_producer_id(self) -> int:
        """A producer id that is never given out again."""
