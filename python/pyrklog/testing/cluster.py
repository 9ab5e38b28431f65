from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from pyrklog.testing import admin
from pyrklog.testing.broker import TestBroker
from pyrklog.testing.door_client import ArmedFault
from pyrklog.testing.guard import guard
from pyrklog.testing.guard_process import remove_arenas
from pyrklog.testing.ports import free_port
from pyrklog.testing.topics import Record, Topic, TopicReader
from pyrklog.testing.zookeeper import TestZooKeeper

SESSION_TIMEOUT_MS = 3000
START_S = 120.0
REPLICAS_MAX = 3
BROKERS_MAX = 9
CLIENTS, PEERS = "CLIENTS", "PEERS"


class _Member(TestBroker):
    """Brokers reach it past its door: no fault meets them."""

    __test__ = False

    peer_port: int

    def _listeners(self) -> str:
        return f"{CLIENTS}://127.0.0.1:{self.port},{PEERS}://127.0.0.1:{self.peer_port}"


class TestCluster:
    """Brokers of one cluster, each a :class:`TestBroker`, with a ZooKeeper of its own.

    `brokers` has them by their numbers, from 1; what is there (`kill`, `restart`, `fail_next`,
    `clock`, ...) meets one broker, what is here the cluster. As a context manager it starts on
    entry, and ends and removes everything on exit.
    """

    __test__ = False

    def __init__(
        self,
        brokers: int = 3,
        *,
        data: Path | str | None = None,
        options: Mapping[str, str | int | bool] | None = None,
        zookeeper: str | None = None,
    ) -> None:
        """Nothing starts yet.

        `options` are those of each broker; by default topics have three replicas, or one a broker
        where there are fewer, and `min.insync.replicas` is one less. `data` is a directory, else a
        temporary one. `zookeeper` is the `HOST:PORT` of a running server to use instead; the
        cluster has a chroot of its own there.
        """
        if not 1 <= brokers <= BROKERS_MAX:
            raise ValueError(f"a cluster has 1 to {BROKERS_MAX} brokers, not {brokers}")
        self._is_temporary = data is None
        self.data = Path(tempfile.mkdtemp(prefix="pyrklog-cluster-") if data is None else data)
        self.zookeeper = None if zookeeper else TestZooKeeper(self.data / "zookeeper")
        store = self.zookeeper.address if self.zookeeper is not None else str(zookeeper)
        at = f"{store}/pyrklog-{secrets.token_hex(4)}"
        replicas = min(REPLICAS_MAX, brokers)
        given = {
            "listener.security.protocol.map": f"{CLIENTS}:PLAINTEXT,{PEERS}:PLAINTEXT",
            "inter.broker.listener.name": PEERS,
            "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "min.insync.replicas": max(1, replicas - 1),
            **(options or {}),
        }
        self._reader = TopicReader(lambda: self.bootstrap)
        self.brokers: dict[int, TestBroker] = {}
        for number in range(1, brokers + 1):
            member = _Member(
                self.data / f"broker-{number}",
                options=given,
                arguments=["--zookeeper", at, "--broker-id", str(number)],
                faults=True,
            )
            member.peer_port = free_port()
            self.brokers[number] = member

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`: all brokers."""
        return ",".join(one.bootstrap for one in self.brokers.values())

    @property
    def running(self) -> dict[int, TestBroker]:
        """The brokers that run, by number."""
        return {number: one for number, one in self.brokers.items() if one.running}

    @property
    def is_whole(self) -> bool:
        """Whether all brokers run, and its own ZooKeeper."""
        store_runs = self.zookeeper is None or self.zookeeper.running
        return store_runs and len(self.running) == len(self.brokers)

    def start(self) -> Self:
        """Starts ZooKeeper and all brokers, also after some were killed; returns when each knows
        all. Raises DevError without Java, `BrokerExited`, TimeoutError."""
        guard().add(self.data, is_temporary=self._is_temporary)
        if self.zookeeper is not None and not self.zookeeper.running:
            self.zookeeper.start()
        down = [one for one in self.brokers.values() if not one.running]
        with ThreadPoolExecutor(len(self.brokers)) as threads:
            list(threads.map(partial(TestBroker.start, timeout_s=START_S), down))
        for one in self.brokers.values():
            knows_all = partial(admin.knows, one.address, set(self.brokers))
            admin.wait_until(knows_all, START_S, "the brokers do not find one another")
        return self

    def close(self) -> None:
        """Ends all and removes the data, unless its directory was given."""
        self._reader.close()
        with ThreadPoolExecutor(len(self.brokers)) as threads:
            list(threads.map(TestBroker.close, self.brokers.values()))
        if self.zookeeper is not None:
            self.zookeeper.kill()
        if self._is_temporary:
            remove_arenas(self.data)
            shutil.rmtree(self.data, ignore_errors=True)
            for one in self.brokers.values():
                guard().drop(one.data)
        guard().drop(self.data)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- topics ----------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replicas: int = -1,
        config: Mapping[str, str | int | bool] | None = None,
        timeout_s: float = 30.0,
    ) -> Topic:
        """Creates a topic, by default of a name that no other one has; returns when each running
        broker knows its leaders. `replicas` -1: the default. Raises `ApiError`, TimeoutError."""
        topic = name if name is not None else f"topic-{secrets.token_hex(6)}"
        admin.create_topic(
            admin.controller(self._addresses().values(), timeout_s),
            topic,
            partitions=partitions,
            replicas=replicas,
            config=config,
            timeout_s=timeout_s,
        )
        for address in self._addresses().values():
            admin.wait_for_leaders(address, topic, partitions, timeout_s)
        return Topic.of(self, topic)

    def delete_topic(self, name: str, *, timeout_s: float = 30.0) -> None:
        """Also one that is gone. Raises `ApiError`."""
        at = admin.controller(self._addresses().values(), timeout_s)
        admin.delete_topic(at, name, timeout_s=timeout_s)

    def records(self, topic: str, *, timeout_s: float = 30.0) -> list[Record]:
        """As :meth:`TestBroker.records`."""
        return self._reader.read_all(topic, timeout_s=timeout_s)

    def tail(self, topic: str, last: int, *, timeout_s: float = 30.0) -> list[Record]:
        """As :meth:`TestBroker.tail`."""
        return self._reader.read_all(topic, timeout_s=timeout_s, last=last)

    def wait_for(self, topic: str, count: int, *, timeout_s: float = 10.0) -> list[Record]:
        """As :meth:`TestBroker.wait_for`."""
        return self._reader.read_until(topic, count, timeout_s=timeout_s)

    def leader(self, topic: str, partition: int = 0, *, timeout_s: float = 10.0) -> int:
        """The number of the broker that leads it, as a running one knows; -1: none does. Raises
        LookupError for an unknown partition."""
        address = next(iter(self._addresses().values()))
        found = admin.partition(address, topic, partition, timeout_s)
        if found is None:
            raise LookupError(f"there is no partition {partition} of topic {topic}")
        return found.leader_id

    # --- faults ----------------------------------------------------------------------------------

    def move_leader(self, topic: str, partition: int, to: int, *, timeout_s: float = 30.0) -> None:
        """Makes broker `to` the leader; returns when each running broker knows it. Raises
        ValueError where it is no replica in sync, LookupError, `ApiError`, TimeoutError."""
        admin.move_leader(self._addresses(), topic, partition, to, timeout_s)

    def fail_next(
        self, api: str | int, error: str | int, times: int = 1, *, client_id: str | None = None
    ) -> list[ArmedFault]:
        """As :meth:`TestBroker.fail_next`, at each running broker: `times` counts there."""
        brokers = self.running.values()
        return [one.fail_next(api, error, times, client_id=client_id) for one in brokers]

    def delay(
        self, api: str | int, ms: int, times: int | None = None, *, client_id: str | None = None
    ) -> list[ArmedFault]:
        """As :meth:`TestBroker.delay`, at each running broker."""
        brokers = self.running.values()
        return [one.delay(api, ms, times, client_id=client_id) for one in brokers]

    def disconnect(
        self,
        api: str | int | None = None,
        times: int = 1,
        *,
        after: bool = False,
        client_id: str | None = None,
    ) -> list[ArmedFault]:
        """As :meth:`TestBroker.disconnect`, at each running broker; without an API the list is
        empty."""
        found = [
            one.disconnect(api, times, after=after, client_id=client_id)
            for one in self.running.values()
        ]
        return [one for one in found if one is not None]

    def clear_faults(self) -> None:
        """Takes all faults back, and sets the clocks right."""
        for one in self.brokers.values():
            one.clear_faults()

    def _addresses(self) -> dict[int, admin.Address]:
        found = {number: one.address for number, one in self.running.items()}
        if not found:
            raise RuntimeError("no broker is running")
        return found
