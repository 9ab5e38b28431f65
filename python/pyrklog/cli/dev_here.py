"""The clusters of ``pyrklog dev`` on this machine, for commands that meet one of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pyrklog.dev.ports import HOST, routed_zookeeper_port, zookeeper_port
from pyrklog.dev.state import Cluster

Address = tuple[str, int]


def dev_clusters(environment: Mapping[str, str]) -> list[Cluster]:
    from pyrklog.dev.errors import DevError
    from pyrklog.dev.state import DEFAULT_NAME, Place, dev_root

    default = Place(dev_root(environment), DEFAULT_NAME)
    try:
        own = [default.load()] if default.exists() else []
    except DevError:
        own = []
    return [*own, *default.others()]


def cluster_at(addresses: Collection[str], clusters: Iterable[Cluster]) -> Cluster | None:
    """The one whose brokers tell clients these addresses, HOST:PORT each."""
    for cluster in clusters:
        if addresses and set(addresses) <= {cluster.address_of(one) for one in cluster.brokers}:
            return cluster
    return None


def zookeepers_behind(cluster: Cluster) -> dict[Address, Address]:
    """The server behind each address of the cluster's network: each broker has its own."""
    base = cluster.base_port
    return {
        (HOST, routed_zookeeper_port(base, broker.number, server.number)): (
            HOST,
            zookeeper_port(base, server.number),
        )
        for broker in cluster.brokers
        for server in cluster.zookeepers
    }
