"""Brokers, ZooKeeper, the network between them and clients: one run of the simulation."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from pyrklog import logs
from pyrklog.config.broker import BrokerConfig
from pyrklog.config.load import load_config
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Create, Operation
from tests.sim.checker import Checker
from tests.sim.core import core
from tests.sim.heap import Heap
from tests.sim.life import Life
from tests.sim.network import Network
from tests.sim.observed import SimStream, connect
from tests.sim.peer_connection import SimConnection
from tests.sim.scheduler import Scheduler, in_place_of_trio
from tests.sim.zookeeper import ZooKeeper

TOPIC = "t"
TOPIC_ID = b"simulated-topic!"

DRIVERS = (
    "pyrklog.changes",
    "pyrklog.controller.driver",
    "pyrklog.core_plane",
    "pyrklog.events",
    "pyrklog.handlers.inter_broker",
    "pyrklog.membership.current_store",
    "pyrklog.membership.member",
    "pyrklog.metadata",
    "pyrklog.peers.challenger",
    "pyrklog.peers.channels",
    "pyrklog.peers.controller_link",
    "pyrklog.peers.observer",
    "pyrklog.peers.peers",
    "pyrklog.peers.send_queue",
    "pyrklog.peers.standby",
    "pyrklog.replication.driver",
)
"""Modules that use Trio and take part."""


class Settings(NamedTuple):
    """What a run is made of, besides its seed and its faults."""

    brokers: tuple[int, ...] = (1, 2, 3)
    partitions: Mapping[int, tuple[int, ...]] = {0: (1, 2, 3)}
    min_insync_replicas: int = 2
    rebalance_seconds: int | None = 7
    fetch_timeout_us: int = 3_000_000
    suspects: bool = True
    """``pyrklog.failover.suspicion``."""
    loses_power: bool = True
    """Whether machines go down, too, and lose what was not synced: as many at a time as
    ``min.insync.replicas`` is for, which is one less."""
    moves: bool = False
    """Whether partitions are reassigned."""
    makes_topics: bool = False
    """Whether topics are created and deleted."""
    planted: tuple[str, ...] = ()
    """Bugs of the data plane (``planted.rs``)."""


class Broker:
    """A machine with a disk, on which a broker's process runs most of the time."""

    def __init__(self, world: World, number: int) -> None:
        self.id = number
        self.disk = core().MemDisk()
        self.life: Life | None = None
        self.lives = 0
        self.is_slow = False
        self.has_lost_power = False
        """Since a process of it was registered last."""
        self._world = world
        self._dice = world.heap.dice(f"disk of {number}")

    def has_log(self, topic: str, partition: int) -> bool:
        """Whether the disk has a partition's log; none of the simulation's has a second segment."""
        has: bool = self.disk.has(f"/broker-{self.id}/{topic}-{partition}/{0:020d}.log")
        return has

    def disk_us(self) -> int:
        """How long one slow thing takes."""
        if self.is_slow:
            return self._dice.randint(20_000, 700_000)
        return self._dice.randint(100, 3_000)


class World:
    """See the module. Between :meth:`running` begins and ends nothing else may use the drivers."""

    def __init__(self, seed: int, settings: Settings) -> None:
        self.settings = settings
        self.heap = Heap(seed)
        self.network = Network(self.heap)
        self.scheduler = Scheduler(self.heap)
        self.zookeeper = ZooKeeper(self.heap, self.network, self.scheduler)
        self.brokers = {number: Broker(self, number) for number in settings.brokers}
        self.checker = Checker(self)
        self.on_breaks: list[Callable[[], bool]] = []
        """Asked when connections break or processes die; false = need not be asked again."""
        self.zookeeper.on_written = self.checker.written
        self._found_cluster()

    def _found_cluster(self) -> None:
        operations: dict[str, Operation] = {}
        for path in (*znodes.PERSISTENT_PATHS, *znodes.OWN_PATHS, znodes.CLUSTER_ID):
            parts = path.strip("/").split("/")
            for depth in range(1, len(parts) + 1):
                part = "/" + "/".join(parts[:depth])
                operations.setdefault(part, Create(part))
        operations[znodes.CLUSTER_ID] = Create(
            znodes.CLUSTER_ID, znodes.encode_cluster_id("simulation")
        )
        assignment = znodes.TopicAssignment(TOPIC_ID, self.settings.partitions, {}, {})
        options = {"min.insync.replicas": str(self.settings.min_insync_replicas)}
        operations["topic"] = Create(znodes.topic_path(TOPIC), znodes.encode_topic(assignment))
        operations["options"] = Create(
            znodes.topic_config_path(TOPIC), znodes.encode_config(options)
        )
        outcome = self.zookeeper.run(0, list(operations.values()))
        assert isinstance(outcome, list), outcome

    @contextmanager
    def running(self) -> Iterator[None]:
        """The drivers are the simulation's."""
        modules = tuple(importlib.import_module(name) for name in DRIVERS)
        patched: list[tuple[Any, Any]] = []
        for name in ("pyrklog.peers.channels", "pyrklog.peers.controller_link"):
            module: Any = importlib.import_module(name)
            patched.append((module, module.PeerConnection))
            module.PeerConnection = self._connection
        patched_observer: Any = importlib.import_module("pyrklog.peers.observer")
        connect_before, patched_observer.connect = patched_observer.connect, self._connect
        core().plant(list(self.settings.planted))
        minimum, logs._sink.minimum = logs._sink.minimum, logs.LEVELS["error"] + 1
        try:
            with in_place_of_trio(self.scheduler, modules):
                try:
                    yield
                finally:
                    for life in self.live():
                        self._end(life)
        finally:
            logs._sink.minimum = minimum
            core().plant([])
            for module, original in patched:
                module.PeerConnection = original
            patched_observer.connect = connect_before

    def _connection(
        self, address: Callable[[], Any], *, client_id: str, timeout_seconds: float
    ) -> SimConnection:
        life = self._life_of_caller()
        return SimConnection(self, life, address, timeout_seconds)

    async def _connect(self, host: str, _port: int) -> SimStream:
        return await connect(self, self._life_of_caller(), host)

    def _life_of_caller(self) -> Life:
        process = self.scheduler.process
        for broker in self.brokers.values():
            if broker.life is not None and broker.life.process is process:
                return broker.life
        raise AssertionError(f"{process.name} is nobody's")

    def config_of(self, broker: int) -> BrokerConfig:
        """The options of a broker."""
        return _config(broker)

    # --- processes -------------------------------------------------------------------------------

    def start(self, number: int) -> None:
        """A broker's process begins, if there is none."""
        broker = self.brokers[number]
        if broker.life is None:
            broker.lives += 1
            self.heap.note(f"broker {number} starts, life {broker.lives}")
            broker.life = Life(self, broker, broker.lives)

    def kill(self, number: int, *, loses_power: bool = False) -> None:
        """kill -9; or the machine goes down, and forgets what was not synced."""
        broker = self.brokers[number]
        if broker.life is None:
            return
        self._end(broker.life)
        if loses_power:
            broker.disk.reboot(self.heap.dice(f"power of {number}").getrandbits(60))
            broker.has_lost_power = True
            self.checker.lost_power(number)
        else:
            broker.disk.kill_process()

    def _end(self, life: Life) -> None:
        self.heap.note(f"{life.process.name} is gone")
        self.heap.kill(life.process)
        life.sim.kill()
        self._forget(life)

    def _forget(self, life: Life) -> None:
        life.broker.life = None
        life.broker.disk.kill_process()
        self.checker.ended(life.broker.id)
        self.look_at_connections()

    def ends(self, life: Life) -> None:
        """A process that has left the cluster ends in order."""
        if life.broker.life is life:
            is_clean = life.shut_down()
            self.heap.note(f"{life.process.name} has ended, clean: {is_clean}")
            for session in list(self.zookeeper.sessions.values()):
                if session.broker == life.broker.id:
                    self.zookeeper.end(session)
            self.heap.kill(life.process)
            self._forget(life)

    def exited(self, life: Life) -> None:
        """A process could not go on."""
        if life.broker.life is life:
            self._end(life)
            self.heap.after(500_000, None, lambda: self.start(life.broker.id))

    def server_at(self, source: int, target: int) -> Life | None:
        """Who listens there; None where a connection is refused or cannot be made."""
        life = self.brokers[target].life
        if life is None or not life.is_listening:
            return None
        network = self.network
        reaches = network.reaches(source, target) and network.reaches(target, source)
        return life if reaches and not network.filters(source, target) else None

    def look_at_connections(self) -> None:
        """Connections may have broken, processes may have died."""
        looks, self.on_breaks = self.on_breaks, []
        self.on_breaks += [look for look in looks if look()]

    # --- time -------------------------------------------------------------------------------------

    def run_until(self, until_us: int) -> None:
        """Lets everything happen up to then. Raises :class:`checker.Violation`."""
        while self.heap.step(until_us):
            if self.scheduler.failures:
                name, failure = self.scheduler.failures[0]
                self.checker.violated(f"{name} fails: {failure!r}", failure)
        if len(self.on_breaks) > 200:
            self.look_at_connections()

    def live(self) -> Sequence[Life]:
        """The processes that run, by broker."""
        return [item.life for item in self.brokers.values() if item.life is not None]


@cache
def _config(broker: int) -> BrokerConfig:
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
            "controller.socket.timeout.ms": "3000",
        }
    )
