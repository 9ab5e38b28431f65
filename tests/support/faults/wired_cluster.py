"""Three brokers with wires to each other and to ZooKeeper that can be cut, and settable clocks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pyrklog.testing import TestBroker
from tests.support.cluster import BrokerCluster
from tests.support.faults.disks import Disk, can_mount
from tests.support.faults.hosts import Hosts, address
from tests.support.faults.network import ZOOKEEPER, Pair
from tests.support.faults.stepped_clock import SteppedClock
from tests.support.faults.wires import Cables, Pipes, Wires
from tests.support.zookeeper_server import ZooKeeperServer

DISK_BYTES = 512 << 20
NUMBERS = (1, 2, 3)

OPTIONS: Mapping[str, Any] = {
    "replica.lag.time.max.ms": 1_500,
    "replica.socket.timeout.ms": 3_000,
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 3,
    "group.initial.rebalance.delay.ms": 100,
    "group.min.session.timeout.ms": 1_000,
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}


class _PlacedBroker(TestBroker):
    host: str

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"


class WiredCluster(BrokerCluster):
    def __init__(self, server: ZooKeeperServer, chroot: str, folder: Path, network: Wires) -> None:
        self.server = server
        self.network = network
        self.disks: dict[int, Disk] = {}
        """The log directories' file systems, by broker; empty where mounting is impossible."""
        self.clocks: dict[int, SteppedClock] = {}
        self._chroot = chroot
        super().__init__(f"{server.address}/{chroot}", folder, len(NUMBERS), **OPTIONS)

    def _broker(self, number: int, data: Path, options: Mapping[str, Any]) -> TestBroker:
        (data / "logs").mkdir(parents=True)
        if can_mount():
            self.disks[number] = Disk(data / "logs", DISK_BYTES)
        self.clocks[number] = SteppedClock(data.parent / "clocks", f"broker{number}")
        place = self.network.place(number, self.server)
        host, port = place.host, place.port
        broker = _PlacedBroker(
            data,
            faults=False,
            port=port,
            environment=self.clocks[number].environment,
            wrapper=place.wrapper,
            options={
                "zookeeper.session.timeout.ms": 2_000,
                **options,
                "advertised.listeners": f"PLAINTEXT://{host}:{port},INTERNAL://{host}:{place.shown}",
            },
            arguments=[
                "--zookeeper",
                f"{place.zookeeper}/{self._chroot}",
                "--broker-id",
                str(number),
                "--listen",
                f"PLAINTEXT://{host}:{port},INTERNAL://{host}:{place.inner}",
            ],
        )
        broker.host = host
        return broker

    def log_dir(self, number: int) -> Path:
        return self.brokers[number].data / "logs"

    def close(self) -> None:
        super().close()
        for disk in self.disks.values():
            disk.close()

    # --- one broker --------------------------------------------------------------------------

    def kill(self, number: int) -> None:
        """kill -9; its port refuses at once."""
        super().kill(number)
        self.network.refuse(number)

    def stop(self, number: int) -> None:
        super().stop(number)
        self.network.refuse(number)

    def begin(self, number: int) -> None:
        self.network.accept(number)
        self.brokers[number].start(timeout_s=60)

    def others(self, number: int) -> list[int]:
        return [other for other in self.brokers if other != number]

    def wires(self, number: int) -> list[Pair]:
        """All wires from and to the broker."""
        between = [pair for n in self.others(number) for pair in ((number, n), (n, number))]
        return [*between, *self.network.outward(number)]


@contextmanager
def wired_cluster(folder: Path, chroot: str) -> Iterator[WiredCluster]:
    """Three brokers, not started, on a ZooKeeper of their own, which can also be hit. All run on
    one host, or each on its own if ``CHECKER_NETWORK`` is ``hosts``."""
    with ExitStack() as ended:
        network: Wires
        if os.environ.get("CHECKER_NETWORK") == "hosts":
            hosts = Hosts([ZOOKEEPER, *NUMBERS])
            network = Cables(hosts)
            server = ZooKeeperServer(
                folder / "zookeeper", host=address(ZOOKEEPER), wrapper=hosts.wrapper(ZOOKEEPER)
            )
        else:
            server = ZooKeeperServer(folder / "zookeeper")
            network = Pipes()
        ended.callback(network.close)
        ended.callback(server.kill)
        server.start()
        cluster = WiredCluster(server, chroot, folder / "cluster", network)
        ended.callback(cluster.close)
        yield cluster
