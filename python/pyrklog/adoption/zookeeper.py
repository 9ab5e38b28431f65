"""Reads a cluster's topics and options once from Kafka's ZooKeeper, like KRaft's records.

Our own store has the same layout (``metastore/znodes.py``). Nothing is written there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyrklog.adoption.kraft import ALL_BROKERS, KraftMetadata, KraftPartition, KraftTopic
from pyrklog.base.problems import Problem
from pyrklog.errors import ConfigError, TemporaryError
from pyrklog.metastore import znodes

CONNECT_TIMEOUT_S = 10.0
_LEFT_OUT = {
    "/config/clients": "client quota",
    "/config/ips": "client quota",
    "/config/users": "user's quota or credentials",
}
"""Folders whose nodes are counted, and what they are."""
_RULES = ("/kafka-acl", "/kafka-acl-extended/prefixed")
"""A folder for each type of resource, with a node for each resource."""


def read_zookeeper(address: str, cluster_id: str) -> KraftMetadata:
    """Reads ``HOST:PORT[,HOST:PORT...][/CHROOT]``, which must be the directory's cluster.

    Raises :class:`ConfigError` and :class:`TemporaryError`. Blocks.
    """
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    from pyrklog.metastore.zookeeper_handler import Reasons, quiet_logger

    client = KazooClient(
        hosts=address,
        timeout=CONNECT_TIMEOUT_S,
        read_only=True,
        logger=quiet_logger(Reasons()),  # else kazoo writes lines of its own before our error
    )
    try:
        client.start(timeout=CONNECT_TIMEOUT_S)
        return read_tree(client, cluster_id)
    except KazooTimeoutError:
        raise TemporaryError(
            Problem.ZOOKEEPER_AWAY,
            f"No ZooKeeper answers at {address}.",
            fix="start it, or start without --adopt-zookeeper to adopt topics without options",
        ) from None
    except (znodes.ZnodeError, KazooException, ValueError) as error:
        raise ConfigError(
            Problem.HANDOVER,
            f"The metadata in ZooKeeper ({address}) cannot be read: {error!r}.",
            fix="give the address as Kafka's zookeeper.connect does, with its chroot",
        ) from None
    finally:
        client.stop()
        client.close()


def read_tree(client: Any, cluster_id: str) -> KraftMetadata:
    """Raises :class:`ConfigError` for another cluster, and the client's errors."""
    data, _ = client.get(znodes.CLUSTER_ID)
    theirs = znodes.decode_cluster_id(data)
    if theirs != cluster_id:
        raise ConfigError(
            Problem.OTHER_CLUSTERS_DATA,
            f"ZooKeeper knows cluster {theirs}, but the log directory belongs to {cluster_id}.",
            fix="give the address of the cluster that wrote the directory",
        )
    state = KraftMetadata()
    for name in sorted(client.get_children(znodes.BROKER_TOPICS)):
        topic = _read_topic(client, name)
        # Topics from before Kafka 2.8 have no id, but need a unique key.
        state.topics[topic.topic_id if any(topic.topic_id) else name.encode()] = topic
        state.options[name] = _read_options(client, znodes.topic_config_path(name))
    _read_broker_options(client, state)
    for folder, kind in _LEFT_OUT.items():
        _count(client, state, folder, kind)
    for path in (f"{root}/{kind}" for root in _RULES for kind in _children(client, root)):
        _count(client, state, path, "access rule")
    if client.exists(znodes.PRODUCER_ID_BLOCK) is not None:
        block, _ = client.get(znodes.PRODUCER_ID_BLOCK)
        state.next_producer_id = znodes.decode_producer_ids(block).last + 1
    return state


def _read_topic(client: Any, name: str) -> KraftTopic:
    path = znodes.topic_path(name)
    data, _ = client.get(path)
    assignment = znodes.decode_topic(path, data)
    partitions = {}
    for index, replicas in assignment.replicas.items():
        where = znodes.state_path(name, index)
        if client.exists(where) is None:  # no broker has led it yet
            partitions[index] = KraftPartition(replicas, replicas, 0)
            continue
        state = znodes.decode_state(where, client.get(where)[0])
        partitions[index] = KraftPartition(replicas, state.isr, state.leader_epoch)
    return KraftTopic(name, assignment.topic_id, partitions)


def _read_broker_options(client: Any, state: KraftMetadata) -> None:
    from kazoo.exceptions import NoAuthError

    try:
        for entity in _children(client, znodes.CONFIG_BROKERS):
            options = _read_options(client, znodes.broker_config_path(entity))
            name = ALL_BROKERS if entity == znodes.DEFAULT_ENTITY else entity
            state.broker_options[name] = options
    except NoAuthError:  # zookeeper.set.acl: they may hold secrets
        state.broker_options.clear()
        state.knows_broker_options = False
        state.count_left_out("broker options that only Kafka's brokers may read")


def _count(client: Any, state: KraftMetadata, folder: str, kind: str) -> None:
    from kazoo.exceptions import NoAuthError

    try:
        state.count_left_out(kind, len(_children(client, folder)))
    except NoAuthError:
        state.count_left_out(f"{kind}, of unknown number")


def _children(client: Any, path: str) -> list[str]:
    return sorted(client.get_children(path)) if client.exists(path) is not None else []


def _read_options(client: Any, path: str) -> dict[str, str]:
    if client.exists(path) is None:
        return {}
    options: Mapping[str, str] = znodes.decode_config(path, client.get(path)[0])
    return dict(options)
