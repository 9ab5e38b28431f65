"""Reads a cluster's topics once from Kafka's ZooKeeper, like KRaft's records.

Our own store has the same layout (``metastore/znodes.py``). Nothing is written there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyrklog.adoption.kraft import KraftMetadata, KraftPartition, KraftTopic
from pyrklog.errors import ConfigError, TemporaryError
from pyrklog.metastore import znodes

CONNECT_TIMEOUT_S = 10.0


def read_zookeeper(address: str, cluster_id: str) -> KraftMetadata:
    """Reads ``HOST:PORT[,HOST:PORT...][/CHROOT]``, which must be the directory's cluster.

    Raises :class:`ConfigError` and :class:`TemporaryError`. Blocks.
    """
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    client = KazooClient(hosts=address, timeout=CONNECT_TIMEOUT_S, read_only=True)
    try:
        client.start(timeout=CONNECT_TIMEOUT_S)
        return _read(client, cluster_id)
    except KazooTimeoutError:
        raise TemporaryError(
            f"No ZooKeeper answers at {address}.",
            fix="start it, or start without --adopt-zookeeper to adopt topics without options",
        ) from None
    except (znodes.ZnodeError, KazooException, ValueError) as error:
        raise ConfigError(
            f"The metadata in ZooKeeper ({address}) cannot be read: {error!r}.",
            fix="give the address as Kafka's zookeeper.connect does, with its chroot",
        ) from None
    finally:
        client.stop()
        client.close()


def _read(client: Any, cluster_id: str) -> KraftMetadata:
    data, _ = client.get(znodes.CLUSTER_ID)
    theirs = znodes.decode_cluster_id(data)
    if theirs != cluster_id:
        raise ConfigError(
            f"ZooKeeper knows cluster {theirs}, but the log directory belongs to {cluster_id}.",
            fix="give the address of the cluster that wrote the directory",
        )
    state = KraftMetadata()
    for name in sorted(client.get_children(znodes.BROKER_TOPICS)):
        topic = _read_topic(client, name)
        # Topics from before Kafka 2.8 have no id, but need a unique key.
        state.topics[topic.topic_id if any(topic.topic_id) else name.encode()] = topic
        state.options[name] = _read_options(client, name)
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


def _read_options(client: Any, name: str) -> dict[str, str]:
    path = znodes.topic_config_path(name)
    if client.exists(path) is None:
        return {}
    options: Mapping[str, str] = znodes.decode_config(path, client.get(path)[0])
    return dict(options)
