"""What the network of a cluster connects with what, in ``network.json``.

A broker reaches ZooKeeper, and brokers reach each other, through ports of the network alone. Each
route leads from one such port to the port behind it; a broker that is cut off has none that works,
to it or from it. The file is written by commands and read at SIGHUP; the network answers by writing
the revision that it has taken over to ``network.applied``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from pyrklog.dev import ports

ROUTES_FILE = "network.json"
APPLIED_FILE = "network.applied"


class Route(msgspec.Struct, frozen=True):
    """``broker`` is whose port it leads to, or, of a route to ZooKeeper, who uses it."""

    port: int
    target: int
    broker: int
    is_to_zookeeper: bool


class Routes(msgspec.Struct):
    """The whole file."""

    revision: int
    routes: list[Route]
    isolated: list[int]


def routes_of(base: int, brokers: Sequence[int], zookeepers: Sequence[int]) -> list[Route]:
    """All routes of a cluster."""
    found: list[Route] = []
    for broker in brokers:
        port, target = ports.routed_peer_port(base, broker), ports.peer_port(base, broker)
        found.append(Route(port, target, broker, is_to_zookeeper=False))
        for server in zookeepers:
            port = ports.routed_zookeeper_port(base, broker, server)
            target = ports.zookeeper_port(base, server)
            found.append(Route(port, target, broker, is_to_zookeeper=True))
    return found


def read_routes(folder: Path) -> Routes:
    """Raises :class:`OSError` or :class:`msgspec.DecodeError`."""
    return msgspec.json.decode((folder / ROUTES_FILE).read_bytes(), type=Routes)


def applied_revision(folder: Path) -> int:
    """What the network has taken over last; -1 where it never has."""
    try:
        return int((folder / APPLIED_FILE).read_text())
    except (OSError, ValueError):
        return -1
