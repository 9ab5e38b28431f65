"""The state of a simulated cluster: time, ZooKeeper, the network, machines and their processes.

Its holders look at all of it; the world alone starts and ends processes.
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
    """A machine with a disk, on which a broker's process runs most of the time."""

    def __init__(self, heap: Heap, number: int) -> None:
        self.id = number
        self.volume = Volume(heap, number)
        self.life: BrokerLife | None = None
        self.lives = 0
        self.has_lost_power = False
        """Since a process of it was registered last."""
        self.is_switched_off = False
        """When its process has ended."""

    def has_log(self, topic: str, partition: int) -> bool:
        """Whether the disk has a partition's folder, be it that all of its log is in the cache."""
        folder = f"/broker-{self.id}/{topic}-{partition}"
        names = (f"{0:020d}.log", "partition.metadata")
        return any(self.volume.disk.has(f"{folder}/{name}") for name in names)


class BrokerLife(ABC):
    """One life of a broker's process, as others see it (:class:`tests.sim.life.Life`)."""

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
        """What the handlers make of another broker's request."""

    @abstractmethod
    def accept(self, answered: Callable[[bytes | None], None]) -> int:
        """A connection to the data plane; its number."""

    @abstractmethod
    def take_frame(self, connection: int, frame: bytes) -> None:
        """What has arrived on a connection."""

    @abstractmethod
    def hang_up(self, connection: int) -> None:
        """The other side is gone."""

    @abstractmethod
    def exchange_now(self, frame: bytes) -> bytes | None:
        """A request that is answered at once."""

    @abstractmethod
    def touch(self, act: Callable[[], Any]) -> Any:
        """Does something to the plane at the present time, and sees that it goes on from there."""

    @abstractmethod
    def leave(self) -> None:
        """Begins an orderly end."""

    @abstractmethod
    def shut_down(self) -> bool:
        """The plane ends in order; whether it is marked clean."""


class Cluster:
    """See the module."""

    def __init__(self, seed: int, settings: Settings) -> None:
        self.settings = settings
        self.heap = Heap(seed)
        self.network = Network(self.heap)
        self.scheduler = Scheduler(self.heap)
        self.zookeeper = ZooKeeper(self.heap, self.network, self.scheduler)
        self.brokers = {number: Broker(self.heap, number) for number in settings.brokers}
        self.on_breaks: list[Callable[[], bool]] = []
        """Asked when connections break or processes die; false = need not be asked again."""
        self.memory: Path | None = None
        """Where brokers keep their arenas, in those runs that have any."""
        self.violation: Violation | None = None
        """The first one."""

    def violated(self, what: str, cause: BaseException | None = None) -> None:
        """Raises :class:`Violation`. Drivers may catch it as any other error, so the first one is
        kept."""
        self.heap.note(f"VIOLATION {what}")
        violation = Violation(what)
        violation.__cause__ = cause
        self.violation = self.violation or violation
        raise violation

    def live(self) -> Sequence[BrokerLife]:
        """The processes that run, by broker."""
        return [item.life for item in self.brokers.values() if item.life is not None]

    def server_at(self, source: int, target: int) -> BrokerLife | None:
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
