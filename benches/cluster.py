"""Three pyrklog or Apache Kafka brokers on a ZooKeeper, in one memory cgroup."""

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benches import memory_group, spent
from benches.brokers import BenchError, Broker, Kafka, Pyrklog, java
from benches.delay import Delay

BROKERS = 3
MEMORY_BYTES = 4_500_000_000
# For each broker's share of the cgroup; by default each would take 60 % of the whole.
_CACHE_BYTES = round(0.6 * MEMORY_BYTES / BROKERS)
_ZOOKEEPER_FLAGS = ("-Xmx512m", "-server", "-XX:+UseG1GC", "-Djava.awt.headless=true")
_ZOOKEEPER_START_S = 60.0
_DELAY_S = 0.001


class ZooKeeper(Broker):
    """ZooKeeper from Kafka's jars, with the settings of Kafka's distribution."""

    name = "zookeeper"

    def prepare(self) -> None:
        self.folder.mkdir(parents=True)
        lines = (
            f"dataDir={self.folder / 'data'}",
            f"clientPort={self.port}",
            "clientPortAddress=127.0.0.1",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
        )
        (self.folder / "zookeeper.properties").write_text("\n".join(lines) + "\n")
        (self.folder / "log4j.properties").write_text("log4j.rootLogger=WARN\n")

    def command(self) -> list[str]:
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        settings = self.folder / "zookeeper.properties"
        return [*java(self.folder, _ZOOKEEPER_FLAGS), main, str(settings)]

    def describe(self) -> list[str]:
        return ["ZooKeeper from Kafka's jars"]

    def default_log_dir(self) -> Path:
        return self.folder / "data"

    def wait(self) -> None:
        deadline = time.monotonic() + _ZOOKEEPER_START_S
        while not self._serves():
            if time.monotonic() > deadline:
                raise BenchError("ZooKeeper does not serve")
            time.sleep(0.05)

    def _serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
                connection.sendall(b"srvr")
                return b"Mode:" in connection.recv(4096)
        except OSError:
            return False


class ClusterKafka(Kafka):
    """Apache Kafka in ZooKeeper mode, otherwise as distributed."""

    def __init__(self, folder: Path, number: int, zookeeper: str) -> None:
        super().__init__(folder)
        self.number = number
        self._zookeeper = zookeeper

    def settings(self) -> dict[str, str]:
        """server.properties of the distribution, with our ports and folder."""
        of_kraft = ("process.roles", "node.id", "controller.quorum.voters")
        kept = {
            name: value
            for name, value in super().settings().items()
            if name not in (*of_kraft, "controller.listener.names")
        }
        return {
            **kept,
            "broker.id": str(self.number),
            "zookeeper.connect": self._zookeeper,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
        }

    def prepare(self) -> None:
        self.write_files()


class ClusterPyrklog(Pyrklog):
    """pyrklog with its defaults, except its memory."""

    cache_bytes = _CACHE_BYTES

    def __init__(self, folder: Path, number: int, zookeeper: str) -> None:
        super().__init__(folder)
        self.number = number
        self._zookeeper = zookeeper

    def command(self) -> list[str]:
        return [
            *super().command(),
            *("--zookeeper", self._zookeeper, "--broker-id", str(self.number)),
            *("--set", f"pyrklog.cache.max.bytes={self.cache_bytes}"),
        ]


class Cluster:
    """Brokers 1 to 3; ``brokers[0]`` is number 1."""

    def __init__(
        self, name: str, folder: Path, group: memory_group.Group, delayed: bool = False
    ) -> None:
        """With ``delayed`` each request to ZooKeeper takes a millisecond longer."""
        kinds: dict[str, type[ClusterKafka] | type[ClusterPyrklog]] = {
            "kafka": ClusterKafka,
            "pyrklog": ClusterPyrklog,
        }
        self.name = name
        self._group = group
        self.zookeeper = ZooKeeper(folder / "zookeeper")
        self._delay = Delay(self.zookeeper.port, _DELAY_S) if delayed else None
        port = self._delay.port if self._delay else self.zookeeper.port
        address = f"127.0.0.1:{port}/bench"
        self.brokers: list[Broker] = [
            kinds[name](folder / f"broker{number}", number, address)
            for number in range(1, BROKERS + 1)
        ]

    @property
    def bootstrap(self) -> str:
        """One broker, which knows the others."""
        return self.brokers[0].bootstrap

    def start(self) -> None:
        """Starts ZooKeeper and all brokers together; returns when each knows a broker."""
        self.zookeeper.prepare()
        self.zookeeper.execute(self._enter())
        self.zookeeper.wait()
        for broker in self.brokers:
            broker.prepare()
        starters = [threading.Thread(target=self.start_one, args=(b,)) for b in self.brokers]
        for starter in starters:
            starter.start()
        for starter in starters:
            starter.join()

    def start_one(self, broker: Broker) -> float:
        """Starts a stopped broker; seconds until its Metadata named a broker."""
        return broker.start(self._enter(), 120.0)

    def _enter(self) -> Callable[[], None] | None:
        group = self._group
        return group.join() if isinstance(group, memory_group.MemoryGroup) else None

    def remove(self) -> None:
        for one in (*self.brokers, self.zookeeper):
            one.remove()
        if self._delay is not None:
            self._delay.close()


@contextmanager
def cluster_stage(name: str, folder: Path, *, delayed: bool) -> Iterator[Cluster]:
    """A cluster that is not started yet, in a new folder inside ``folder`` and in a
    memory cgroup."""
    group = memory_group.create(f"pyrklog-bench-{os.getpid()}", MEMORY_BYTES)
    place = Path(tempfile.mkdtemp(prefix="data-", dir=folder))
    cluster = Cluster(name, place, group, delayed)
    try:
        yield cluster
    finally:
        cluster.remove()
        spent.empty(place)
        if isinstance(group, memory_group.MemoryGroup):
            group.remove()
