"""The state of a simulated cluster: time, ZooKeeper, network, machines and processes.

Only the world starts and ends processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyrklog.cluster.metadata import Metadata
from pyrklog.controller.driver import ControllerDriver
from tests.sim.heap import Heap, Process
from tests.sim.network import Network
from tests.sim.scheduler import Scheduler
from tests.sim.settings import Settings
from tests.sim.volumes import Volume
from tests.sim.zookeeper import ZooKeeper


class Violation(Exception):
    """An invariant does not hold."""


class Broker:
    """A machine with a disk, on which a broker's process may run."""

    def __init__(self, heap: Heap, number: int) -> None:
        self.id = number
        self.volume = Volume(heap, number)
        self.life: BrokerLife | None = None
        self.lives = 0
        self.has_lost_power = False
        """Since its last process was registered."""
        self.is_switched_off = False
        """The machine goes down when its process ends."""

    def has_log(self, topic: str, partition: int) -> bool:
        """Whether the disk has the partition's folder, even if its log is only in the
        block cache."""
        folder = f"/broker-{self.id}/{topic}-{partition}"
        names = (f"{0:020d}.log", "partition.metadata")
        return any(self.volume.disk.has(f"{folder}/{name}") for name in names)


class BrokerLife(ABC):
    """One life of a broker's process (:class:`tests.sim.life.Life`)."""

    sim: Any
    """The data plane (``SimPlane``)."""

    def __init__(self, cluster: Cluster, broker: Broker, number: int) -> None:
        self.cluster = cluster
        self.broker = broker
        self.process = Process(f"broker-{broker.id}.{number}")
        self.began_us = cluster.heap.now_us
        self.is_listening = False
        self.is_leaving = False
        self.is_registered = False
        self.controller_epoch_seen = 0
        self.controller: ControllerDriver | None = None
        self.metadata: Metadata | None = None

    @abstractmethod
    async def answer(self, api_key: int, version: int, body: bytes) -> bytes:
        """Serves another broker's request."""

    @abstractmethod
    def accept(self, answered: Callable[[bytes | None], None]) -> int:
        """Opens a connection to the data plane. Returns its number."""

    @abstractmethod
    def take_frame(self, connection: int, frame: bytes) -> None:
        """Delivers bytes of a connection."""

    @abstractmethod
    def hang_up(self, connection: int) -> None:
        """The client has closed the connection."""

    @abstractmethod
    def exchange_now(self, frame: bytes) -> bytes | None:
        """Serves a request without delay."""

    @abstractmethod
    def touch(self, act: Callable[[], Any]) -> Any:
        """Acts on the data plane at the present time, then lets it continue."""

    @abstractmethod
    def leave(self) -> None:
        """Begins a controlled shutdown."""

    @abstractmethod
    def shut_down(self) -> bool:
        """Ends the data plane in order. Returns whether it is marked clean."""


MarkerKey = tuple[str, int, int]
"""The coordinator's process, the broker that it tells, and the producer."""


class Cluster:
    def __init__(self, seed: int, settings: Settings) -> None:
        self.settings = settings
        self.heap = Heap(seed)
        self.network = Network(self.heap)
        self.scheduler = Scheduler(self.heap)
        self.zookeeper = ZooKeeper(self.heap, self.network, self.scheduler)
        self.brokers = {number: Broker(self.heap, number) for number in settings.brokers}
        self.on_breaks: list[Callable[[], bool]] = []
        """Called when connections break or processes die. False removes the callback."""
        self.markers_answered: dict[MarkerKey, int] = {}
        """When the last marker of version 1 was sent that was answered."""
        self.on_marker: Callable[[int], int] | None = None
        """Called once, with the broker that sends the next marker of version 1. Returns how late it
        comes, in microseconds."""
        self.memory: Path | None = None
        """The brokers' folder of arenas, where the run has a block cache."""
        self.violation: Violation | None = None

    def violated(self, what: str, cause: BaseException | None = None) -> None:
        """Raises :class:`Violation` and keeps the first: drivers may catch it like any
        other error."""
        self.heap.note(f"VIOLATION {what}")
        violation = Violation(what)
        violation.__cause__ = cause
        self.violation = self.violation or violation
        raise violation

    def live(self) -> Sequence[BrokerLife]:
        return [item.life for item in self.brokers.values() if item.life is not None]

    def server_at(self, source: int, target: int) -> BrokerLife | None:
        """The process that listens there; None if a connection is refused or impossible."""
        life = self.brokers[target].life
        if life is None or not life.is_listening:
            return None
        network = self.network
        reaches = network.reaches(source, target) and network.reaches(target, source)
        return life if reaches and not network.filters(source, target) else None

    def look_at_connections(self) -> None:
        looks, self.on_breaks = self.on_breaks, []
        self.on_breaks += [look for look in looks if look()]
