from pathlib import Path
from typing import Any

from pyrklog.cli.output import Listing, columns
from pyrklog.dev.brokers import cluster_id
from pyrklog.dev.state import Cluster, Node, Place

STATUS_COLUMNS = columns("node, role, address, http, pid>, state, rack*, directory, log*")
STARTED_COLUMNS = columns("node, kafka, http, pid>, data")


def listing(place: Place, cluster: Cluster) -> Listing:
    """One item for each process. ``pid`` is null without one, ``http`` is of brokers only, and so
    is ``isolated``."""
    items = [_item(place, cluster, node) for node in _in_order(cluster)]
    return Listing("pyrklog.dev/1", STATUS_COLUMNS, items, _cluster_id(place, cluster))


def started_listing(place: Place, cluster: Cluster) -> Listing:
    items = [
        {
            "node": node.name,
            "kafka": cluster.address_of(node) if node.role == "broker" else None,
            "http": cluster.http_of(node),
            "pid": None if node.process is None else node.process.pid,
            "data": short(place.node_folder(cluster, node)),
        }
        for node in _in_order(cluster)
        if node.role != "network"
    ]
    return Listing("pyrklog.dev-started/1", STARTED_COLUMNS, items)


def short(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _in_order(cluster: Cluster) -> list[Node]:
    return [*cluster.brokers, *cluster.zookeepers, cluster.network]


def _item(place: Place, cluster: Cluster, node: Node) -> dict[str, Any]:
    return {
        "node": node.name,
        "role": node.role,
        "address": cluster.address_of(node),
        "http": cluster.http_of(node),
        "pid": node.process.pid if node.process is not None and node.is_running else None,
        "state": cluster.state_of(node),
        "isolated": node.role == "broker" and node.number in cluster.isolated,
        "rack": node.rack,
        "directory": str(place.node_folder(cluster, node)),
        "log": str(place.log_of(cluster, node)),
    }


def _cluster_id(place: Place, cluster: Cluster) -> str | None:
    for node in cluster.brokers:
        found = cluster_id(place.node_folder(cluster, node) / "data")
        if found is not None:
            return found
    return None
