"""The composition root: one nursery that holds a broker together. No policy.

Order of a start: metadata store, plane (which locks the log directories), registration,
controller, the first image, and only then the listeners: whoever can connect gets a whole answer.
Order of an end: the plane refuses work, writes and syncs; then the session and the store close.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from pyrklog import banner, logs
from pyrklog.admin.configs import ConfigAdmin
from pyrklog.admin.producer_ids import ProducerIds
from pyrklog.admin.service import Administration
from pyrklog.admin.topics import TopicAdmin
from pyrklog.cache_place import cache_place
from pyrklog.config.broker import BrokerConfig
from pyrklog.config.listeners import Endpoint
from pyrklog.controller.driver import ControllerDriver, ControllerSettings
from pyrklog.controller.service import ClusterService
from pyrklog.controller.state_log import StateChangeLog
from pyrklog.dataplane import CorePlane, Plane, PlaneSettings
from pyrklog.errors import EX_IO, StartError, TemporaryError
from pyrklog.events import EventHandler, Handlers
from pyrklog.folders import compare_folders, warn_of_full_disks, warn_of_unconfirmed
from pyrklog.identity import (
    choose_cluster_id,
    choose_node_id,
    create_paths,
    memory_bytes,
    read_identities,
)
from pyrklog.metadata import Metadata
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import open_store
from pyrklog.metastore.interface import (
    Create,
    Metastore,
    NodeExistsError,
    Set,
    Stat,
    StoreFailedError,
)
from pyrklog.replication.driver import ReplicationDriver

if TYPE_CHECKING:
    from pyrklog.controller.requests import TopicPartition
    from pyrklog.groups.driver import GroupCoordinator

LEADERS_WAIT_SECONDS = 0.3
"""How much later a broker listens so that the partitions it knew are led when clients return."""
SHUTDOWN_GRACE_MS = 1200
SHUTDOWN_LIMIT_SECONDS = 1.7
"""SIGTERM to exit within two seconds, the closing of the store included."""
SAME_SIGNAL_SECONDS = 0.1
"""timeout(1) signals the process and then its group: that is meant as one signal, not as two."""
OPEN_FILES_WARN = 4096
EXIT_INTERRUPTED = 130
EXIT_BUG = 70
"""An error that nobody foresaw; it is in the log."""

log = logs.get_logger("broker")


def run_broker(config: BrokerConfig) -> int:
    """Runs a broker until a signal ends it; returns the exit code.

    Raises :class:`StartError` (or its kin) when it cannot start.
    """
    try:
        return trio.run(Broker(config).run)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt):
            return EXIT_INTERRUPTED
        failure = _start_error_in(group)
        if failure is None:
            log.error("crashed", exc_info=group)
            return EXIT_BUG
        raise failure from None
    finally:
        logs.ensure_configured()


def _start_error_in(error: BaseException) -> StartError | None:
    """The one sentence in a nursery's group of errors."""
    if isinstance(error, StartError):
        return error
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            found = _start_error_in(inner)
            if found is not None:
                return found
    return None


class Broker:
    """One broker process."""

    def __init__(
        self, config: BrokerConfig, make_plane: Callable[[PlaneSettings], Plane] = CorePlane
    ) -> None:
        self.config = config
        self.ports: dict[str, int] = {}
        """Port of each listener, once it listens."""
        self.ready = trio.Event()
        self.service: ClusterService | None = None
        """The control plane, while it runs."""
        self._make_plane = make_plane
        self._state_log = StateChangeLog(config.meta_dir)
        self._end = trio.Event()
        self._exit_code = 0
        self._log_dirs_failed = False

    def stop(self) -> None:
        """Begins an orderly end."""
        self._end.set()

    async def run(self) -> int:
        """Starts, serves, ends; the exit code."""
        for notice in self.config.notices:
            log.warning("option_ignored", notice=notice)
        _raise_file_limit()
        identities = read_identities(self.config.log_dirs)
        opened = await open_store(self.config.meta_dir)
        try:
            store = opened.session()
            try:
                await create_paths(store, znodes.PERSISTENT_PATHS)
                node_id = await choose_node_id(self.config.configured_node_id, identities, store)
                cluster_id = await choose_cluster_id(store, identities)
                plane = self._make_plane(self._plane_settings(node_id, cluster_id))
                known_dirs = {item.directory for item in identities}
                await self._run_with(node_id, cluster_id, store, plane, known_dirs)
            except StoreFailedError as error:
                raise StartError(f"The broker cannot go on: {error.reason}.") from None
            finally:
                self._state_log.close()
                with trio.CancelScope(shield=True):
                    await store.close()
        finally:
            await opened.close()
        log.info("stopped", exit_code=self._exit_code)
        return self._exit_code

    async def _run_with(
        self,
        node_id: int,
        cluster_id: str,
        store: Metastore,
        plane: Plane,
        known_dirs: Collection[Path],
    ) -> None:
        await self._adopt(node_id, cluster_id, store, plane)
        metadata = Metadata(node_id, self.config, store, plane)
        replication = ReplicationDriver(node_id, metadata, plane)
        controller = ControllerDriver(
            node_id,
            store,
            lambda _: replication,
            self._controller_settings(metadata),
            self._state_log,
        )
        service = self._service(
            node_id, cluster_id, store, plane, metadata, replication, controller
        )
        self.service = service
        groups = cache(partial(self._groups, metadata, replication, service, plane))
        async with trio.open_nursery() as nursery:
            events = EventHandler(
                node_id=node_id,
                plane=plane,
                store=store,
                service=service,
                replication=replication,
                load_handlers=lambda: _load_handlers(service, groups(), plane),
                log_dir_count=len(self.config.log_dirs),
                on_all_log_dirs_failed=self._all_log_dirs_failed,
                nursery=nursery,
            )
            nursery.start_soon(self._watch_signals)
            nursery.start_soon(plane.run, events)
            nursery.start_soon(replication.run)
            # A listener on any free port must be bound before its port can be registered.
            self._listen(plane, [item for item in self.config.listeners.bound if not item.port])
            replication.replicas.broker_epoch = await self._register(node_id, store)
            being_deleted = await store.children(znodes.DELETE_TOPICS)
            await nursery.start(metadata.run)
            await nursery.start(controller.run)
            await metadata.changes.wait_until(lambda: bool(metadata.image.brokers))
            unknown = compare_folders(
                node_id,
                plane.found_partitions(),
                metadata.image,
                being_deleted,
                self.config.log_dirs,
                known_dirs,
            )
            service.reserve_topics(unknown)
            warn_of_unconfirmed(metadata.image)
            warn_of_full_disks(self.config.log_dirs)
            await _wait_for_leaders(node_id, metadata, replication)
            self._listen(plane, [item for item in self.config.listeners.bound if item.port])
            self.ready.set()
            seconds = banner.seconds_since_exec()
            await self._announce(seconds, cluster_id, node_id)
            # Loading code takes longer than starting; whoever connects before it is done waits.
            await trio.to_thread.run_sync(_import_groups)
            await nursery.start(groups().run)
            metadata.on_partitions_deleted = partial(_forget_offsets, nursery, groups())
            await trio.to_thread.run_sync(events.preload)
            _collect_garbage_from_now_on()
            await self._end.wait()
            await self._shut_down(plane)
            nursery.cancel_scope.cancel()

    async def _adopt(self, node_id: int, cluster_id: str, store: Metastore, plane: Plane) -> None:
        """Takes over topics of a directory that another broker wrote; see docs/adoption.md."""
        found = plane.found_partitions()
        used, record = await store.get_many([znodes.CONTROLLER_EPOCH, znodes.ADOPTION])
        if found and (used is None or record is not None):
            from pyrklog.adoption.adopt import Zookeeper, adopt

            address = self.config.string("pyrklog.adopt.zookeeper")
            zookeeper = Zookeeper(address, cluster_id) if address is not None else None
            segment_bytes = self.config.integer("offsets.topic.segment.bytes")
            await adopt(node_id, store, found, self.config.log_dirs, segment_bytes, zookeeper)

    # --- parts -----------------------------------------------------------------------------------

    def _service(
        self,
        node_id: int,
        cluster_id: str,
        store: Metastore,
        plane: Plane,
        metadata: Metadata,
        replication: ReplicationDriver,
        controller: ControllerDriver,
    ) -> Administration:
        return Administration(
            node_id=node_id,
            cluster_id=cluster_id,
            plane=plane,
            metadata=metadata,
            topics=TopicAdmin(store, metadata, replication.replicas, lambda: controller.leads),
            configs=ConfigAdmin(node_id, store, metadata),
            producer_ids=ProducerIds(node_id, store),
            controller_id=lambda: controller.controller_id,
        )

    def _groups(
        self,
        metadata: Metadata,
        replication: ReplicationDriver,
        service: Administration,
        plane: Plane,
    ) -> GroupCoordinator:
        from pyrklog.groups.driver import GroupCoordinator
        from pyrklog.groups.options import group_options, group_settings
        from pyrklog.groups.topic import ClusterOffsetsTopic

        return GroupCoordinator(
            group_settings(self.config),
            group_options(self.config),
            plane,
            ClusterOffsetsTopic(metadata, replication.replicas, service),
            wall_ms=lambda: time.time_ns() // 1_000_000,
            fresh_id=lambda: str(uuid.uuid4()),
        )

    def _controller_settings(self, metadata: Metadata) -> ControllerSettings:
        def unclean_topics(overrides: Mapping[str, Mapping[str, str]]) -> frozenset[str]:
            resolve = metadata.defaults.resolve
            return frozenset(
                name for name, given in overrides.items() if resolve(given).unclean_leader_election
            )

        interval = None
        if self.config.boolean("auto.leader.rebalance.enable"):
            interval = self.config.integer("leader.imbalance.check.interval.seconds")
        return ControllerSettings(
            unclean_topics=unclean_topics,
            delete_topic_enable=self.config.boolean("delete.topic.enable"),
            rebalance_interval_seconds=interval,
            imbalance_percent=self.config.integer("leader.imbalance.per.broker.percentage"),
        )

    def _plane_settings(self, node_id: int, cluster_id: str) -> PlaneSettings:
        number = self.config.integer
        cache_max_bytes = number("pyrklog.cache.max.bytes")
        unwritten_max_bytes = number("pyrklog.unwritten.max.bytes")
        place = cache_place(self.config.string("pyrklog.cache.dir"), cache_max_bytes)
        if place.reason is not None:
            log.info("no_block_cache", reason=place.reason)
        return PlaneSettings(
            node_id=node_id,
            cluster_id=cluster_id,
            log_dirs=[str(path) for path in self.config.log_dirs],
            network_threads=number("num.network.threads"),
            reader_threads=number("num.io.threads"),
            recovery_threads_per_dir=number("num.recovery.threads.per.data.dir"),
            writer_threads_per_dir=number("pyrklog.writer.threads.per.data.dir"),
            socket_request_max_bytes=number("socket.request.max.bytes"),
            receive_buffers_max_bytes=self.config.receive_buffers_max_bytes(memory_bytes()),
            control_queue_max_requests=number("queued.max.requests"),
            connections_max_idle_ms=number("connections.max.idle.ms"),
            max_connections=number("max.connections"),
            max_connections_per_ip=number("max.connections.per.ip"),
            socket_send_buffer_bytes=number("socket.send.buffer.bytes"),
            socket_receive_buffer_bytes=number("socket.receive.buffer.bytes"),
            fetch_max_bytes=number("fetch.max.bytes"),
            fetch_session_slots=number("max.incremental.fetch.session.cache.slots"),
            fetch_read_path=self.config.string("fetch.read.path") or "auto",
            unwritten_max_bytes=None if unwritten_max_bytes < 0 else unwritten_max_bytes,
            cache_dir=None if place.directory is None else str(place.directory),
            cache_max_bytes=None if cache_max_bytes < 0 else cache_max_bytes,
            cache_flush_bytes=number("pyrklog.cache.flush.bytes"),
            cache_flush_ms=number("pyrklog.cache.flush.ms"),
            cache_direct_min_bytes=number("pyrklog.cache.direct.min.bytes"),
            recovery_checkpoint_interval_ms=number("log.flush.offset.checkpoint.interval.ms"),
            log_start_checkpoint_interval_ms=number(
                "log.flush.start.offset.checkpoint.interval.ms"
            ),
            high_watermark_checkpoint_interval_ms=number(
                "replica.high.watermark.checkpoint.interval.ms"
            ),
            retention_check_interval_ms=number("log.retention.check.interval.ms"),
            producer_id_expiration_ms=number("producer.id.expiration.ms"),
            auto_create_topics=self.config.boolean("auto.create.topics.enable"),
        )

    # --- start -----------------------------------------------------------------------------------

    def _listen(self, plane: Plane, endpoints: Sequence[Endpoint]) -> None:
        for item in endpoints:
            port = plane.listen(item.name, item.host or "0.0.0.0", item.port)
            self.ports[item.name] = port
            log.info("listening", listener=item.name, host=item.host or "*", port=port)

    def _advertised(self) -> list[tuple[str, str, int]]:
        listeners = self.config.listeners
        return [
            (shown.name, shown.host, shown.port or self.ports.get(bound.name, bound.port))
            for bound, shown in zip(listeners.bound, listeners.advertised, strict=True)
        ]

    async def _register(self, node_id: int, store: Metastore) -> int:
        """Puts the broker into /brokers/ids; returns its epoch."""
        registration = znodes.BrokerRegistration(
            self._advertised(),
            self.config.listeners.protocols,
            self.config.string("broker.rack"),
            time.time_ns() // 1_000_000,
        )
        path = znodes.broker_path(node_id)
        try:
            results = await store.multi(
                [
                    Create(path, b"", ephemeral=True),
                    Set(path, znodes.encode_broker(registration), 0),
                ]
            )
        except NodeExistsError:
            raise TemporaryError(
                f"Another broker is registered as number {node_id}.",
                fix="give this one another broker.id, or wait until the other's session ends",
            ) from None
        stat = results[1]
        assert isinstance(stat, Stat)
        return stat.czxid

    async def _announce(self, seconds: float, cluster_id: str, node_id: int) -> None:
        bound = [item._replace(port=self.ports[item.name]) for item in self.config.listeners.bound]
        terminal = sys.stdout.isatty()
        if terminal:
            print(banner.banner(bound, self.config.log_dirs, seconds), flush=True)
        log.info(
            "ready",
            node_id=node_id,
            cluster_id=cluster_id,
            log_dirs=[str(path) for path in self.config.log_dirs],
            seconds=round(seconds, 3),
        )
        await trio.to_thread.run_sync(logs.load)
        logs.ensure_configured()

    # --- end -------------------------------------------------------------------------------------

    def _all_log_dirs_failed(self) -> None:
        log.error("all_log_dirs_failed", fix="look at the disks; nothing can be served")
        self._exit_code = EX_IO
        self._end.set()

    async def _watch_signals(self) -> None:
        """The first one ends the broker in good order, a second one at once."""
        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # nohup would have it ignored
            numbers.append(signal.SIGHUP)
        told_at = 0.0
        with trio.open_signal_receiver(*numbers) as received:
            async for number in received:
                if self._end.is_set():
                    if trio.current_time() - told_at < SAME_SIGNAL_SECONDS:
                        continue
                    # Whatever hangs must not hold us: the logs recover at the next start.
                    os._exit(EXIT_INTERRUPTED)
                log.info("shutting_down", signal=signal.Signals(number).name)
                told_at = trio.current_time()
                self._end.set()

    async def _shut_down(self, plane: Plane) -> None:
        began = trio.current_time()
        clean = False
        log.info("flushing")
        with trio.move_on_after(SHUTDOWN_LIMIT_SECONDS):
            clean = await plane.shutdown(SHUTDOWN_GRACE_MS)
        seconds = round(trio.current_time() - began, 3)
        if clean:
            log.info("flushed", seconds=seconds)
        else:
            log.warning(
                "not_flushed", seconds=seconds, consequence="logs recover at the next start"
            )
            self._exit_code = self._exit_code or 1


def _collect_garbage_from_now_on() -> None:
    # What is there now stays: the collector need never look at it again.
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _import_groups() -> None:
    import pyrklog.groups.driver
    import pyrklog.groups.topic  # noqa: F401


def _forget_offsets(
    nursery: trio.Nursery, groups: GroupCoordinator, partitions: Sequence[TopicPartition]
) -> None:
    nursery.start_soon(groups.partitions_deleted, partitions)


async def _wait_for_leaders(
    node_id: int, metadata: Metadata, replication: ReplicationDriver
) -> None:
    """Waits a little for this broker's partitions: not every client retries NOT_LEADER_OR_FOLLOWER
    (librdkafka's watermark look-up does not), and most starts need a few milliseconds only.
    """
    replicas = replication.replicas

    def are_settled() -> bool:
        return all(
            replicas.is_settled((name, index))
            for name, entry in metadata.image.topics.items()
            for index, partition in entry.partitions.items()
            if node_id in partition.replicas
        )

    with trio.move_on_after(LEADERS_WAIT_SECONDS):
        await metadata.changes.wait_until(are_settled)


def _load_handlers(service: Administration, groups: GroupCoordinator, plane: Plane) -> Handlers:
    from pyrklog.handlers import build_handlers

    return build_handlers(service, groups, plane.park)


def _raise_file_limit() -> None:
    """Segments and connections need many file handles: the soft limit becomes the hard one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("file_limit_kept", limit=soft, reason=str(error))
            hard = soft
    if hard != resource.RLIM_INFINITY and hard < OPEN_FILES_WARN:
        log.warning(
            "file_limit_low",
            limit=hard,
            needed="three for each segment of each partition, and one for each connection",
            fix="ulimit -n 100000 before the start, or LimitNOFILE=100000 in the systemd unit",
        )
