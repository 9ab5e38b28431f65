"""The cluster as this broker knows it: the image, topic options and run-time options.

Passes each change to the plane as one delta. Options come from /config/topics/T, /config/brokers/N,
/config/brokers/<default> and /config/client-metrics/S; /config/changes announces changes (KIP-21).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import trio
from msgspec.structs import replace

from pyrklog.base.changes import Changes
from pyrklog.base.logs import get_logger
from pyrklog.cluster.client_metrics import ClientMetricsOptions
from pyrklog.cluster.image import LEADER_BEING_DELETED, ClusterImage, TopicEntry
from pyrklog.cluster.requests import TopicPartition, UpdateMetadataRequest
from pyrklog.cluster.run_time_limits import apply_limits
from pyrklog.config.broker import BrokerConfig
from pyrklog.config.option import InvalidValueError
from pyrklog.config.topic import TopicDefaults
from pyrklog.errors import ConfigError
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import (
    Metastore,
    MetastoreError,
    Node,
    NoNodeError,
    SessionExpiredError,
    StoreFailedError,
    WatchEvent,
)
from pyrklog.plane.core_plane import Plane
from pyrklog.plane.values import ImageDelta, PartitionImage
from pyrklog.protocol.inter_broker import PartitionInfo, TopicPartitions

GONE_MAX = 10_000
CHANGE_KEPT_MS = 15 * 60 * 1000
"""Any broker removes older announcements."""

RETRY_SECONDS = 1.0

log = get_logger("metadata")


class Metadata:
    def __init__(self, node_id: int, config: BrokerConfig, store: Metastore, plane: Plane) -> None:
        self.node_id = node_id
        self.config = config
        self.defaults = TopicDefaults(config)
        self.image = ClusterImage(self.defaults)
        self.changes = Changes()
        """Notified after each new image."""
        self.on_published: Callable[[ImageDelta], None] | None = None
        self.on_partitions_deleted: Callable[[Sequence[TopicPartition]], None] | None = None
        """Called when partitions are being deleted, before they leave the image."""
        self.on_options_changed: Callable[[], None] | None = None
        """Called when changed options of topics or brokers are known here."""
        self.client_metrics = ClientMetricsOptions(store, self._read, plane)
        self._store = store
        self._plane = plane
        self._told: dict[str, tuple[bytes, dict[int, PartitionInfo]]] | None = (
            None if config.zookeeper is None else {}
        )
        """Topic -> (id, partitions) as controllers told them last. None for a single broker, which
        has its store at hand.
        """
        self._controller_epoch = 0
        self._gone: dict[bytes, None] = {}
        """Ids of topics deleted in this controller's term, oldest first.

        An earlier request, late over a broken connection, would bring one back.
        """
        self._heading: ImageDelta | None = None
        """The last one whose brokers the plane has taken."""
        self._last_change = ""
        self._change_seen = trio.Event()

    # --- from the controller ---------------------------------------------------------------------

    async def follow_controller(self, changes: Changes, controller_id: Callable[[], int]) -> None:
        """Tells clients the controller that this broker sees, or none, until cancelled.

        While the store cannot be reached, the last known one stays.
        """
        while True:
            known = controller_id()
            if known >= 0 or self._store.is_reachable:
                self.image.set_brokers(known, self.image.brokers)
                self.publish()
            await changes.wait_until(lambda known=known: controller_id() != known)  # type: ignore[misc]

    async def load_options_of(self, topics: Iterable[TopicPartitions]) -> None:
        """Reads the options of new topics before they enter the image."""
        fresh = []
        for topic in topics:
            entry = self.image.topics.get(topic.topic)
            if entry is None or entry.id != topic.topic_id:
                fresh.append(topic.topic)
        if fresh:
            await self._load(fresh)

    def take_metadata(self, request: UpdateMetadataRequest) -> None:
        self.image.set_brokers(request.controller_id, request.brokers)
        if request.controller_epoch > self._controller_epoch:
            self._controller_epoch = request.controller_epoch
            self._gone.clear()
        if request.is_full:
            self._remove_others(request.topics)
        for topic in request.topics:
            self._take_topic(topic)
        self.publish()

    def _remove_others(self, topics: Sequence[TopicPartitions]) -> None:
        """Removes topics that the controller does not name: their deletion went unheard."""
        named = {topic.topic: topic for topic in topics}
        if self._told is not None:
            self._told = {name: told for name, told in self._told.items() if name in named}
        removed = []
        for entry in list(self.image.topics.values()):
            topic = named.get(entry.name)
            # A new topic of the same name replaces it below.
            if topic is None or (topic.topic_id != entry.id and not _standing(topic)):
                removed.append(entry.name)
                self._remove(entry, list(entry.partitions))
        if removed:
            log.info("deletions_unheard", topics=removed)

    def _remove(self, entry: TopicEntry, partitions: Sequence[int]) -> None:
        self._announce_deletion(entry, partitions)
        self.image.remove_partitions(entry.name, partitions)
        if not entry.partitions:
            self._remember_gone(entry.id)

    def _announce_deletion(self, entry: TopicEntry, partitions: Iterable[int]) -> None:
        if self.on_partitions_deleted is not None:
            self.on_partitions_deleted([(entry.name, index) for index in partitions])

    def _remember_gone(self, topic_id: bytes) -> None:
        if any(topic_id):  # topics older than ids all have zeros
            self._gone[topic_id] = None
            if len(self._gone) > GONE_MAX:
                del self._gone[next(iter(self._gone))]

    def take_partitions(self, topics: Sequence[TopicPartitions]) -> None:
        """Takes partitions of a LeaderAndIsr: the plane must know a topic before it leads in it."""
        for topic in topics:
            newer = [p for p in topic.partitions if self._is_newer(topic.topic, p)]
            self._take_topic(replace(topic, partitions=newer))
        self.publish()

    def _is_newer(self, topic: str, info: PartitionInfo) -> bool:
        known = self.image.partition(topic, info.partition)
        return known is None or info.leader_epoch > known.leader_epoch

    def told(self) -> list[TopicPartitions]:
        """All partitions as controllers told them last."""
        return [
            TopicPartitions(name, topic_id, list(partitions.values()))
            for name, (topic_id, partitions) in (self._told or {}).items()
        ]

    def _remember(self, topic: TopicPartitions) -> None:
        if self._told is None:
            return
        topic_id, partitions = self._told.get(topic.topic, (b"", {}))
        if topic_id != topic.topic_id:
            partitions = {}
        for info in topic.partitions:
            if info.leader == LEADER_BEING_DELETED:
                partitions.pop(info.partition, None)
            else:
                partitions[info.partition] = info
        if partitions:
            self._told[topic.topic] = (topic.topic_id, partitions)
        else:
            self._told.pop(topic.topic, None)

    def _take_topic(self, topic: TopicPartitions) -> None:
        if topic.topic_id in self._gone:
            return
        holder = self.image.name_of(topic.topic_id) if any(topic.topic_id) else None
        if holder not in (None, topic.topic) and _standing(topic):
            log.error("topic_set_aside", topic=topic.topic, reason=f"{holder} has the same id")
            return
        self._remember(topic)
        deleted = [p.partition for p in topic.partitions if p.leader == LEADER_BEING_DELETED]
        kept = [
            PartitionImage(p.partition, p.leader, p.leader_epoch, p.replicas, p.isr, p.offline)
            for p in _standing(topic)
        ]
        entry = self.image.topics.get(topic.topic)
        if kept:
            if entry is not None and entry.id != topic.topic_id:
                self._announce_deletion(entry, list(entry.partitions))
                self._remember_gone(entry.id)
            self.image.set_partitions(topic.topic, topic.topic_id, kept)
        if deleted and entry is not None and entry.id == topic.topic_id:
            self._remove(entry, deleted)

    def min_insync_replicas(self, topic: str, overrides: Mapping[str, str] | None) -> int | None:
        """The option with these overrides (None = those known here); None for an unknown topic."""
        if overrides is None:
            if topic not in self.image.topics:
                return None
            overrides = self.image.overrides(topic)
        return self.defaults.resolve(overrides).min_insync_replicas

    def publish(self) -> None:
        delta = self.image.take_delta()
        if delta is None:
            return
        try:
            self._plane.apply_image(delta)
        except Exception as error:
            log.error("image_refused", exc_info=error, topics=len(delta.topics))
            self._publish_apart(delta)
        else:
            self._heading = delta
        if self.on_published is not None:
            self.on_published(delta)
        self.changes.notify()

    def _publish_apart(self, delta: ImageDelta) -> None:
        """Applies a refused delta part by part. A refused part keeps its previous state."""
        heading = delta._replace(topics=[], removed_topics=[])
        if self._apply_part(heading, "brokers_set_aside", brokers=[b.id for b in delta.brokers]):
            self._heading = heading
        elif self._heading is not None:
            heading = self._heading._replace(topics=[], removed_topics=[])
            self.image.brokers = heading.brokers
        else:
            heading = heading._replace(brokers=[])
        for name in delta.removed_topics:
            part = heading._replace(removed_topics=[name])
            self._apply_part(part, "topic_set_aside", topic=name)
        for topic in delta.topics:
            part = heading._replace(topics=[topic])
            self._apply_part(part, "topic_set_aside", topic=topic.name)

    def _apply_part(self, part: ImageDelta, otherwise: str, **fields: object) -> bool:
        try:
            self._plane.apply_image(part._replace(version=self.image.next_version()))
        except Exception as error:
            log.error(otherwise, reason=f"the data plane refuses it: {error}", **fields)
            return False
        return True

    # --- options ---------------------------------------------------------------------------------

    async def _load(self, topics: Sequence[str]) -> dict[str, list[str]]:
        """Reads topics' options; returns the changed ones by topic."""
        changed = {}
        paths = [znodes.topic_config_path(name) for name in topics]
        nodes = await self._read(paths)
        for name, path, node in zip(topics, paths, nodes, strict=True):
            overrides: Mapping[str, str] = {}
            if node is not None:
                try:
                    overrides = znodes.decode_config(path, node.data)
                except znodes.ZnodeError as error:
                    log.error("bad_znode", reason=str(error))
            changed[name] = _changed(self.image.overrides(name), overrides)
            self.image.set_overrides(name, overrides)
        return changed

    async def _read(self, paths: Sequence[str]) -> list[Node | None]:
        """Retries until it can read: with defaults instead of its options a topic might
        lose data.
        """
        told = ""
        while True:
            try:
                return await self._store.get_many(paths)
            except StoreFailedError as error:
                if error.reason != told:
                    told = error.reason
                    log.error("options_not_read", reason=told)
                await trio.sleep(RETRY_SECONDS)

    async def load_broker_options(self) -> list[str]:
        """Takes the run-time options of this broker and of all; returns the changed ones."""
        config = await with_kept_options(self.config, self.node_id, self._store)
        if config is None:
            return []
        await apply_limits(config, self._plane)
        of_all, own = self.config.dynamic_default, self.config.dynamic_broker
        changed = {
            *_changed(of_all, config.dynamic_default),
            *_changed(own, config.dynamic_broker),
        }
        if changed:
            self.config = config
            self.defaults = TopicDefaults(config)
            self.image.set_defaults(self.defaults)
            self.publish()
        return sorted(changed)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follows announced changes of options until cancelled."""
        names = await self._store.children(znodes.CONFIG_CHANGES, self._on_change)
        # Earlier announcements are in the options that are read from now on.
        await self.load_broker_options()
        await self.client_metrics.load_all()
        self._last_change = names[-1] if names else ""
        if self.image.topics:
            # In a new session: changes meanwhile went unheard.
            await self._load(list(self.image.topics))
            self.publish()
        task_status.started()
        await self._purge(names)
        while True:
            await self._change_seen.wait()
            self._change_seen = trio.Event()
            try:
                names = await self._store.children(znodes.CONFIG_CHANGES, self._on_change)
                await self._follow([name for name in names if name > self._last_change])
                await self._purge(names)
            except SessionExpiredError:
                raise
            except Exception as error:
                # The options stay; serving goes on.
                log.error("options_not_followed", exc_info=error)
                await trio.sleep(RETRY_SECONDS)
                self._change_seen.set()

    def _on_change(self, _event: WatchEvent) -> None:
        self._change_seen.set()

    async def _follow(self, names: Sequence[str]) -> None:
        paths = [f"{znodes.CONFIG_CHANGES}/{name}" for name in names]
        topics: dict[str, None] = {}
        subscriptions: dict[str, None] = {}
        brokers = False
        for path, node in zip(paths, await self._read(paths), strict=True):
            if node is None:
                continue
            try:
                kind, _, entity = znodes.decode_config_change(path, node.data).partition("/")
            except znodes.ZnodeError as error:
                log.error("bad_znode", reason=str(error))
                continue
            if kind == "topics":
                topics[entity] = None
            elif kind == "brokers":
                brokers = True
            elif kind == "client-metrics":
                subscriptions[znodes.client_metrics_name(entity)] = None
        of_topics: Mapping[str, Sequence[str]] = {}
        of_brokers: Sequence[str] = ()
        if topics:
            of_topics = await self._load([name for name in topics if name in self.image.topics])
        if brokers:
            of_brokers = await self.load_broker_options()
        if subscriptions:
            await self.client_metrics.load(list(subscriptions))
            log.info("client_metrics_changed", names=list(subscriptions)[:10])
        self._last_change = max([self._last_change, *names])
        self.publish()
        self.changes.notify()
        if topics or brokers:
            if self.on_options_changed is not None:
                self.on_options_changed()
            named = {name: list(of_topics.get(name, ())) for name in topics}
            log.info("options_changed", topics=named, broker=list(of_brokers))

    def followed(self, change_path: str) -> bool:
        """Whether the announcement at this path has taken effect here."""
        return change_path.rpartition("/")[2] <= self._last_change

    async def _purge(self, names: Sequence[str]) -> None:
        paths = [f"{znodes.CONFIG_CHANGES}/{name}" for name in names]
        nodes = await self._store.get_many(paths)
        if not nodes or nodes[-1] is None:
            return
        # The newest node's time stands for now: the store's clock, not this machine's.
        horizon_ms = nodes[-1].stat.ctime_ms - CHANGE_KEPT_MS
        for path, node in zip(paths, nodes, strict=True):
            if node is not None and node.stat.ctime_ms < horizon_ms:
                try:
                    await self._store.delete(path)
                except MetastoreError:
                    pass  # another broker was faster


async def with_kept_options(
    config: BrokerConfig, node_id: int, store: Metastore
) -> BrokerConfig | None:
    """The options with those in the store for this broker and for all, without bad ones, which are
    logged; None where they cannot be read.
    """
    found = {}
    for entity in (znodes.DEFAULT_ENTITY, str(node_id)):
        path = znodes.broker_config_path(entity)
        try:
            node = await store.get(path)
            found[entity] = znodes.decode_config(path, node.data)
        except NoNodeError:
            found[entity] = {}
        except znodes.ZnodeError as error:
            log.error("bad_znode", reason=str(error))
            return None
    good = {
        entity: {name: value for name, value in kept.items() if _is_good(config, name, value)}
        for entity, kept in found.items()
    }
    try:
        return config.with_dynamic(default=good[znodes.DEFAULT_ENTITY], broker=good[str(node_id)])
    except (ConfigError, InvalidValueError) as error:
        log.error("bad_dynamic_options", reason=str(error))
        return None


def _is_good(config: BrokerConfig, name: str, value: str) -> bool:
    try:
        config.with_dynamic(default={}, broker={name: value})
    except (ConfigError, InvalidValueError) as error:
        log.error("bad_dynamic_option", option=name, reason=str(error))
        return False
    return True


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Names of changed options. Values may be secrets."""
    names = before.keys() | after.keys()
    return sorted(name for name in names if before.get(name) != after.get(name))


def _standing(topic: TopicPartitions) -> list[PartitionInfo]:
    return [info for info in topic.partitions if info.leader != LEADER_BEING_DELETED]
