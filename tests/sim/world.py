"""One run of the simulation: a cluster, its processes' starts and ends, and its checker."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from pyrklog.base import logs
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Create, Operation
from pyrklog.plane.cache_place import SHARED_MEMORY
from tests.sim.assignments import Assignments
from tests.sim.checker import Checker
from tests.sim.cluster import Broker, BrokerLife, Cluster
from tests.sim.core import core
from tests.sim.life import Life
from tests.sim.observed import SimStream, connect
from tests.sim.options import Options
from tests.sim.peer_connection import SimConnection
from tests.sim.promises import Promises
from tests.sim.scheduler import in_place_of_trio
from tests.sim.settings import TOPIC, TOPIC_ID, Settings

PROBE_SECONDS = 0.4
"""Between two questions of an observer."""
ANSWER_SECONDS = 3.0
"""How long coordinators wait for other brokers' answers; like a session here."""

DRIVERS = (
    "pyrklog.admin.producer_ids",
    "pyrklog.base.changes",
    "pyrklog.base.pending",
    "pyrklog.controller.driver",
    "pyrklog.coordinators.ownership",
    "pyrklog.coordinators.topic_creation",
    "pyrklog.groups.driver",
    "pyrklog.plane.core_plane",
    "pyrklog.handlers.context",
    "pyrklog.handlers.decoding",
    "pyrklog.handlers.dispatch",
    "pyrklog.handlers.events",
    "pyrklog.handlers.inter_broker",
    "pyrklog.handlers.offsets",
    "pyrklog.handlers.requests_waiting",
    "pyrklog.membership.current_store",
    "pyrklog.membership.member",
    "pyrklog.cluster.metadata",
    "pyrklog.controller.takeover.challenger",
    "pyrklog.peers.broker_calls",
    "pyrklog.peers.channels",
    "pyrklog.peers.controller_link",
    "pyrklog.peers.metadata_bodies",
    "pyrklog.peers.port_monitor",
    "pyrklog.peers.peers",
    "pyrklog.peers.send_queue",
    "pyrklog.controller.takeover.standby",
    "pyrklog.peers.witness",
    "pyrklog.peers.witnesses",
    "pyrklog.replication.driver",
    "pyrklog.transactions.driver",
    "pyrklog.transactions.marking.sender",
)
"""Modules that use Trio and take part."""


class World(Cluster):
    """Only one may run at a time: it patches the drivers' modules."""

    def __init__(self, seed: int, settings: Settings) -> None:
        super().__init__(seed, settings)
        minimum = settings.min_insync_replicas
        partitions = {index: Promises(minimum) for index in settings.partitions}
        assignments = Assignments(self, partitions)
        self.options = Options(self, partitions, assignments)
        self.checker = Checker(self, partitions, assignments, self.options)
        self.options.on_changed = self.checker.less_is_borne
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
        operations["topic"] = Create(znodes.topic_path(TOPIC), znodes.encode_topic(assignment))
        path = znodes.topic_config_path(TOPIC)
        operations["options"] = Create(path, self.options.encoded())
        internal = self.checker.internal.operations()
        outcome = self.zookeeper.run(0, [*operations.values(), *internal])
        assert isinstance(outcome, list), outcome

    @contextmanager
    def running(self) -> Iterator[None]:
        modules = tuple(importlib.import_module(name) for name in DRIVERS)
        patched: list[tuple[ModuleType, str, object]] = []
        for name, replacements in self._replacements().items():
            module = importlib.import_module(name)
            for attribute, replacement in replacements.items():
                patched.append((module, attribute, getattr(module, attribute)))
                setattr(module, attribute, replacement)
        core().plant(list(self.settings.injected))
        minimum, logs._sink.minimum = logs._sink.minimum, logs.LEVELS["error"] + 1
        try:
            with self._memory(), in_place_of_trio(self.scheduler, modules):
                try:
                    yield
                finally:
                    for life in self.live():
                        self._end(life)
        finally:
            logs._sink.minimum = minimum
            core().plant([])
            for module, attribute, original in patched:
                setattr(module, attribute, original)

    @contextmanager
    def _memory(self) -> Iterator[None]:
        if not self.settings.caches:
            yield
            return
        shared = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="pyrklog-sim-", dir=shared) as made:
            self.memory = Path(made)
            yield

    def _replacements(self) -> dict[str, dict[str, object]]:
        """Stand-ins for sockets, by module. Observers ask less often, or they would make most
        events."""
        peers: dict[str, object] = {"PeerConnection": self._connection}
        sockets: dict[str, object] = {"connect": self._connect, "probe": self._probe}
        return {
            "pyrklog.peers.broker_calls": {**peers, "ANSWER_TIMEOUT_SECONDS": ANSWER_SECONDS},
            "pyrklog.peers.channels": peers,
            "pyrklog.peers.controller_link": peers,
            "pyrklog.peers.port_monitor": {
                **sockets,
                "PROBE_SECONDS": PROBE_SECONDS,
                "worked_seconds": lambda: 0.0,
            },
            "pyrklog.peers.witness": sockets,
            "pyrklog.peers.witnesses": peers,
        }

    def _connection(
        self, address: Callable[[], Any], *, client_id: str, timeout_seconds: float
    ) -> SimConnection:
        life = self._life_of_caller()
        return SimConnection(self, life, address, timeout_seconds)

    async def _connect(self, host: str, _port: int) -> SimStream:
        return await connect(self, self._life_of_caller(), host)

    async def _probe(self, stream: SimStream, _number: int, _client_id: str) -> None:
        await stream.ask()

    def _life_of_caller(self) -> BrokerLife:
        process = self.scheduler.process
        for broker in self.brokers.values():
            if broker.life is not None and broker.life.process is process:
                return broker.life
        raise AssertionError(f"{process.name} is nobody's")

    # --- processes -------------------------------------------------------------------------------

    def start(self, number: int) -> None:
        broker = self.brokers[number]
        if broker.volume.holds_up(None, partial(self.start, number)):
            return
        if broker.life is None:
            broker.lives += 1
            broker.is_switched_off = False
            self.heap.note(f"broker {number} starts, life {broker.lives}")
            broker.life = Life(
                self, broker, broker.lives, self.checker, exited=self.exited, ends=self.ends
            )

    def kill(self, number: int, *, loses_power: bool = False) -> None:
        """kill -9; or the machine goes down and forgets what was not synced."""
        broker = self.brokers[number]
        if broker.life is None:
            return
        self._end(broker.life)
        if loses_power:
            self._goes_down(broker)
            self.checker.lost_power(number)

    def _end(self, life: BrokerLife) -> None:
        self.heap.note(f"{life.process.name} is gone")
        self.heap.kill(life.process)
        volume = life.broker.volume
        volume.process_dies()
        life.sim.kill(volume.writes_untold())
        self._forget(life)

    def _goes_down(self, broker: Broker) -> None:
        self.heap.note(f"machine {broker.id} goes down")
        broker.volume.machine_goes_down()
        broker.has_lost_power = True

    def _forget(self, life: BrokerLife) -> None:
        life.broker.life = None
        self.checker.ended(life.broker.id)
        self.look_at_connections()

    def ends(self, life: BrokerLife) -> None:
        """An orderly end, once the volume accepts what is left."""
        broker = life.broker
        if broker.life is not life or broker.volume.holds_up(None, partial(self.ends, life)):
            return
        if not life.is_registered:
            # The cluster has not heard of this life, so its end says nothing of earlier ones.
            if not self.checker.bears_loss_of(broker.id):
                self._end(life)
                return
            self.checker.doubted(broker.id)
        self._end_in_order(life)

    def _end_in_order(self, life: BrokerLife) -> None:
        broker = life.broker
        is_clean = life.shut_down()
        self.heap.note(f"{life.process.name} has ended, clean: {is_clean}")
        for session in list(self.zookeeper.sessions.values()):
            if session.broker == broker.id:
                self.zookeeper.end(session)
        self.heap.kill(life.process)
        broker.volume.process_dies()
        self._forget(life)
        if broker.is_switched_off:
            self._switch_off(broker, is_clean)

    def _switch_off(self, broker: Broker, is_clean: bool) -> None:
        """A clean end loses nothing with the power. Another one may, if that is survivable."""
        if is_clean:
            self._goes_down(broker)
        elif self.checker.bears_loss_of(broker.id):
            self._goes_down(broker)
            self.checker.lost_power(broker.id)

    def exited(self, life: BrokerLife) -> None:
        """A process ended by itself; it starts again later."""
        if life.broker.life is life:
            self._end(life)
            self.heap.after(500_000, None, lambda: self.start(life.broker.id))

    # --- time -------------------------------------------------------------------------------------

    def run_until(self, until_us: int) -> None:
        """Runs all events up to then. Raises :class:`Violation`."""
        while self.heap.step(until_us):
            if self.violation is not None:
                raise self.violation
            if self.scheduler.failures:
                name, failure = self.scheduler.failures[0]
                self.violated(f"{name} fails: {failure!r}", failure)
        if len(self.on_breaks) > 200:
            self.look_at_connections()
