"""A cluster's ports: one block of a thousand, fixed for its life.

========  =========================================================
from base  listener, on 127.0.0.1
========  =========================================================
0          broker 1, 2, ... for clients
50, 60, 70 ZooKeeper 1, 2, 3 for clients; followers; elections
100        broker 1, 2, ... for HTTP
200        broker 1, 2, ... for other brokers
250        the network's route to broker 1, 2, ..., for brokers
300        the network's routes to ZooKeeper 1, 2, 3 for broker 1, 2, ...
========  =========================================================
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Collection, Iterable

from pyrklog.base.problems import Problem
from pyrklog.dev.errors import DevError

HOST = "127.0.0.1"
BASE_PORT = 19092
BLOCK_PORTS = 1000
USED_PORTS = 450
"""Of a block."""
BROKERS_MAX = 50
ZOOKEEPERS_MAX = 3
_EPHEMERAL_FROM = 32768
"""Start of Linux's default range of local ports."""


def client_port(base: int, broker: int) -> int:
    return base + broker - 1


def zookeeper_port(base: int, server: int) -> int:
    """Where clients reach ZooKeeper; its other two ports are 10 and 20 above."""
    return base + 49 + server


def peer_port(base: int, broker: int) -> int:
    return base + 199 + broker


def routed_peer_port(base: int, broker: int) -> int:
    """The network's port to this broker, for other brokers."""
    return base + 249 + broker


def routed_zookeeper_port(base: int, broker: int, server: int) -> int:
    """The network's port to this ZooKeeper, for this broker."""
    return base + 299 + (broker - 1) * ZOOKEEPERS_MAX + server


def check_base(base: int) -> None:
    """Raises :class:`DevError` where a block does not fit."""
    if not 1024 <= base <= 65536 - USED_PORTS:
        raise DevError(
            Problem.ARGUMENT_VALUE, f"--base-port is 1024 to {65536 - USED_PORTS}, not {base}", None
        )


def choose_base(others: Collection[int]) -> int:
    for base in range(BASE_PORT, _EPHEMERAL_FROM - USED_PORTS, BLOCK_PORTS):
        if all(not overlaps(base, other) for other in others):
            return base
    raise DevError(
        Problem.DEV_PORTS,
        f"{len(others)} clusters have all the ports",
        "purge one, or give --base-port",
    )


def overlaps(base: int, other: int) -> bool:
    return abs(base - other) < USED_PORTS


def check_free(ports: Iterable[int], fix: str) -> None:
    """Raises :class:`DevError` for the first taken port, with its holder and ``fix``."""
    for port in ports:
        with socket.socket() as probe:
            # As the later listener: closed connections do not block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
                probe.listen(1)
            except OSError as error:
                raise _taken(port, error, fix) from None


def _taken(port: int, error: OSError, fix: str) -> DevError:
    if error.errno != errno.EADDRINUSE:
        return DevError(Problem.DEV_PORTS, f"port {port}: {error.strerror}", fix)
    from pyrklog.base.diagnosis import port_holder

    holder = port_holder(port) or "another process"
    return DevError(Problem.DEV_PORTS, f"port {port} is held by {holder}", fix)
