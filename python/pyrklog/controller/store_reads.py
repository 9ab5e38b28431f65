"""The controller's reads from the metadata store, many nodes at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pyrklog.base.logs import get_logger
from pyrklog.cluster.requests import LiveBroker, TopicPartition
from pyrklog.cluster.topic_names import wrong_with_name
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import (
    Metastore,
    Node,
    NodeExistsError,
    NoNodeError,
    StoreFailedError,
    Watch,
)
from pyrklog.metastore.znode_values import broker_of
from pyrklog.plane.values import BrokerImage

log = get_logger("controller")
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def decode_nodes(
    decode: Callable[[str, bytes], _Value],
    keys: Sequence[_Key],
    paths: Sequence[str],
    nodes: Sequence[Node | None],
) -> dict[_Key, _Value]:
    """The contents of existing nodes by key; logs unreadable ones and leaves them out."""
    found = {}
    for key, path, node in zip(keys, paths, nodes, strict=True):
        if node is not None:
            try:
                found[key] = decode(path, node.data)
            except znodes.ZnodeError as error:
                log.error("bad_znode", reason=str(error))
    return found


def decoded(decode: Callable[[bytes], _Value], data: bytes | None) -> _Value | None:
    """The content of a node; logs an unreadable one and returns None, as for no data."""
    try:
        return decode(data) if data is not None else None
    except znodes.ZnodeError as error:
        log.error("bad_znode", reason=str(error))
        return None


async def read_brokers(store: Metastore, watch: Watch) -> dict[int, LiveBroker]:
    """Without unreadable registrations; watched."""
    names = await store.children(znodes.BROKER_IDS, watch)
    paths = [f"{znodes.BROKER_IDS}/{name}" for name in names]
    nodes = await store.get_many(paths, watch)
    unclean_paths = [f"{znodes.UNCLEAN}/{name}" for name in names]
    unclean = {
        name
        for name, node in zip(names, await store.get_many(unclean_paths), strict=True)
        if node is not None
    }
    lives = await store.get_many([f"{znodes.LIVES}/{name}" for name in names])
    knowing = {
        name
        for name, node in zip(names, lives, strict=True)
        if node is not None and znodes.knows_partial(node.data)
    }
    live = {}
    for name, path, node in zip(names, paths, nodes, strict=True):
        if node is None or not node.data:
            continue
        try:
            registration = znodes.decode_broker(path, node.data)
            image = BrokerImage(broker_of(name), registration.rack, registration.endpoints)
        except (znodes.ZnodeError, ValueError) as error:
            log.error("bad_znode", reason=str(error))
            continue
        partial = name in knowing
        live[image.id] = LiveBroker(image, node.stat.czxid, name in unclean, partial)
    return live


async def read_topics(
    store: Metastore, names: Sequence[str], watch: Watch, ids: Mapping[bytes, str]
) -> dict[str, znodes.TopicAssignment]:
    """The readable assignments of existing topics; watched.

    A topic with another topic's id (``ids`` are the known ones) counts as unreadable: brokers and
    clients could not tell the two apart.
    """
    paths = [znodes.topic_path(name) for name in names]
    nodes = await store.get_many(paths, watch)
    holders = dict(ids)
    found = {}
    for name, assignment in decode_nodes(znodes.decode_topic, names, paths, nodes).items():
        wrong = wrong_with_name(name)
        holder = holders.setdefault(assignment.topic_id, name) if any(assignment.topic_id) else name
        if wrong is None and holder != name:
            wrong = f"{holder} has the same id"
        if wrong is not None:
            log.error("topic_set_aside", topic=name, reason=wrong)
            continue
        found[name] = assignment
    return found


async def read_states(
    store: Metastore, keys: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[znodes.Leadership, int]]:
    """Leaderships with their nodes' versions, without missing and unreadable ones.

    Eligible leader replicas count where they were written with the present state.
    """
    eligible = await _read_eligible(store, keys)
    paths = [znodes.state_path(*key) for key in keys]
    found = {}
    # Among thousands of partitions most states are the same text.
    decoded: dict[bytes, znodes.Leadership] = {}
    for key, path, node in zip(keys, paths, await store.get_many(paths), strict=True):
        if node is None:
            continue
        try:
            leadership = decoded.get(node.data)
            if leadership is None:
                leadership = decoded[node.data] = znodes.decode_state(path, node.data)
            apart = eligible.get(key)
            if apart is not None and apart.partition_epoch == node.stat.version:
                leadership = leadership._replace(eligible=apart.eligible, unclean=apart.unclean)
            found[key] = (leadership, node.stat.version)
        except znodes.ZnodeError as error:
            log.error("bad_znode", reason=str(error))
    return found


async def _read_eligible(
    store: Metastore, keys: Sequence[TopicPartition]
) -> dict[TopicPartition, znodes.EligibleReplicas]:
    try:
        topics = frozenset(await store.children(znodes.ELIGIBLE))
    except NoNodeError:
        return {}  # a cluster older than this feature
    wanted = [key for key in keys if key[0] in topics]
    paths = [znodes.eligible_path(*key) for key in wanted]
    return decode_nodes(znodes.decode_eligible, wanted, paths, await store.get_many(paths))


async def read_partial(
    store: Metastore, topics: Mapping[str, znodes.TopicAssignment]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Partial replicas of these topics, also such that do not count any more."""
    try:
        names = await store.children(znodes.EXPANSION)
    except NoNodeError:
        return {}  # a cluster older than this feature
    keys = [(name, i) for name in names if name in topics for i in topics[name].replicas]
    paths = [znodes.expansion_path(*key) for key in keys]
    nodes = await store.get_many(paths) if paths else []
    found = decode_nodes(znodes.decode_partial, keys, paths, nodes)
    return {
        key: partial.replicas
        for key, partial in found.items()
        if partial.topic_id == topics[key[0]].topic_id
    }


async def read_overrides(store: Metastore, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """Each topic's overrides; empty where they cannot be read."""
    paths = [znodes.topic_config_path(topic) for topic in topics]
    nodes = await store.get_many(paths)
    found = decode_nodes(znodes.decode_config, topics, paths, nodes)
    return {topic: found.get(topic, {}) for topic in topics}


async def read_epoch(store: Metastore) -> tuple[int, int]:
    """The controller epoch and its node's version; creates a missing node.

    Raises :class:`StoreFailedError` where the node holds no epoch.
    """
    try:
        node = await store.get(znodes.CONTROLLER_EPOCH)
    except NoNodeError:
        try:
            await store.create(znodes.CONTROLLER_EPOCH, b"0")
        except NodeExistsError:
            pass  # another broker was faster
        node = await store.get(znodes.CONTROLLER_EPOCH)
    try:
        return znodes.decode_controller_epoch(node.data), node.stat.version
    except znodes.ZnodeError as error:
        raise StoreFailedError(str(error)) from None
