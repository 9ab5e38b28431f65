from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from pyrklog.base.problems import Problem
from pyrklog.dev.ports import HOST, client_port, peer_port, routed_peer_port, routed_zookeeper_port
from pyrklog.dev.state import Cluster, Node, Place
from pyrklog.dev.zookeeper import SESSION_TIMEOUT_MS

if TYPE_CHECKING:
    from pyrklog.protocol.cluster import DescribeClusterResponse

    DescribeCluster = Callable[[tuple[str, int], float], DescribeClusterResponse]
    """Asks the broker at an address; the number is a time-out in seconds. Raises
    :class:`OSError`."""

CONFIG_FILE = "server.properties"
CHROOT = "/pyrklog"
CACHE_BYTES_MAX = 1 << 30
"""Of each broker: several share a laptop's memory."""
REPLICAS_MAX = 3
_ASK_TIMEOUT_S = 2.0


def write_files(place: Place, cluster: Cluster, node: Node) -> None:
    folder = place.node_folder(cluster, node)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / CONFIG_FILE
    if not file.exists():
        lines = settings(cluster, node, folder / "data")
        # In a properties file, a backslash begins an escape.
        file.write_text("".join(line.replace("\\", "\\\\") + "\n" for line in lines))


_WIRING = """
    broker.id node.id pyrklog.data.dir log.dir log.dirs listeners advertised.listeners
    listener.security.protocol.map inter.broker.listener.name security.inter.broker.protocol
    zookeeper.connect
"""
WIRING = frozenset(_WIRING.split())


def settings(cluster: Cluster, node: Node, data: Path) -> list[str]:
    """KEY=VALUE of all options of the broker; the user's own settings win, except for
    ``WIRING``."""
    base, number = cluster.base_port, node.number
    clients = f"CLIENTS://{HOST}:{client_port(base, number)}"
    zookeepers = ",".join(
        f"{HOST}:{routed_zookeeper_port(base, number, one.number)}" for one in cluster.zookeepers
    )
    replicas = min(REPLICAS_MAX, len(cluster.brokers))
    found: dict[str, object] = {
        "broker.id": number,
        "pyrklog.data.dir": data,
        "listeners": f"{clients},PEERS://{HOST}:{peer_port(base, number)}",
        "advertised.listeners": f"{clients},PEERS://{HOST}:{routed_peer_port(base, number)}",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,PEERS:PLAINTEXT",
        "inter.broker.listener.name": "PEERS",
        "zookeeper.connect": f"{zookeepers}{CHROOT}",
        "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "min.insync.replicas": max(1, replicas - 1),
        "group.initial.rebalance.delay.ms": 0,
        "pyrklog.cache.max.bytes": CACHE_BYTES_MAX,
        "pyrklog.cache.keep": "false",
    }
    if node.rack is not None:
        found["broker.rack"] = node.rack
    for setting in cluster.settings:
        key, _, value = setting.partition("=")
        found[key.strip()] = value
    return [f"{key}={value}" for key, value in found.items()]


def check_settings(cluster: Cluster, node: Node, folder: Path) -> None:
    """The broker's own check. Raises :class:`StartError` where the broker would refuse to start."""
    from pyrklog.config.load import load_config
    from pyrklog.errors import ConfigError

    for setting in cluster.settings:
        key = setting.partition("=")[0].strip()
        if key in WIRING:
            raise ConfigError(
                Problem.OPTIONS_DISAGREE,
                f"--set {key}: that is another one for each broker, or leads to them.",
            )
    load_config(overrides=settings(cluster, node, folder / "data"))


def command(place: Place, cluster: Cluster, node: Node) -> list[str]:
    config = place.node_folder(cluster, node) / CONFIG_FILE
    return [sys.executable, "-P", "-m", "pyrklog", "serve", "--config", str(config)]


def is_ready(output: str) -> bool:
    """Whether a broker has reported that it serves."""
    return any(_event(line) == "ready" for line in output.splitlines() if '"ready"' in line)


def knows(describe: DescribeCluster, cluster: Cluster, node: Node, others: Collection[int]) -> bool:
    """Whether the broker tells clients of all ``others`` and of a controller."""
    address = (HOST, client_port(cluster.base_port, node.number))
    try:
        found = describe(address, _ASK_TIMEOUT_S)
    except OSError:
        return False
    numbers = {one.broker_id for one in found.brokers}
    return found.error_code == 0 and numbers >= set(others) and found.controller_id in numbers


def _event(line: str) -> object:
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    return fields.get("event") if isinstance(fields, dict) else None


def cluster_id(data: Path) -> str | None:
    try:
        lines = (data / "logs" / "meta.properties").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition("=")
        if name.strip() == "cluster.id":
            return value.strip() or None
    return None
