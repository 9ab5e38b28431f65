"""Three brokers with a history that lies on the disk alone, and a fourth one that is empty."""

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient, NewTopic

from benches import loadgen, memory_group, spent
from benches.brokers import JVM_FLAGS, BenchError, Broker, java
from benches.cluster import ClusterKafka, ClusterPyrklog, ZooKeeper
from benches.cluster_cases import wait
from benches.cluster_probe import Probe

OLD, NEW = 3, 4
"""Brokers that have the history, and the number of the one that comes."""
REPLICAS = 3
HISTORY, LED = "history", "led"
SEGMENTS = 8
"""Of a partition's history; retention deletes whole ones."""
CHECK_S = 5
"""Between two looks of retention."""
LEAST_MEMORY_BYTES = 3_200_000_000
"""What four JVMs need, however little the history is; with less the kernel kills one."""
_MEMORY_SHARE = 0.1
_CACHE_SHARE = 0.6
_CHECK = ("log.retention.check.interval.ms", str(CHECK_S * 1_000))
_HEAP = ("-Xmx512m", "-Xms512m")
"""Of Kafka: four of 1 GB would not fit into the memory group of 12 GB of history."""
_FILL_BATCH_BYTES = 131_072
_FILL_S = 3_600.0
_START_S = 180.0
_ADMIN_S = 120.0


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    data_bytes: int
    """Of the history, of one replica."""
    partitions: int
    leaders: int
    """Partitions that each broker leads when one is drained."""
    rate_bytes: int
    """Of the producers, a second."""
    record_bytes: int
    warm_s: float
    quiet_s: float
    most_s: float
    """Longest wait for an expansion's end."""
    rates_mb: Sequence[int]
    """Throttles of Kafka, MB/s; the middle one is ours, too."""
    memory_max_bytes: int = 0
    """Of the memory group; 0: by the history."""

    @property
    def per_s(self) -> float:
        return self.rate_bytes / self.record_bytes

    @property
    def memory_bytes(self) -> int:
        """A tenth of all replicas: the history is not in memory."""
        if self.memory_max_bytes:
            return self.memory_max_bytes
        return max(LEAST_MEMORY_BYTES, round(REPLICAS * self.data_bytes * _MEMORY_SHARE))

    @property
    def is_memory_a_tenth(self) -> bool:
        return self.memory_bytes <= REPLICAS * self.data_bytes * _MEMORY_SHARE

    @property
    def share(self) -> float:
        """Of all partitions, those that the new broker gets a replica of."""
        return REPLICAS / (OLD + 1)

    def disk_bytes(self) -> int:
        """The most that one side has: old replicas stay until new ones are whole. Each partition
        has half a segment more than retention keeps, and what comes between two looks."""
        copies = REPLICAS + self.share
        kept = self.data_bytes * (1 + 0.5 / SEGMENTS) + self.rate_bytes * (CHECK_S + 2)
        return round(copies * kept + self.memory_bytes * _CACHE_SHARE / 2)


class SideKafka(ClusterKafka):
    def settings(self) -> dict[str, str]:
        return {**super().settings(), _CHECK[0]: _CHECK[1]}

    def command(self) -> list[str]:
        flags = [flag for flag in JVM_FLAGS if not flag.startswith(("-Xmx", "-Xms"))]
        main = ["kafka.Kafka", str(self.folder / "server.properties")]
        return [*java(self.folder, [*_HEAP, *flags]), *main]


class SidePyrklog(ClusterPyrklog):
    more: Sequence[str] = ()
    """Further settings."""

    def command(self) -> list[str]:
        settings = ("=".join(_CHECK), *self.more)
        return [*super().command(), *(word for one in settings for word in ("--set", one))]


class Side:
    """Brokers 1 to 4, of one kind, in one memory group. ZooKeeper is outside of it."""

    def __init__(self, kind: str, folder: Path, group: memory_group.Group, size: Size) -> None:
        self.kind = kind
        self.folder = folder
        self.size = size
        self._group = group
        self.zookeeper = ZooKeeper(folder / "zookeeper")
        address = f"127.0.0.1:{self.zookeeper.port}/bench"
        kinds: dict[str, type[SideKafka] | type[SidePyrklog]] = {
            "kafka": SideKafka,
            "pyrklog": SidePyrklog,
        }
        self.brokers: list[SideKafka | SidePyrklog] = [
            kinds[kind](folder / f"broker{number}", number, address) for number in range(1, OLD + 2)
        ]
        for broker in self.brokers:
            if isinstance(broker, SidePyrklog):
                broker.cache_bytes = round(_CACHE_SHARE * size.memory_bytes / len(self.brokers))

    @property
    def old(self) -> list[SideKafka | SidePyrklog]:
        return self.brokers[:OLD]

    @property
    def new(self) -> SideKafka | SidePyrklog:
        return self.brokers[OLD]

    @property
    def bootstrap(self) -> str:
        return self.brokers[1].bootstrap

    def start(self, brokers: Sequence[Broker]) -> None:
        """Together; ZooKeeper first, if it does not run yet."""
        if not self.zookeeper.folder.exists():
            self.zookeeper.prepare()
            self.zookeeper.execute(None)
            self.zookeeper.wait()
        failed: list[BenchError] = []

        def one(broker: Broker) -> None:
            try:
                if not broker.folder.exists():
                    broker.prepare()
                group = self._group
                enter = group.join() if isinstance(group, memory_group.MemoryGroup) else None
                broker.start(enter, _START_S)
            except BenchError as error:
                failed.append(error)

        starters = [threading.Thread(target=one, args=(broker,)) for broker in brokers]
        for starter in starters:
            starter.start()
        for starter in starters:
            starter.join()
        if failed:
            raise failed[0]

    def create(self, topic: NewTopic) -> None:
        admin = self._admin()
        try:
            admin.create_topics([topic], operation_timeout=_ADMIN_S)[topic.topic].result(_ADMIN_S)
        except Exception as error:
            raise BenchError(f"{self.kind} did not create {topic.topic}: {error}") from error
        self.wait_for_leaders(topic.topic)

    def wait_for_leaders(self, topic: str) -> None:
        """Until every old broker names a leader for each partition, with all replicas in sync."""
        probes = [Probe(broker.port) for broker in self.old]

        def is_whole() -> bool:
            told = [probe.partitions(topic) for probe in probes]
            counts = {len(one.isr) for each in told for one in each.values()}
            return all(told) and len(counts) == 1 and all(one == told[0] for one in told)

        wait(is_whole, "replicas in sync")
        for probe in probes:
            probe.close()

    def elect(self, topic: str) -> None:
        """After a start one broker leads more than its share."""
        admin = self._admin()  # must live as long as its future
        try:
            admin.elect_leaders(ElectionType.PREFERRED, None).result(_ADMIN_S)
        except Exception as error:
            raise BenchError(f"{self.kind} did not elect leaders: {error}") from error
        self.wait_for_leaders(topic)

    def fill(self) -> None:
        """The history, of records like the producers', and retention that keeps as much of it as
        there is."""
        each = self.size.data_bytes // self.size.partitions
        config = {"segment.bytes": str(each // SEGMENTS), "retention.bytes": str(each)}
        self.create(NewTopic(HISTORY, self.size.partitions, REPLICAS, config=config))
        sent = loadgen.run(
            *("produce", self.bootstrap, HISTORY),
            connections=OLD,
            acks="all",
            record_bytes=self.size.record_bytes,
            batch_bytes=min(_FILL_BATCH_BYTES, each // SEGMENTS // 2),
            bytes=self.size.data_bytes,
            seconds=_FILL_S,
        )
        if sent.bytes < self.size.data_bytes:
            raise BenchError(f"only {sent.bytes / 1e6:.0f} MB were produced")

    def forget_memory(self) -> None:
        """Stops all, drops the history from their caches and the kernel's, and starts all four."""
        for broker in self.old:
            broker.ask_to_stop()
        for broker in self.old:
            broker.stop()
            broker.forget_cache()
            for log_dir in broker.log_dirs:
                evict(log_dir)
        self.start(self.brokers)
        self.elect(HISTORY)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def remove(self) -> None:
        for one in (*self.brokers, self.zookeeper):
            if one.folder.exists():
                one.remove()


def evict(folder: Path) -> None:
    """Drops files from the page cache, once they are on the disk."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


@contextmanager
def side(kind: str, folder: Path, size: Size) -> Iterator[Side]:
    """A side that is not started yet; its data goes in the end. BenchError without room for it."""
    free = shutil.disk_usage(folder).free
    if free < size.disk_bytes():
        raise BenchError(
            f"{folder} has {free / 1e9:.1f} GB free, {size.disk_bytes() / 1e9:.1f} GB are needed: "
            "choose another folder with --out, or less with --gb"
        )
    group = memory_group.create(f"pyrklog-bench-{os.getpid()}", size.memory_bytes)
    place = Path(tempfile.mkdtemp(prefix="data-", dir=folder))
    found = Side(kind, place, group, size)
    try:
        yield found
    finally:
        found.remove()
        spent.empty(place)
        if isinstance(group, memory_group.MemoryGroup):
            group.remove()
