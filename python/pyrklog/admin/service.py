from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from functools import partial

import trio

from pyrklog.admin.configs import ConfigAdmin
from pyrklog.admin.producer_ids import ProducerIds
from pyrklog.admin.record_deletion import RecordDeletion
from pyrklog.admin.topic_writes import store_error
from pyrklog.admin.topics import TopicAdmin
from pyrklog.cluster.image import INTERNAL_TOPICS, TopicEntry
from pyrklog.cluster.metadata import Metadata
from pyrklog.controller.state_log import LogPiece, StateChangeLog
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.handlers.service import (
    AlteredConfigs,
    ClusterBroker,
    ClusterDescription,
    ClusterService,
    ConfigAlteration,
    ConfigResource,
    DeletedRecords,
    DeletedTopic,
    DeleteRecordsTarget,
    DescribedConfigs,
    LogDirInfo,
    LogDirPartition,
    NamedResult,
    PartitionsSpec,
    TopicInfo,
    TopicRef,
    TopicResult,
    TopicSpec,
)
from pyrklog.metastore.interface import MetastoreError
from pyrklog.plane.core_plane import Plane
from pyrklog.plane.dataplane import DigestRange, ReplicaDigest
from pyrklog.protocol.observation import Outcome

BROKERS_WAIT_SECONDS = 20.0
"""Shorter than the clients' request time-outs."""

Observe = Callable[[int, float], Awaitable[Outcome]]
"""Asks another broker of the cluster; the number is a time-out in seconds."""


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
        observe: Observe | None,
    ) -> None:
        """``observe`` None: the broker is alone."""
        self.node_id = node_id
        self._cluster_id = cluster_id
        self._plane = plane
        self._metadata = metadata
        self._records = RecordDeletion(plane, metadata)
        metadata.on_published = self._records.image_changed
        self._topics = topics
        self._configs = configs
        self._producer_ids = producer_ids
        self._controller_id = controller_id
        self._state_log = state_log
        self._observe = observe

    def reserve_topics(self, names: Collection[str]) -> None:
        """Topics of these names are not created: unknown folders have them."""
        self._topics.reserved = frozenset(names)

    async def create_topics(
        self, specs: Sequence[TopicSpec], *, validate_only: bool, timeout_ms: int
    ) -> list[TopicResult]:
        return await self._topics.create(specs, validate_only=validate_only, timeout_ms=timeout_ms)

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

    async def auto_create_topics(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        return await self._topics.auto_create(names)

    async def delete_topics(
        self, topics: Sequence[TopicRef], *, timeout_ms: int
    ) -> list[DeletedTopic]:
        return await self._topics.delete(topics, timeout_ms=timeout_ms)

    async def create_partitions(
        self, specs: Sequence[PartitionsSpec], *, validate_only: bool, timeout_ms: int
    ) -> list[NamedResult]:
        return await self._topics.add_partitions(
            specs, validate_only=validate_only, timeout_ms=timeout_ms
        )

    async def describe_configs(
        self,
        resources: Sequence[tuple[ConfigResource, Set[str] | None]],
        *,
        include_synonyms: bool,
        include_documentation: bool,
    ) -> list[DescribedConfigs]:
        return await self._configs.describe(
            resources,
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
        )

    async def incremental_alter_configs(
        self,
        alterations: Sequence[tuple[ConfigResource, Sequence[ConfigAlteration]]],
        *,
        validate_only: bool,
    ) -> list[AlteredConfigs]:
        return await self._configs.alter_incrementally(alterations, validate_only=validate_only)

    async def alter_configs(
        self,
        replacements: Sequence[tuple[ConfigResource, Mapping[str, str | None]]],
        *,
        validate_only: bool,
    ) -> list[AlteredConfigs]:
        return await self._configs.alter_fully(replacements, validate_only=validate_only)

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

    async def delete_records(
        self, targets: Sequence[DeleteRecordsTarget], *, timeout_ms: int, host: str
    ) -> list[DeletedRecords]:
        return await self._records.delete(targets, timeout_ms=timeout_ms, host=host)

    def log_start_moved(self, topic: str, partition: int) -> None:
        self._records.log_start_moved(topic, partition)

    async def describe_log_dirs(
        self, partitions: Sequence[tuple[str, Sequence[int]]] | None
    ) -> list[LogDirInfo]:
        wanted = None
        if partitions is not None:
            wanted = {(topic, index) for topic, indexes in partitions for index in indexes}
        return [
            LogDirInfo(
                usage.path,
                ErrorCode(usage.error_code),
                usage.total_bytes,
                usage.usable_bytes,
                [
                    LogDirPartition(*item)
                    for item in usage.partitions
                    if wanted is None or (item[0], item[1]) in wanted
                ],
            )
            for usage in await self._plane.describe_log_dirs()
        ]

    async def replica_digest(self, topic: str, partition: int, asked: DigestRange) -> ReplicaDigest:
        return await self._plane.replica_digest(topic, partition, asked)

    async def state_changes(self, *, older: bool, position: int, max_bytes: int) -> LogPiece:
        read = partial(self._state_log.read, older=older, position=position, max_bytes=max_bytes)
        return await trio.to_thread.run_sync(read)

    async def observe(self, broker: int, seconds: float) -> Outcome:
        if self._observe is None:
            return Outcome.UNKNOWN
        return await self._observe(broker, seconds)

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
