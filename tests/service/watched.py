"""Three brokers with ZooKeeper under load, and a Prometheus that goes by the shipped files."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from ci.debian_tools import program
from pyrklog.testing.broker import free_port
from tests.service import load, scraping
from tests.service.durations import longest_s, shortened, shortened_rules
from tests.service.failing_disk import FailingDisk
from tests.service.load import Load
from tests.service.prometheus import Prometheus
from tests.support.faults.disks import Disk, can_mount
from tests.support.faults.wired_cluster import NUMBERS, WiredCluster, wired_cluster
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".cache" / "prometheus"
RULES = "pyrklog-alerts.yml"
DISK_BYTES = 256 << 30
"""The limit of a file system in memory, which takes no more than its files. So large that what the
tests write does not look as if the disk were full within a day."""
CACHE_BYTES = 96 << 20
"""Little above what counts as small (64 MiB)."""
ODD = 3
"""The broker whose second log directory is the disk that fails."""
OTHER = 2
"""The broker that most other faults hit."""
SETTLED_S = 180.0
_RESTARTS = f'max(changes(process_start_time_seconds{{job="pyrklog"}}[{shortened("30m")}]))'
"""Within the window of PyrklogBrokerRestarts."""
OPTIONS: dict[str, Any] = {
    # In a container, too.
    "pyrklog.cache.dir": "/dev/shm",
    "pyrklog.cache.max.bytes": CACHE_BYTES,
    # Faults must not make sessions end that they do not mean, on a busy machine too.
    "zookeeper.session.timeout.ms": 6_000,
    "replica.lag.time.max.ms": 10_000,
    "replica.socket.timeout.ms": 10_000,
    # Leaders move back when a test is at its end, so that an alert about it can be waited for.
    "auto.leader.rebalance.enable": False,
    "transaction.state.log.num.partitions": 4,
}


class Watched:
    """``folder`` has the shipped files; ``folder/targets`` what Prometheus scrapes."""

    def __init__(self, folder: Path, cluster: WiredCluster, disk: FailingDisk) -> None:
        self.folder = folder
        self.cluster = cluster
        self.disk = disk
        self.brokers = cluster.brokers
        self.prometheus: Prometheus
        self.load: Load
        self._longest_s = 0
        self._admin: AdminClient
        self._ports = {number: free_port() for number in NUMBERS}
        for number, broker in cluster.brokers.items():
            broker.options |= OPTIONS
            broker.options["pyrklog.http.listener"] = self.target(number)
            cluster.disks[number].grow(DISK_BYTES)
        odd = cluster.brokers[ODD]
        odd.options["log.dirs"] = f"{cluster.log_dir(ODD)},{disk.folder}"

    # --- what Prometheus scrapes -----------------------------------------------------------------

    def target(self, number: int) -> str:
        """Where a broker serves HTTP: the label ``instance``."""
        return f"127.0.0.1:{self._ports[number]}"

    @property
    def targets(self) -> list[str]:
        return [self.target(number) for number in NUMBERS]

    def scrape(self, job: str, targets: Sequence[str]) -> None:
        """A job's targets from now on; see :func:`.scraping.configuration`."""
        folder = self.folder / "targets"
        folder.mkdir(exist_ok=True)
        fresh = folder / f".{job}"
        fresh.write_text(json.dumps([{"targets": list(targets)}]))
        fresh.rename(folder / f"{job}.json")

    def write_files(self) -> None:
        """The shipped files, with the alerts' durations shortened."""
        for kind in ("alerts", "prometheus", "grafana"):
            command = [sys.executable, "-m", "pyrklog", "deploy", kind, "--to", str(self.folder)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rules = self.folder / RULES
        text = shortened_rules(rules.read_text())
        self._longest_s = longest_s(text)
        rules.write_text(text)

    def configuration(self) -> dict[str, Any]:
        jobs = (scraping.JOB, "topic", "group", "wide")
        for job in jobs:
            self.scrape(job, [] if job == "wide" else self.targets)
        template = (self.folder / "prometheus.yml").read_text()
        files = {job: str(self.folder / "targets" / f"{job}.json") for job in jobs}
        return scraping.configuration(template, load.TOPIC, load.GROUP, files)

    # --- the cluster -----------------------------------------------------------------------------

    @property
    def admin(self) -> AdminClient:
        """A new one, as librdkafka does not look for a controller that has changed. It is kept: a
        client ends with the last reference, also while it waits for an answer."""
        self._admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        return self._admin

    def create(self, topic: str, placed: Sequence[Sequence[int]], **options: str) -> None:
        """``placed``: the brokers of each partition's replicas. ``options`` with ``_`` for dots."""
        config = {name.replace("_", "."): value for name, value in options.items()}
        new = NewTopic(
            topic, len(placed), replica_assignment=list(map(list, placed)), config=config
        )
        self.admin.create_topics([new])[topic].result(60)

    @contextmanager
    def topic(self, topic: str, placed: Sequence[Sequence[int]], **options: str) -> Iterator[None]:
        """One for a while."""
        self.create(topic, placed, **options)
        try:
            yield
        finally:
            self.admin.delete_topics([topic])[topic].result(60)

    def log_dirs(self, number: int) -> list[Path]:
        own = [self.cluster.log_dir(number)]
        return [*own, self.disk.folder] if number == ODD else own

    def restart(self, number: int) -> None:
        """An orderly end, and a start."""
        self.cluster.stop(number)
        self.cluster.begin(number)

    def starting(self, number: int) -> Callable[[], None]:
        """Begins to start one; the result waits until it serves."""
        failures: list[BaseException] = []

        def begin() -> None:
            try:
                self.cluster.network.accept(number)
                self.cluster.brokers[number].start(timeout_s=SETTLED_S)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=begin)
        thread.start()

        def finish() -> None:
            thread.join()
            if failures:
                raise failures[0]

        return finish

    # --- waiting ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """Waits until nothing is left of a fault: all replicas in sync, preferred leaders, no
        alert, and no restart that would count with those of the next fault."""
        wait_until(lambda: self.cluster.registered() == set(NUMBERS), "not all are registered")
        wait_until(self._is_whole, "not all replicas are in sync", SETTLED_S)
        active: set[str] = set()

        def is_quiet() -> bool:
            nonlocal active
            self._prefer()
            active = self.prometheus.active()
            return not active and self.prometheus.number(_RESTARTS) == 0

        wait_until(is_quiet, lambda: f"alerts go on: {active}", self._longest_s + SETTLED_S)

    def _is_whole(self) -> bool:
        """By what each broker tells of the partitions that it leads."""
        answering = self.prometheus.number(f'sum(up{{job="{scraping.JOB}"}})')
        behind = self.prometheus.number(
            "sum(kafka_server_replicamanager_underreplicatedpartitions)"
            " + max(kafka_controller_kafkacontroller_offlinepartitionscount)"
        )
        return answering == len(NUMBERS) and behind == 0

    def _prefer(self) -> None:
        uneven = self.prometheus.number(
            "max(kafka_controller_kafkacontroller_preferredreplicaimbalancecount)"
        )
        if uneven:
            self.elect_preferred()

    def elect_preferred(self) -> None:
        """Tries it; while the controller moves, the caller tries again."""
        with suppress(KafkaException):
            self.admin.elect_leaders(ElectionType.PREFERRED, None).result(30)

    def goes_on(self, seconds: float) -> None:
        """Returns after so long; fails at once when a client does."""
        end = time.monotonic() + seconds

        def is_over() -> bool:
            self.load.check()
            return time.monotonic() >= end

        wait_until(is_over, "the clock stands still", seconds + 60)


@contextmanager
def watched_cluster(folder: Path) -> Iterator[Watched]:
    """All started and under load. The load has been read once."""
    assert can_mount(), "disks that fill up, hang and fail need root"
    with wired_cluster(folder, "watched") as cluster, ExitStack() as ended:
        data = cluster.brokers[ODD].data
        files = Disk(data / "failing-files", DISK_BYTES)
        ended.callback(files.close)
        disk = FailingDisk(TOOLS, data / "failing", files.folder)
        ended.callback(disk.close)
        shipped = folder / "monitoring"
        shipped.mkdir()
        watched = Watched(shipped, cluster, disk)
        watched.write_files()
        for broker in cluster.brokers.values():
            ended.callback(broker.close)  # before the disk goes
        cluster.start()
        placed = [[1 + (n + m) % 3 for m in range(3)] for n in range(load.PARTITIONS)]
        watched.create(
            load.TOPIC, placed, **{k.replace(".", "_"): v for k, v in load.TOPIC_OPTIONS.items()}
        )
        watched.load = Load(cluster.bootstrap)
        ended.callback(watched.load.close)
        wait_until(lambda: watched.load.read > 0, "nothing is read")
        prometheus = program(TOOLS, "prometheus")
        watched.prometheus = Prometheus(prometheus, shipped, watched.configuration())
        ended.callback(watched.prometheus.close)
        yield watched
