"""Three brokers whose wires can be cut, to each other and to ZooKeeper, and whose clocks can be
set."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyrklog.testing import TestBroker
from pyrklog.testing.broker import free_port
from tests.checker.network import UNKNOWN, ZOOKEEPER, Network
from tests.support.cluster import BrokerCluster
from tests.support.stepped_clock import SteppedClock
from tests.support.zookeeper_server import ZooKeeperServer

DISK_BYTES = 512 << 20

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


class WiredCluster(BrokerCluster):
    """Brokers that reach each other, and ZooKeeper, over a `Network`."""

    def __init__(self, server: ZooKeeperServer, chroot: str, folder: Path) -> None:
        self.server = server
        self.network = Network()
        self._mounted: list[Path] = []
        self.clocks: dict[int, SteppedClock] = {}
        self._chroot = chroot
        super().__init__(f"{server.address}/{chroot}", folder, **OPTIONS)

    def _broker(self, number: int, data: Path, options: Mapping[str, Any]) -> TestBroker:
        self._mount(data / "logs")
        self.clocks[number] = SteppedClock(data.parent / "clocks", f"broker{number}")
        port, inner, shown, to_store = (free_port() for _ in range(4))
        self.network.gate(UNKNOWN, number, shown, inner)
        self.network.gate(number, ZOOKEEPER, to_store, self.server.port)
        advertised = f"PLAINTEXT://127.0.0.1:{port},INTERNAL://127.0.0.1:{shown}"
        listeners = f"PLAINTEXT://127.0.0.1:{port},INTERNAL://127.0.0.1:{inner}"
        return TestBroker(
            data,
            port=port,
            environment=self.clocks[number].environment,
            options={
                "zookeeper.session.timeout.ms": 2_000,
                **options,
                "advertised.listeners": advertised,
            },
            arguments=[
                "--zookeeper",
                f"127.0.0.1:{to_store}/{self._chroot}",
                "--broker-id",
                str(number),
                "--listen",
                listeners,
            ],
        )

    def _mount(self, place: Path) -> None:
        """A disk of its own, which can be full without the others being so."""
        place.mkdir(parents=True)
        if not self.has_disks:
            return
        options = f"size={DISK_BYTES}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)
        self._mounted.append(place)

    @property
    def has_disks(self) -> bool:
        """Whether the log directories can be full: mounting a file system needs root."""
        return os.geteuid() == 0

    def log_dir(self, number: int) -> Path:
        """The broker's log directory."""
        return self.brokers[number].data / "logs"

    def close(self) -> None:
        super().close()
        self.network.close()
        for place in self._mounted:
            subprocess.run(["umount", "--lazy", place], check=True)

    # --- one broker --------------------------------------------------------------------------

    def kill(self, number: int) -> None:
        """Kill -9; its port refuses at once."""
        self.brokers[number].kill()
        self.network.refuse(number)

    def stop(self, number: int) -> None:
        """An orderly end."""
        self.brokers[number].stop(timeout_s=30)
        self.network.refuse(number)

    def begin(self, number: int) -> None:
        """Starts one that was killed or stopped."""
        self.network.accept(number)
        self.brokers[number].start(timeout_s=60)

    def others(self, number: int) -> list[int]:
        """All but this one."""
        return [other for other in self.brokers if other != number]
