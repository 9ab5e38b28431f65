"""The routes of a cluster's network, in ``network.json``.

Brokers reach ZooKeeper and each other only through ports of the network; a route leads from such a
port to the port behind it. All routes to and from an isolated broker are cut. Commands write the
file and send SIGHUP; the network answers by writing the revision to ``network.applied``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from pyrklog.dev import ports

ROUTES_FILE = "network.json"
APPLIED_FILE = "network.applied"


class Route(msgspec.Struct, frozen=True):
    """``broker`` is the target; for a route to ZooKeeper, its user."""

    port: int
    target: int
    broker: int
    is_to_zookeeper: bool


class Routes(msgspec.Struct):
    revision: int
    routes: list[Route]
    isolated: list[int]


def routes_of(base: int, brokers: Sequence[int], zookeepers: Sequence[int]) -> list[Route]:
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
    """The revision that the network has applied last; -1 for none."""
    try:
        return int((folder / APPLIED_FILE).read_text())
    except (OSError, ValueError):
        return -1
