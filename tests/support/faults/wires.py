"""The traffic of a cluster's brokers: pipes on one host, or a network of hosts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from pyrklog.testing.broker import free_port
from tests.support.faults.hosts import HERE, Hosts, address
from tests.support.faults.network import UNKNOWN, ZOOKEEPER, Network, Pair
from tests.support.zookeeper_server import ZooKeeperServer

_CLIENTS_PORT = 9092
_BROKERS_PORT = 9093


class Place(NamedTuple):
    host: str
    port: int
    inner: int
    """Its port for other brokers."""
    shown: int
    """The port that other brokers connect to."""
    zookeeper: str
    wrapper: list[str]
    """A command prefix that runs a command there."""


class Wires(Protocol):
    """Between brokers, and to ZooKeeper."""

    def place(self, number: int, server: ZooKeeperServer) -> Place:
        """The place of a new broker."""

    def outward(self, number: int) -> list[Pair]:
        """All pairs of a broker with ZooKeeper and clients."""

    def cut(self, pairs: Iterable[Pair]) -> None:
        """The first of each pair no longer reaches the second; neither is told."""

    def join(self, pairs: Iterable[Pair]) -> None:
        """The first reaches the second again."""

    def reset(self, pairs: Iterable[Pair]) -> None:
        """Breaks their connections; new ones work."""

    def refuse(self, target: int) -> None:
        """The target's process is gone: its ports refuse."""

    def accept(self, target: int) -> None:
        """It listens again."""

    def close(self) -> None:
        """Ends everything."""


class Pipes(Network):
    """All on one host. A cut silences the client's connections to the server, both ways."""

    def place(self, number: int, server: ZooKeeperServer) -> Place:
        port, inner, shown, to_store = (free_port() for _ in range(4))
        self.gate(UNKNOWN, number, shown, inner)
        self.gate(number, ZOOKEEPER, to_store, server.port)
        return Place("127.0.0.1", port, inner, shown, f"127.0.0.1:{to_store}", [])

    def outward(self, number: int) -> list[Pair]:
        return [(number, ZOOKEEPER)]


class Cables:
    """One host each. A cut drops packets in one direction."""

    def __init__(self, hosts: Hosts) -> None:
        """``hosts``: of the brokers and ``ZOOKEEPER``; closed with this."""
        self._hosts = hosts
        self.cut = hosts.cut
        self.join = hosts.join
        self.reset = hosts.reset
        self.close = hosts.close

    def place(self, number: int, server: ZooKeeperServer) -> Place:
        return Place(
            address(number),
            _CLIENTS_PORT,
            _BROKERS_PORT,
            _BROKERS_PORT,
            server.address,
            self._hosts.wrapper(number),
        )

    def outward(self, number: int) -> list[Pair]:
        return [pair for n in (ZOOKEEPER, HERE) for pair in ((number, n), (n, number))]

    def refuse(self, target: int) -> None:
        """The host's kernel does that."""

    def accept(self, target: int) -> None:
        """The host's kernel does that."""
