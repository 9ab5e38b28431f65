"""One life of a broker's process: the real drivers on the simulation's scheduler, over a real data
plane without threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from pyrklog.admin.coordinators import Coordinators
from pyrklog.admin.producer_ids import ProducerIds
from pyrklog.cluster.metadata import Metadata
from pyrklog.config.broker import BrokerConfig
from pyrklog.config.load import load_config
from pyrklog.controller.api import ControllerApi
from pyrklog.controller.driver import ControllerDriver
from pyrklog.controller.settings import ControllerSettings
from pyrklog.controller.takeover.challenger import Challenger
from pyrklog.controller.takeover.standby import Patience
from pyrklog.errors import ErrorCode, StartError
from pyrklog.handlers.dispatch import Handlers
from pyrklog.handlers.events import EventHandler
from pyrklog.membership.current_store import CurrentStore
from pyrklog.membership.life import LastLife
from pyrklog.membership.member import Member
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import SessionExpiredError
from pyrklog.peers.channels import PeerChannels
from pyrklog.peers.peers import Peers
from pyrklog.plane.core_plane import Plane
from pyrklog.plane.plane_settings import plane_settings
from pyrklog.plane.seam import PlaneSettings
from pyrklog.replication.driver import ReplicationDriver
from tests.sim.broker_service import BrokerService
from tests.sim.checker import Checker
from tests.sim.cluster import Broker, BrokerLife, Cluster
from tests.sim.core import core
from tests.sim.following import FetchLoop
from tests.sim.peer_connection import host_of
from tests.sim.scheduler import Nursery
from tests.sim.volumes import CACHE_BYTES
from tests.sim.zookeeper import SESSION_TIMEOUT_US

LISTENER = "PLAINTEXT"
SYNC_US = 1_000_000
EVENTS_MAX = 1_000
SHUTDOWN_US = 50_000
WALL_MS = 1_700_000_000_000
"""The wall clock at the start."""


class _Commands:
    """The plane's commands. After each one the plane is pumped."""

    def __init__(self, plane: Any, life: Life) -> None:
        self._plane = plane
        self._life = life

    def __getattr__(self, name: str) -> Callable[..., Any]:
        command = getattr(self._plane, name)
        return lambda *arguments, **named: self._life.touch(lambda: command(*arguments, **named))


class HandDrivenPlane(Plane):
    """:class:`Plane` over a plane that is driven by hand."""

    def __init__(self, plane: Any, life: Life) -> None:
        self._core = core()
        self._plane: Any = _Commands(plane, life)
        self._waiting: dict[int, Any] = {}
        self._listening: Mapping[type, Callable[[Any], None]] = {}

    def hand_out(self, event: Any, listener: EventHandler) -> None:
        """A life has one listener."""
        self._listening = self._listening or self._takers(listener)
        self._listening[type(event)](event)


class _Session:
    connection = 0
    principal = "User:ANONYMOUS"
    host = "127.0.0.1"
    client_id = None
    listener = LISTENER


class _Request:
    """A request of another broker, as the data plane hands it over."""

    id = 0
    session = _Session()

    def __init__(self, api_key: int, api_version: int, body: bytes) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.body = body


class _StateLog:
    def __init__(self, life: Life) -> None:
        self._life = life

    def write(self, event: str, fields: Mapping[str, object]) -> None:
        if event == "broker_suspected":
            self._life.checker.suspected(self._life.broker.id, int(str(fields["broker"])))
        if event not in ("replica_state", "partition_state"):
            told = " ".join(f"{name}={value}" for name, value in fields.items())
            self._life.cluster.heap.note(f"{self._life.process.name} {event} {told}")

    def flush(self) -> None:
        """Every line is there at once."""


class Life(BrokerLife):
    def __init__(
        self,
        cluster: Cluster,
        broker: Broker,
        number: int,
        checker: Checker,
        *,
        exited: Callable[[BrokerLife], None],
        ends: Callable[[BrokerLife], None],
    ) -> None:
        super().__init__(cluster, broker, number)
        self.checker = checker
        self._exited = exited
        self._ends = ends
        self._config = _config(broker.id, fills=self.cluster.settings.fills)
        settings = plane_settings(self._config, broker.id, "simulation")
        core().set_now_ms(cluster.heap.now_ms)
        self.sim: Any = core().SimPlane(self._with_cache(settings), broker.volume.disk)
        self.plane = HandDrivenPlane(self.sim.plane(), self)
        self._events: EventHandler | None = None
        self._handlers: Any = None
        self._routes: dict[int, Callable[[bytes | None], None]] = {}
        self._loops: dict[tuple[int, int], FetchLoop] = {}
        self._is_pumping = False
        self._is_command_due = False
        self._is_write_due = False
        self._is_read_due = False
        self._timer_ms: int | None = None
        self._nursery: Nursery | None = None
        cluster.scheduler.run_in(self.process, self._run)
        cluster.heap.after(SYNC_US, self.process, self._sync)

    def _with_cache(self, settings: PlaneSettings) -> PlaneSettings:
        if self.cluster.memory is None:
            return settings
        cache_dir = self.broker.volume.make_cache(self.cluster.memory)
        return settings._replace(cache_dir=cache_dir, cache_max_bytes=CACHE_BYTES)

    # --- the drivers, put together as broker.py does ---------------------------------------------

    async def _run(self) -> None:
        try:
            await self._serve()
        except BaseExceptionGroup as group:
            if not _ends_a_process(group):
                raise
            self._exits(group)
        except (SessionExpiredError, StartError) as error:
            self._exits(error)

    def _exits(self, why: BaseException) -> None:
        self.cluster.heap.note(f"{self.process.name} exits: {type(why).__name__}")
        # The world starts it again.
        self.cluster.heap.after(0, None, lambda: self._exited(self))

    async def _serve(self) -> None:
        cluster, node_id = self.cluster, self.broker.id

        async def connect() -> Any:
            return cluster.zookeeper.begin(self.process, node_id)

        store = CurrentStore(await connect())
        member = Member(
            node_id,
            "simulation",
            store,
            connect,
            lambda: _registration(node_id),
            registration_wait_seconds=10.0,
            is_whole=self._is_whole,
        )
        metadata = self.metadata = Metadata(node_id, self._config, store, self.plane)
        replication = ReplicationDriver(node_id, metadata, self.plane)
        self._observe_orders(replication)
        controller = self.controller = self._controller_of(store, metadata, replication)
        controller_api = ControllerApi(controller)
        peers = Peers(
            self._config,
            metadata,
            replication,
            self.plane,
            controller_api,
            lambda: controller.controller_id,
        )
        metadata.on_options_changed = controller.options_changed
        producer_ids = ProducerIds(peers.allocate_producer_ids)
        service: Any = BrokerService(metadata, producer_ids, LISTENER)
        coordinators = self._coordinators_of(metadata, replication, service)
        groups: Any = None if coordinators is None else coordinators.groups
        transactions: Any = None if coordinators is None else coordinators.transactions
        self._handlers = Handlers(service, groups, transactions, replication, controller_api)
        async with cluster.scheduler.open_nursery() as nursery:
            self._nursery = nursery
            self._events = EventHandler(
                node_id=node_id,
                plane=self.plane,
                store=store,
                service=service,
                replication=replication,
                load_handlers=lambda: self._handlers,
                log_dir_count=1,
                on_all_log_dirs_failed=lambda: None,
                nursery=nursery,  # type: ignore[arg-type]
            )
            nursery.start_soon(replication.run)
            nursery.start_soon(peers.run)
            nursery.start_soon(member.keep_session)
            self.is_listening = True

            def registered(broker_epoch: int) -> None:
                self.broker.has_lost_power = False
                self.is_registered = True
                replication.registered(broker_epoch)

            await nursery.start(member.belong, registered, (metadata.run, controller.run))
            cluster.heap.note(f"{self.process.name} belongs, epoch {member.broker_epoch}")
            self._peers, self._member = peers, member
            if coordinators is not None:
                await nursery.start(coordinators.groups.run)
                await nursery.start(coordinators.transactions.coordinator.run)
            await cluster.scheduler.sleep_forever()

    def _is_whole(self, last: LastLife) -> bool:
        """A run without block cache stands for a broker whose cache is reattached, unless its
        machine went down."""
        has_kept_power = not (self.cluster.settings.caches or self.broker.has_lost_power)
        return has_kept_power or all(
            past.is_reattached or past.closed_at_epoch == last.epoch for past in self.plane.pasts()
        )

    def _coordinators_of(
        self, metadata: Metadata, replication: ReplicationDriver, service: Any
    ) -> Coordinators | None:
        if not self.cluster.settings.transactions:
            return None
        heap = self.cluster.heap
        return Coordinators(
            self._config,
            metadata,
            replication.replicas,
            service,
            self.plane,
            wall_ms=lambda: WALL_MS + heap.now_ms,
            fresh_id=lambda: f"member-{heap.dice('member ids').getrandbits(60):x}",
        )

    def _controller_of(
        self, store: CurrentStore, metadata: Metadata, replication: ReplicationDriver
    ) -> ControllerDriver:
        node_id, suspects = self.broker.id, self.cluster.settings.suspects
        challenger = Challenger(node_id, store, LISTENER, SESSION_TIMEOUT_US // 1000)
        return ControllerDriver(
            node_id,
            store,
            PeerChannels(node_id, replication, LISTENER, observes=suspects),
            self._controller_settings(metadata),
            _StateLog(self),  # type: ignore[arg-type]
            metadata.told,
            challenger if suspects else Patience(),
        )

    def _controller_settings(self, metadata: Metadata) -> ControllerSettings:
        return ControllerSettings(
            unclean_topics=partial(_unclean_topics, metadata),
            min_insync_replicas=metadata.min_insync_replicas,
            delete_topic_enable=True,
            rebalance_interval_seconds=self.cluster.settings.rebalance_seconds,
            imbalance_percent=10,
        )

    def _observe_orders(self, replication: ReplicationDriver) -> None:
        """No control request may be older than one that was followed before."""
        replicas = replication.replicas
        fence = replicas._fence

        def observed(controller_epoch: int, broker_epoch: int) -> ErrorCode:
            error = fence(controller_epoch, broker_epoch)
            if error is ErrorCode.NONE:
                self.checker.order_followed(self, controller_epoch)
            return error

        replicas._fence = observed  # type: ignore[method-assign]

    def leave(self) -> None:
        if self._nursery is not None and not self.is_leaving and hasattr(self, "_peers"):
            self.is_leaving = True
            self.cluster.scheduler.run_in(self.process, self._leave)

    async def _leave(self) -> None:
        await self._peers.leave(self._member.broker_epoch)
        self.cluster.heap.after(SHUTDOWN_US, self.process, lambda: self._ends(self))

    # --- requests of other brokers ---------------------------------------------------------------

    async def answer(self, api_key: int, version: int, body: bytes) -> bytes:
        answer: bytes | None = await self._handlers.handle(_Request(api_key, version, body))
        assert answer is not None, f"API {api_key} is not served"
        return answer

    # --- the data plane --------------------------------------------------------------------------

    def accept(self, answered: Callable[[bytes | None], None]) -> int:
        number: int = self.sim.connect()
        self._routes[number] = answered
        return number

    def take_frame(self, connection: int, frame: bytes) -> None:
        if connection not in self._routes:
            return

        def take() -> None:
            if not self.sim.send(connection, frame):
                self._closed(connection)

        self.touch(take)

    def _closed(self, connection: int) -> None:
        answered = self._routes.pop(connection, None)
        if answered is not None:
            answered(None)

    def hang_up(self, connection: int) -> None:
        if self._routes.pop(connection, None) is not None:
            self.touch(lambda: self.sim.disconnect(connection))

    def exchange_now(self, frame: bytes) -> bytes | None:
        core().set_now_ms(self.cluster.heap.now_ms)
        connection = self.sim.connect()
        self.sim.send(connection, frame)
        self.sim.run_network()
        answer: bytes | None = None
        for number, answered in self.sim.take_answers():
            if number == connection:
                answer = answered
            else:
                self._route(number, answered)
        self.sim.disconnect(connection)
        self.touch(lambda: None)
        return answer

    def touch(self, act: Callable[[], Any]) -> Any:
        core().set_now_ms(self.cluster.heap.now_ms)
        if not self._is_pumping:
            self._is_pumping = True
            self.cluster.heap.after(0, self.process, self._pump)
        return act()

    def _pump(self) -> None:
        self._is_pumping = False
        core().set_now_ms(self.cluster.heap.now_ms)
        self.sim.run_network()
        for connection, frame in self.sim.take_answers():
            self._route(connection, frame)
        for event in self.sim.plane().drain_events(EVENTS_MAX):
            if self._events is not None:
                self.plane.hand_out(event, self._events)
        self._begin_slow_work()
        self._set_timer()
        for fetcher in self.sim.fetchers():
            loop = self._loops.get(fetcher)
            if loop is None or loop.is_over:
                self._loops[fetcher] = FetchLoop(self, fetcher)
            else:
                loop.look()
        self.checker.look(self)

    def _route(self, connection: int, frame: bytes | None) -> None:
        if frame is None:
            self._closed(connection)
        elif connection in self._routes:
            self._routes[connection](frame)

    def _begin_slow_work(self) -> None:
        heap = self.cluster.heap
        if self.sim.has_commands() and not self._is_command_due:
            self._is_command_due = True
            heap.after(self.broker.volume.delay_us(), self.process, self._run_command)
        if self.sim.has_writes() and not self._is_write_due:
            self._is_write_due = True
            heap.after(self.broker.volume.delay_us(), self.process, self._write)
        if self.sim.has_reads() and not self._is_read_due:
            self._is_read_due = True
            heap.after(self.broker.volume.delay_us(), self.process, self._read)

    def _read(self) -> None:
        # Also while the volume hangs: what is read was written lately, and is in memory.
        self._is_read_due = False
        self.touch(self.sim.run_read)

    def _run_command(self) -> None:
        if self.broker.volume.holds_up(self.process, self._run_command):
            return
        self._is_command_due = False
        self.touch(self.sim.run_command)
        self.checker.look(self)

    def _write(self) -> None:
        if self.broker.volume.holds_up(self.process, self._writes_return):
            self.touch(self.sim.begin_writes)
            return
        self._is_write_due = False
        self.touch(self.sim.write)
        self.checker.look(self)

    def _writes_return(self) -> None:
        self._is_write_due = False
        self.touch(self.sim.writes_return)
        self.checker.look(self)

    def _set_timer(self) -> None:
        due_ms = self.sim.due_ms()
        if due_ms is None or (self._timer_ms is not None and self._timer_ms <= due_ms):
            return
        self._timer_ms = due_ms

        def ring() -> None:
            if self._timer_ms == due_ms:
                self._timer_ms = None
                self.touch(lambda: None)

        heap = self.cluster.heap
        heap.after(due_ms * 1000 - heap.now_us, self.process, ring)

    def _sync(self) -> None:
        if self.broker.volume.holds_up(self.process, self._sync):
            return
        self.touch(self.sim.sync)
        self.cluster.heap.after(SYNC_US, self.process, self._sync)

    def shut_down(self) -> bool:
        core().set_now_ms(self.cluster.heap.now_ms)
        clean: bool = self.sim.shut_down()
        self.checker.look(self)
        return clean


@cache
def _config(broker: int, *, fills: bool) -> BrokerConfig:
    return load_config(
        flags={
            "broker.id": str(broker),
            "zookeeper.connect": "simulated:2181",
            "listeners": f"PLAINTEXT://127.0.0.1:{9092 + broker}",
            "log.dirs": f"/broker-{broker}",
            "num.network.threads": "1",
            "num.recovery.threads.per.data.dir": "1",
            "pyrklog.cache.max.bytes": "0",
            "pyrklog.unwritten.max.bytes": "65536",
            "replica.lag.time.max.ms": "1500",
            "replica.socket.timeout.ms": "3000",
            "pyrklog.expansion.rate": "100000" if fills else "0",
            "pyrklog.expansion.window.ms": "1000",
            "controller.socket.timeout.ms": "3000",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        }
    )


def _unclean_topics(
    metadata: Metadata, overrides: Mapping[str, Mapping[str, str]]
) -> frozenset[str]:
    resolve = metadata.defaults.resolve
    return frozenset(
        name for name, given in overrides.items() if resolve(given).unclean_leader_election
    )


def _registration(broker: int) -> znodes.BrokerRegistration:
    endpoint = (LISTENER, host_of(broker), 9092)
    return znodes.BrokerRegistration([endpoint], {LISTENER: LISTENER}, None, 0)


def _ends_a_process(group: BaseExceptionGroup[BaseException]) -> bool:
    """Whether it holds only errors that make a broker exit."""
    _, others = group.split((SessionExpiredError, StartError))
    return others is None
