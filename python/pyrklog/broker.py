"""The composition root: one nursery that holds a broker together. No policy.

Start: metadata store, plane (which locks the log directories), registration, controller, the first
image, then the listeners, so that a client that connects gets a whole answer. End: the plane
refuses work, writes and syncs; then the session and the store close.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from pyrklog.admin.configs import ConfigAdmin
from pyrklog.admin.producer_ids import ProducerIds
from pyrklog.admin.service import Administration, Observe
from pyrklog.admin.topics import TopicAdmin
from pyrklog.base import logs
from pyrklog.base.hosts import EVERYWHERE
from pyrklog.base.problems import Problem
from pyrklog.cluster.metadata import Metadata, with_kept_options
from pyrklog.cluster.settled import wait_for_leaders
from pyrklog.config.broker import BrokerConfig
from pyrklog.config.listeners import Endpoint
from pyrklog.controller.api import ControllerApi
from pyrklog.controller.driver import ControllerDriver
from pyrklog.controller.local_channel import Channels, LocalChannel
from pyrklog.controller.settings import controller_settings
from pyrklog.controller.state_log import StateChangeLog
from pyrklog.controller.takeover.standby import Patience, Standby
from pyrklog.errors import StartError, TemporaryError
from pyrklog.handlers.client_table import ClientTable
from pyrklog.handlers.events import EventHandler
from pyrklog.handlers.service import ClusterService
from pyrklog.lag.start import Lag
from pyrklog.membership.current_store import CurrentStore
from pyrklog.membership.life import LastLife, has_all
from pyrklog.membership.member import Member
from pyrklog.membership.store_connection import store_connection
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Metastore, SessionExpiredError, StoreFailedError
from pyrklog.observability.sources import Sources, Stage
from pyrklog.observability.start import Http, Observability, bound_address, prepared
from pyrklog.plane.core_plane import Plane, api_table, memory_bytes
from pyrklog.plane.plane_settings import plane_settings
from pyrklog.plane.seam import PlaneSettings
from pyrklog.replication.driver import ReplicationDriver
from pyrklog.start import banner
from pyrklog.start.end import EXIT_INTERRUPTED, BrokerEnd
from pyrklog.start.failed_start import StartAttempt, start_error_in
from pyrklog.start.file_limit import raise_file_limit
from pyrklog.start.folders import compare_folders, warn_of_full_disks, warn_of_unconfirmed
from pyrklog.start.garbage import collect_garbage_from_now_on
from pyrklog.start.identity import (
    DirectoryIdentity,
    choose_cluster_id,
    choose_member_id,
    choose_node_id,
    create_paths,
    enter_cluster,
    read_identities,
)
from pyrklog.start.overruled import tell_overruled
from pyrklog.start.service_manager import ServiceManager
from pyrklog.start.slow_start import tell_slow_start
from pyrklog.start.standing import note_standing
from pyrklog.telemetry.client_metrics import ClientMetrics

if TYPE_CHECKING:
    from pyrklog.admin.coordinators import Coordinators
    from pyrklog.cluster.requests import TopicPartition
    from pyrklog.groups.group_manager import GroupManager
    from pyrklog.handlers.dispatch import Handlers
    from pyrklog.peers.peers import Peers

SESSION_END_SECONDS = 3.0
"""ZooKeeper notices the end of a session a tick or two after its time-out."""
EXIT_BUG = 70
"""An unexpected error; it is in the log."""

log = logs.get_logger("broker")


def run_broker(config: BrokerConfig, make_plane: Callable[[PlaneSettings], Plane] = Plane) -> int:
    """Runs a broker until a signal ends it; returns the exit code.

    Raises :class:`StartError` or a subclass when it cannot start. Tests have a plane of their own
    (:mod:`pyrklog.testing.door`).
    """
    attempt = StartAttempt(config, make_plane)
    broker = Broker(config, attempt.make_plane)
    try:
        return trio.run(broker.run)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt):
            return EXIT_INTERRUPTED
        failure = start_error_in(group)
        if failure is None:
            log.error("crashed", exc_info=group)
            return EXIT_BUG
        raise failure from None
    finally:
        if not broker.ready.is_set():
            attempt.take_back()
        logs.ensure_configured()
        logs.flush()


class Broker:
    def __init__(
        self, config: BrokerConfig, make_plane: Callable[[PlaneSettings], Plane] = Plane
    ) -> None:
        self.config = config
        self.ports: dict[str, int] = {}
        """Port of each listener, once it listens."""
        self.http_address: tuple[str, int] | None = None
        """Where HTTP is served; None: nowhere."""
        self.ready = trio.Event()
        self.service: ClusterService | None = None
        self._make_plane = make_plane
        self._state_log = StateChangeLog(config.meta_dir)
        self._end = BrokerEnd(self.ready)
        self._manager = ServiceManager()
        self._groups: GroupManager | None = None
        self._lag = Lag()
        self._clients = ClientTable(lambda: {row.key: row.name for row in api_table()})
        self._http = Http()
        self._loaded = trio.Event()

    def stop(self) -> None:
        self._end.ask()

    async def run(self) -> int:
        for notice in self.config.notices:
            log.warning("option_ignored", notice=notice)
        raise_file_limit()
        identities = read_identities(self.config.log_dirs)
        async with prepared(self.config) as self._http, store_connection(self.config) as connect:
            store = CurrentStore(await connect())
            try:
                node_id, cluster_id = await self._identify(identities, store)
                kept = await with_kept_options(self.config, node_id, store) or self.config
                tell_overruled(kept, node_id)
                plane = self._make_plane(plane_settings(kept, node_id, cluster_id))
                note_standing(self.config.log_dirs, self.config.zookeeper)
                log_dirs = list(map(str, self.config.log_dirs))
                member = Member(
                    node_id,
                    cluster_id,
                    store,
                    connect,
                    self._registration,
                    registration_wait_seconds=self._registration_wait_seconds(),
                    is_whole=partial(_is_whole, plane, log_dirs),
                    log_dirs=log_dirs,
                )
                known_dirs = {item.directory for item in identities}
                await self._run_with(member, cluster_id, plane, known_dirs)
            except StoreFailedError as error:
                raise StartError(
                    Problem.DISK_FAILED, f"The broker cannot go on: {error.reason}."
                ) from None
            except SessionExpiredError:
                raise TemporaryError(
                    Problem.ZOOKEEPER_AWAY,
                    "The session with ZooKeeper ended while the broker started.",
                    fix="look at ZooKeeper, and start the broker again",
                ) from None
            finally:
                self._state_log.close()
                await store.close()
        log.info("stopped", exit_code=self._end.exit_code)
        return self._end.exit_code

    async def _identify(
        self, identities: Sequence[DirectoryIdentity], store: Metastore
    ) -> tuple[int, str]:
        config = self.config
        if config.zookeeper is not None:
            await enter_cluster(store, config.zookeeper)
        await create_paths(store, znodes.PERSISTENT_PATHS)
        if config.zookeeper is None:
            node_id = await choose_node_id(config.configured_node_id, identities, store)
            await create_paths(store, znodes.OWN_PATHS)
        else:
            node_id = await choose_member_id(
                config.configured_node_id,
                identities,
                store,
                reserved_max=config.integer("reserved.broker.max.id"),
                generates=config.boolean("broker.id.generation.enable"),
            )
        return node_id, await choose_cluster_id(store, identities)

    async def _run_with(
        self, member: Member, cluster_id: str, plane: Plane, known_dirs: Collection[Path]
    ) -> None:
        node_id, store = member.node_id, member.store
        in_cluster = self.config.zookeeper is not None
        early, late = self._endpoints(plane)
        self.http_address = bound_address(self._http.listeners)
        if not in_cluster:
            await self._adopt(node_id, cluster_id, store, plane)
        metadata = Metadata(node_id, self.config, store, plane)
        replication = ReplicationDriver(node_id, metadata, plane)
        controller = self._controller(metadata, replication, store)

        def known_controller() -> int:
            return controller.controller_id

        observability = Observability(self._http, self.config.reports)
        api = ControllerApi(controller)
        peers = self._peers(metadata, replication, controller, api, plane)
        producer_ids = _producer_ids(peers, api, member)
        service = self.service = self._service(
            member, plane, metadata, replication, controller, producer_ids, observability
        )
        coordinators = cache(partial(self._coordinators, metadata, replication, service, plane))
        async with trio.open_nursery() as nursery:
            events = EventHandler(
                node_id=node_id,
                plane=plane,
                store=store,
                service=service,
                replication=replication,
                load_handlers=lambda: _load_handlers(service, coordinators(), replication, api),
                log_dir_count=len(self.config.log_dirs),
                on_all_log_dirs_failed=self._end.all_log_dirs_failed,
                nursery=nursery,
                clients=self._clients,
            )
            nursery.start_soon(self._end.watch_signals)
            nursery.start_soon(self._manager.extend_start, self.ready)
            nursery.start_soon(plane.run, events)
            nursery.start_soon(replication.run)
            observability.begin(
                self._sources(member, metadata, plane, service, replication, controller, events)
            )
            nursery.start_soon(observability.run, self._loaded)
            if peers is not None:
                nursery.start_soon(peers.run)
            nursery.start_soon(member.keep_session)
            nursery.start_soon(
                tell_slow_start, self.ready, member.registered, metadata, known_controller
            )
            with self._end.start:
                self._listen(plane, early)
                being_deleted = await store.children(znodes.DELETE_TOPICS)
                await nursery.start(
                    member.belong, replication.registered, (metadata.run, controller.run)
                )
                if in_cluster:
                    nursery.start_soon(
                        metadata.follow_controller, controller.changes, known_controller
                    )
                await metadata.changes.wait_until(lambda: bool(metadata.image.brokers))
                self._look_at_folders(metadata, plane, service, being_deleted, known_dirs)
                await wait_for_leaders(metadata, replication.replicas.is_settled)
                self._listen(plane, late)
                await self._announce(banner.seconds_since_exec(), cluster_id, node_id, plane)
                await self._load(nursery, coordinators, metadata, events, plane, service)
            await self._end.wait_asked()
            await self._leave(member, peers, plane)
            nursery.cancel_scope.cancel()

    async def _leave(self, member: Member, peers: Peers | None, plane: Plane) -> None:
        """The orderly end."""
        self._manager.stopping()
        if peers is not None:
            await peers.leave(member.broker_epoch)
        await self._end.shut_down(plane)

    async def _load(
        self,
        nursery: trio.Nursery,
        coordinators: Callable[[], Coordinators],
        metadata: Metadata,
        events: EventHandler,
        plane: Plane,
        service: ClusterService,
    ) -> None:
        """Loading code takes longer than starting; early clients wait for it."""
        await trio.to_thread.run_sync(_import_coordinators)
        await _start_coordinators(nursery, coordinators(), metadata)
        self._groups = coordinators().groups.manager
        await trio.to_thread.run_sync(events.preload)
        collect_garbage_from_now_on()
        self._loaded.set()
        nursery.start_soon(self._lag.run, metadata, plane, self._groups)
        nursery.start_soon(service.client_metrics.run)

    def _look_at_folders(
        self,
        metadata: Metadata,
        plane: Plane,
        service: Administration,
        being_deleted: Sequence[str],
        known_dirs: Collection[Path],
    ) -> None:
        unknown = compare_folders(
            metadata.node_id,
            plane.found_partitions(),
            metadata.image,
            being_deleted,
            self.config.log_dirs,
            known_dirs,
        )
        service.reserve_topics(unknown)
        warn_of_unconfirmed(metadata.image)
        warn_of_full_disks(self.config.log_dirs)

    async def _adopt(self, node_id: int, cluster_id: str, store: Metastore, plane: Plane) -> None:
        """Adopts topics of another broker's directory; see adoption.md."""
        found = plane.found_partitions()
        used, record = await store.get_many([znodes.CONTROLLER_EPOCH, znodes.ADOPTION])
        if found and (used is None or record is not None):
            from pyrklog.adoption.adopt import Zookeeper, adopt
            from pyrklog.adoption.broker_options import unexpired

            address = self.config.string("pyrklog.adopt.zookeeper")
            zookeeper = Zookeeper(address, cluster_id) if address is not None else None
            names = await adopt(node_id, self.config, store, found, zookeeper)
            self.config = unexpired(self.config, names)
            if used is None:
                kept = await with_kept_options(self.config, node_id, store) or self.config
                tell_overruled(kept, node_id)

    # --- parts -----------------------------------------------------------------------------------

    def _controller(
        self, metadata: Metadata, replication: ReplicationDriver, store: Metastore
    ) -> ControllerDriver:
        node_id = metadata.node_id
        controller = ControllerDriver(
            node_id,
            store,
            self._channels(node_id, replication),
            controller_settings(self.config, metadata),
            self._state_log,
            metadata.told,
            self._standby(node_id, store),
        )
        metadata.on_options_changed = controller.options_changed
        return controller

    def _channels(self, node_id: int, replication: ReplicationDriver) -> Channels:
        if self.config.zookeeper is None:
            return LocalChannel(replication)
        from pyrklog.peers.channels import PeerChannels

        return PeerChannels(
            node_id,
            replication,
            self.config.listeners.inter_broker,
            observes=self.config.boolean("pyrklog.failover.suspicion"),
        )

    def _standby(self, node_id: int, store: Metastore) -> Standby:
        config = self.config
        if config.zookeeper is None or not config.boolean("pyrklog.failover.suspicion"):
            return Patience()
        from pyrklog.controller.takeover.challenger import Challenger

        timeout_ms = config.integer("zookeeper.session.timeout.ms")
        return Challenger(node_id, store, config.listeners.inter_broker, timeout_ms)

    def _peers(
        self,
        metadata: Metadata,
        replication: ReplicationDriver,
        controller: ControllerDriver,
        api: ControllerApi,
        plane: Plane,
    ) -> Peers | None:
        if self.config.zookeeper is None:
            return None
        from pyrklog.peers.peers import Peers

        return Peers(
            self.config,
            metadata,
            replication,
            plane,
            api,
            lambda: controller.controller_id,
        )

    def _service(
        self,
        member: Member,
        plane: Plane,
        metadata: Metadata,
        replication: ReplicationDriver,
        controller: ControllerDriver,
        producer_ids: ProducerIds,
        observability: Observability,
    ) -> Administration:
        node_id, store = member.node_id, member.store
        return Administration(
            node_id=node_id,
            cluster_id=member.cluster_id,
            plane=plane,
            metadata=metadata,
            topics=TopicAdmin(store, metadata, replication.replicas, controller),
            configs=ConfigAdmin(node_id, store, metadata, memory_bytes()),
            producer_ids=producer_ids,
            # Without the store the leader is unknown, even the last one.
            controller_id=lambda: controller.controller_id if store.is_reachable else -1,
            state_log=self._state_log,
            client_metrics=ClientMetrics(
                metadata.client_metrics, self.config.integer("telemetry.max.bytes")
            ),
            observe=self._witness(metadata),
            health=observability.health,
            lag=self._lag,
        )

    def _witness(self, metadata: Metadata) -> Observe | None:
        if self.config.zookeeper is None:
            return None
        from pyrklog.peers.witness import Witness

        listener = self.config.listeners.inter_broker
        return Witness(metadata.node_id, lambda: metadata.image.brokers, listener).look

    def _coordinators(
        self,
        metadata: Metadata,
        replication: ReplicationDriver,
        service: Administration,
        plane: Plane,
    ) -> Coordinators:
        from pyrklog.admin.coordinators import Coordinators

        return Coordinators(self.config, metadata, replication.replicas, service, plane)

    def _sources(
        self,
        member: Member,
        metadata: Metadata,
        plane: Plane,
        service: ClusterService,
        replication: ReplicationDriver,
        controller: ControllerDriver,
        events: EventHandler,
    ) -> Sources:
        return Sources(
            member.cluster_id,
            metadata,
            plane,
            member.store,
            list(map(str, self.config.log_dirs)),
            stage=self._stage,
            failed_log_dirs=lambda: events.failed_log_dirs,
            groups=lambda: self._groups,
            lag=lambda: self._lag.service,
            started_at=time.time() - banner.seconds_since_exec(),
            is_told=lambda: (
                self.config.zookeeper is None
                or (member.is_registered and replication.replicas.is_told)
            ),
            adding=replication.replicas.adding,
            partial=replication.replicas.partial,
            adding_changes=lambda: replication.replicas.adding_changes,
            store_clock=lambda: member.store_clock,
            clients=self._clients,
            client_metrics=service.client_metrics,
            isr_changes=lambda: replication.isr_changes,
            is_reassigned=replication.replicas.is_reassigned,
            unclean_elections=lambda: controller.unclean_elections,
        )

    def _stage(self) -> Stage:
        if self._end.is_asked:
            return "ending"
        return "serving" if self.ready.is_set() else "starting"

    # --- start -----------------------------------------------------------------------------------

    def _endpoints(self, plane: Plane) -> tuple[list[Endpoint], list[Endpoint]]:
        # Early: others that read the registration can connect. Late: clients get whole answers.
        bound = self.config.listeners.bound
        early = [item for item in bound if self.config.zookeeper is not None or not item.port]
        late = [item for item in bound if item not in early]
        for item in late:
            plane.check_port(item.name, item.host or EVERYWHERE, item.port)
        return early, late

    def _listen(self, plane: Plane, endpoints: Sequence[Endpoint]) -> None:
        for item in endpoints:
            apart = self.config.listeners.is_for_brokers(item.name)
            port = plane.listen(item.name, item.host or EVERYWHERE, item.port, for_brokers=apart)
            self.ports[item.name] = port
            log.info("listening", listener=item.name, host=item.host or "*", port=port)

    def _advertised(self) -> list[tuple[str, str, int]]:
        listeners = self.config.listeners
        ports = {item.name: item.port for item in listeners.bound} | self.ports
        return [
            (item.name, item.host, item.port or ports[item.name]) for item in listeners.advertised
        ]

    def _registration(self) -> znodes.BrokerRegistration:
        return znodes.BrokerRegistration(
            self._advertised(),
            self.config.listeners.protocols,
            self.config.string("broker.rack"),
            time.time_ns() // 1_000_000,
        )

    def _registration_wait_seconds(self) -> float:
        """A killed earlier life stays registered until its session ends."""
        if self.config.zookeeper is None:
            return 0.0
        return self.config.integer("zookeeper.session.timeout.ms") / 1000 + SESSION_END_SECONDS

    async def _announce(self, seconds: float, cluster_id: str, node_id: int, plane: Plane) -> None:
        self.ready.set()
        self._manager.ready(f"broker {node_id} of cluster {cluster_id}")
        bound = [item._replace(port=self.ports[item.name]) for item in self.config.listeners.bound]
        terminal = sys.stdout.isatty()
        if terminal:
            zookeeper = self.config.zookeeper
            place = (
                banner.ALONE if zookeeper is None else f"broker {node_id} · ZooKeeper {zookeeper}"
            )
            cap = plane.statistics().get("cache_limit_bytes", 0)
            shown = banner.banner(
                bound, self.config.log_dirs, seconds, place, cap, self.http_address
            )
            print(banner.printable(shown, sys.stdout.encoding), flush=True)
        log.info(
            "ready",
            node_id=node_id,
            cluster_id=cluster_id,
            log_dirs=[str(path) for path in self.config.log_dirs],
            seconds=round(seconds, 3),
        )
        await trio.to_thread.run_sync(logs.load)
        logs.ensure_configured()


def _producer_ids(peers: Peers | None, api: ControllerApi, member: Member) -> ProducerIds:
    """Blocks come from the controller, which a single broker is itself."""
    if peers is not None:
        return ProducerIds(peers.allocate_producer_ids)
    return ProducerIds(lambda: api.allocate_producer_ids(member.node_id, member.broker_epoch))


def _is_whole(plane: Plane, log_dirs: Sequence[str], last: LastLife) -> bool:
    return has_all(last, log_dirs, plane.pasts(), {one.log_dir for one in plane.found_partitions()})


def _import_coordinators() -> None:
    import pyrklog.admin.coordinators  # noqa: F401


async def _start_coordinators(
    nursery: trio.Nursery, coordinators: Coordinators, metadata: Metadata
) -> None:
    groups = coordinators.groups
    await nursery.start(groups.run)
    await nursery.start(coordinators.transactions.coordinator.run)
    metadata.on_partitions_deleted = partial(_forget_deleted, nursery, coordinators)


def _forget_deleted(
    nursery: trio.Nursery, coordinators: Coordinators, partitions: Sequence[TopicPartition]
) -> None:
    groups = coordinators.groups
    coordinators.transactions.coordinator.markers.note_deleted(partitions)
    groups.note_deleted(partitions)
    nursery.start_soon(groups.forget_deleted)


def _load_handlers(
    service: Administration,
    coordinators: Coordinators,
    replication: ReplicationDriver,
    api: ControllerApi,
) -> Handlers:
    from pyrklog.handlers.dispatch import Handlers

    transactions = coordinators.transactions
    return Handlers(service, coordinators.groups, transactions, replication, api, memory_bytes())
