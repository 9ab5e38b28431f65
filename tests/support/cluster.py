"""Brokers of one cluster, on a ZooKeeper of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from pyrklog.testing import TestBroker
from tests.support.faults.site import Site
from tests.support.waiting import wait_until

SESSION_TIMEOUT_MS = 2_000
STORE_SESSION_S = 30.0
"""Longer than ZooKeeper is away in any test, on a busy machine too."""
OFFSETS_REPLICAS = 3
"""The default of ``offsets.topic.replication.factor``."""


class BrokerCluster(Site):
    """Brokers by number; each can be killed, paused and started again."""

    def __init__(
        self,
        zookeeper: str,
        folder: Path,
        count: int = 3,
        racks: Mapping[int, str] | None = None,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        """``zookeeper`` is an address with a chroot for this cluster only; ``racks`` is the rack of
        each broker; ``environment`` replaces the inherited one."""
        self._environment = environment
        self.zookeeper = zookeeper
        places = {number: {"broker.rack": rack} for number, rack in (racks or {}).items()}
        if count < OFFSETS_REPLICAS:
            options.setdefault("offsets.topic.replication.factor", count)
        self.brokers: dict[int, TestBroker] = {
            number: self._broker(
                number, folder / f"broker{number}", {**options, **places.get(number, {})}
            )
            for number in range(1, count + 1)
        }
        self._client: KazooClient | None = None

    def _broker(self, number: int, data: Path, options: Mapping[str, Any]) -> TestBroker:
        return TestBroker(
            data,
            faults=False,
            environment=self._environment,
            options={"zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS, **options},
            arguments=["--zookeeper", self.zookeeper, "--broker-id", str(number)],
        )

    @property
    def bootstrap(self) -> str:
        """All brokers, for ``bootstrap.servers``."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> BrokerCluster:
        """Starts all brokers and waits until each knows all."""
        for broker in self.brokers.values():
            broker.start()
        return self

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.close()
        if self._client is not None:
            self._client.stop()
            self._client.close()

    # --- what ZooKeeper holds ----------------------------------------------------------------

    @property
    def store(self) -> KazooClient:
        """A ZooKeeper session of the test's own."""
        if self._client is None:
            self._client = KazooClient(self.zookeeper, timeout=STORE_SESSION_S)
            self._client.start()
        return self._client

    def json(self, path: str) -> dict[str, Any]:
        """The content of a znode; empty if it does not exist."""
        try:
            data, _ = self.store.get(path)
        except NoNodeError:
            return {}
        content: dict[str, Any] = json.loads(data)
        return content

    def controller(self) -> int:
        """Waits for a controller; returns its id."""
        found = wait_until(lambda: self.json("/controller"), "no controller")
        return int(found["brokerid"])

    def registered(self) -> set[int]:
        # Its own session may end while ZooKeeper is away.
        names = self.store.retry(self.store.get_children, "/brokers/ids")
        return {int(name) for name in names}

    def is_registered(self, number: int) -> bool:
        return number in self.registered()

    def is_gone(self, number: int) -> bool:
        return number not in self.registered()
