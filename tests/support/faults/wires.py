"""What carries the traffic of a cluster's brokers: pipes on one host, or a network of hosts."""

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
    """Where a broker lives."""

    host: str
    port: int
    """For clients."""
    inner: int
    """Where it listens for other brokers."""
    shown: int
    """What other brokers connect to."""
    zookeeper: str
    """How it reaches ZooKeeper."""
    wrapper: list[str]
    """What, before a command, runs it there."""


class Wires(Protocol):
    """Between brokers, and to ZooKeeper."""

    def place(self, number: int, server: ZooKeeperServer) -> Place:
        """A new broker's."""

    def outward(self, number: int) -> list[Pair]:
        """All pairs of a broker with anybody but brokers."""

    def cut(self, pairs: Iterable[Pair]) -> None:
        """The first of each pair does not reach the second any more, and nobody is told."""

    def join(self, pairs: Iterable[Pair]) -> None:
        """It does again."""

    def reset(self, pairs: Iterable[Pair]) -> None:
        """Their connections break; new ones work."""

    def refuse(self, target: int) -> None:
        """Its process is gone: nobody listens there any more."""

    def accept(self, target: int) -> None:
        """Somebody listens there again."""

    def close(self) -> None:
        """Ends everything."""


class Pipes(Network):
    """All on one host. What is cut are connections, in both directions, by who made them."""

    def place(self, number: int, server: ZooKeeperServer) -> Place:
        """See `Wires`."""
        port, inner, shown, to_store = (free_port() for _ in range(4))
        self.gate(UNKNOWN, number, shown, inner)
        self.gate(number, ZOOKEEPER, to_store, server.port)
        return Place("127.0.0.1", port, inner, shown, f"127.0.0.1:{to_store}", [])

    def outward(self, number: int) -> list[Pair]:
        """See `Wires`."""
        return [(number, ZOOKEEPER)]


class Cables:
    """Everybody has a host of his own. What is cut are packets, in one direction."""

    def __init__(self, hosts: Hosts) -> None:
        """``hosts``: of the brokers and `ZOOKEEPER`; closed with this."""
        self._hosts = hosts
        self.cut = hosts.cut
        self.join = hosts.join
        self.reset = hosts.reset
        self.close = hosts.close

    def place(self, number: int, server: ZooKeeperServer) -> Place:
        """See `Wires`."""
        return Place(
            address(number),
            _CLIENTS_PORT,
            _BROKERS_PORT,
            _BROKERS_PORT,
            server.address,
            self._hosts.wrapper(number),
        )

    def outward(self, number: int) -> list[Pair]:
        """See `Wires`."""
        return [pair for n in (ZOOKEEPER, HERE) for pair in ((number, n), (n, number))]

    def refuse(self, target: int) -> None:
        """Its kernel does that."""

    def accept(self, target: int) -> None:
        """Its kernel does that."""
