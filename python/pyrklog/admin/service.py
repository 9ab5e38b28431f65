from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial

import trio

from pyrklog.admin.configs import ConfigAdmin
from pyrklog.admin.producer_ids import ProducerIds
from pyrklog.admin.record_deletion import RecordDeletion
from pyrklog.admin.topic_writes import store_error
from pyrklog.admin.topics import TopicAdmin
from pyrklog.cluster.image import INTERNAL_TOPICS, TopicEntry
from pyrklog.cluster.metadata import Metadata
from pyrklog.cluster.requests import TopicPartition
from pyrklog.cluster.topic_pages import TopicPage, read_page
from pyrklog.controller.state_log import LogPiece, StateChangeLog
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.handlers.service import (
    ClusterBroker,
    ClusterDescription,
    ClusterService,
    TopicInfo,
    TopicResult,
    TopicSpec,
)
from pyrklog.lag.start import Lag
from pyrklog.metastore.interface import MetastoreError
from pyrklog.plane.core_plane import Plane
from pyrklog.plane.seam import LogDirUsage
from pyrklog.protocol.health import BrokerHealthRequest, BrokerHealthResponse
from pyrklog.protocol.observation import Outcome
from pyrklog.telemetry.client_metrics import ClientMetrics

BROKERS_WAIT_SECONDS = 20.0
"""Shorter than the clients' request time-outs."""

Observe = Callable[[int, float], Awaitable[Outcome]]
"""Asks another broker of the cluster; the number is a time-out in seconds."""

AskHealth = Callable[[BrokerHealthRequest, str], Awaitable[BrokerHealthResponse]]
"""For a client at this address."""


class Administration:
    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        plane: Plane,
        metadata: Metadata,
        topics: TopicAdmin,
        configs: ConfigAdmin,
        producer_ids: ProducerIds,
        controller_id: Callable[[], int],
        state_log: StateChangeLog,
        client_metrics: ClientMetrics,
        observe: Observe | None,
        health: AskHealth,
        lag: Lag,
    ) -> None:
        """``observe`` None: the broker is alone."""
        self.node_id = node_id
        self._cluster_id = cluster_id
        self._plane = plane
        self._metadata = metadata
        records = RecordDeletion(plane, metadata)
        metadata.on_published = records.image_changed
        self._topics = topics
        self.create_topics = topics.create
        self.auto_create_topics = topics.auto_create
        self.delete_topics = topics.delete
        self.create_partitions = topics.add_partitions
        self.describe_configs = configs.describe
        self.incremental_alter_configs = configs.alter_incrementally
        self.alter_configs = configs.alter_fully
        self.delete_records = records.delete
        self.log_start_moved = records.log_start_moved
        self.replica_digest = plane.replica_digest
        self._producer_ids = producer_ids
        self._controller_id = controller_id
        self._state_log = state_log
        self.client_metrics = client_metrics
        self._observe = observe
        self._health = health
        self.group_lag = lag.group_lag
        self.partition_offsets = lag.partition_offsets

    def reserve_topics(self, names: Collection[str]) -> None:
        """Topics of these names are not created: unknown folders have them."""
        self._topics.reserved = frozenset(names)

    async def create_own_topic(self, spec: TopicSpec, *, timeout_ms: int) -> TopicResult:
        [result] = await self._topics.create(
            [spec], validate_only=False, timeout_ms=timeout_ms, as_controller=False
        )
        return result

    @property
    def knows_brokers(self) -> bool:
        return bool(self._metadata.image.brokers)

    async def wait_for_brokers(self) -> None:
        with trio.move_on_after(BROKERS_WAIT_SECONDS):
            await self._metadata.changes.wait_until(lambda: self.knows_brokers)

    def describe_cluster(self, listener: str) -> ClusterDescription:
        brokers = [
            ClusterBroker(broker.id, host, port, broker.rack)
            for broker in self._metadata.image.brokers
            for name, host, port in broker.endpoints
            if name == listener
        ]
        return ClusterDescription(self._cluster_id, self._controller_id(), brokers)

    def topics(self) -> Sequence[TopicInfo]:
        return [_info(entry) for _, entry in sorted(self._metadata.image.topics.items())]

    def topic(self, name: str) -> TopicInfo | None:
        entry = self._metadata.image.topics.get(name)
        return _info(entry) if entry else None

    def topic_page(
        self, names: Sequence[str] | None, start: TopicPartition, limit: int, listener: str
    ) -> TopicPage:
        most = self._metadata.config.integer("max.request.partition.size.limit")
        return read_page(self._metadata.image, names, start, max(1, min(limit, most)), listener)

    async def alter_log_dirs(self, wanted: Sequence[tuple[str, int, str]]) -> Sequence[int]:
        return self._plane.alter_log_dirs(wanted)

    async def describe_log_dirs(
        self, partitions: Sequence[tuple[str, Sequence[int]]] | None
    ) -> Sequence[LogDirUsage]:
        found = await self._plane.describe_log_dirs()
        if partitions is None:
            return found
        wanted = {(topic, index) for topic, indexes in partitions for index in indexes}
        return [
            usage._replace(partitions=[one for one in usage.partitions if one[:2] in wanted])
            for usage in found
        ]

    async def state_changes(self, *, older: bool, position: int, max_bytes: int) -> LogPiece:
        read = partial(self._state_log.read, older=older, position=position, max_bytes=max_bytes)
        return await trio.to_thread.run_sync(read)

    async def observe(self, broker: int, seconds: float) -> Outcome:
        if self._observe is None:
            return Outcome.UNKNOWN
        return await self._observe(broker, seconds)

    async def health(self, request: BrokerHealthRequest, address: str) -> BrokerHealthResponse:
        return await self._health(request, address)

    async def wait_for_leaders(
        self, leaders: Mapping[tuple[str, int], int], *, timeout_ms: int
    ) -> set[tuple[str, int]]:
        late = set(leaders)

        def are_known() -> bool:
            for key in list(late):
                partition = self._metadata.image.partition(*key)
                if partition is not None and partition.leader == leaders[key]:
                    late.discard(key)
            return not late

        if not are_known():
            with trio.move_on_after(max(0, timeout_ms) / 1000):
                await self._metadata.changes.wait_until(are_known)
        return late

    async def next_producer_id(self) -> int:
        try:
            return await self._producer_ids.next()
        except MetastoreError as error:
            # Java producers up to 3.2 stop at any other code (KAFKA-14417).
            message = store_error(error).message
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message) from None


def _info(entry: TopicEntry) -> TopicInfo:
    return TopicInfo(entry.name, entry.id, len(entry.partitions), entry.name in INTERNAL_TOPICS)


def _is_the_service(administration: Administration) -> ClusterService:
    return administration  # the type checker compares class and interface
