"""What the controller reads from the metadata store, many nodes at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyrklog.base.logs import get_logger
from pyrklog.cluster.requests import LiveBroker, TopicPartition
from pyrklog.cluster.topic_names import wrong_with_name
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import (
    Metastore,
    NodeExistsError,
    NoNodeError,
    StoreFailedError,
    Watch,
)
from pyrklog.metastore.znode_values import broker_of
from pyrklog.plane.values import BrokerImage

log = get_logger("controller")


async def read_brokers(store: Metastore, watch: Watch) -> dict[int, LiveBroker]:
    """The registered brokers, without those whose registration cannot be read; watched."""
    names = await store.children(znodes.BROKER_IDS, watch)
    paths = [f"{znodes.BROKER_IDS}/{name}" for name in names]
    nodes = await store.get_many(paths, watch)
    unclean_paths = [f"{znodes.UNCLEAN}/{name}" for name in names]
    unclean = {
        name
        for name, node in zip(names, await store.get_many(unclean_paths), strict=True)
        if node is not None
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
        live[image.id] = LiveBroker(image, node.stat.czxid, name in unclean)
    return live


async def read_topics(
    store: Metastore, names: Sequence[str], watch: Watch, ids: Mapping[bytes, str]
) -> dict[str, znodes.TopicAssignment]:
    """Assignments of those topics that are there and can be read; watched.

    A topic whose id another one has (``ids`` are those known) counts as one that cannot be read:
    brokers and clients could not tell them apart.
    """
    paths = [znodes.topic_path(name) for name in names]
    nodes = await store.get_many(paths, watch)
    holders = dict(ids)
    found = {}
    for name, path, node in zip(names, paths, nodes, strict=True):
        if node is None:
            continue
        try:
            assignment = znodes.decode_topic(path, node.data)
        except znodes.ZnodeError as error:
            log.error("bad_znode", reason=str(error))
            continue
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
    """Leaderships with the versions of their nodes; what is missing or unreadable is left out.

    With the eligible leader replicas, where they were written with the very state that is there.
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
    """Those of the partitions that have any."""
    try:
        topics = frozenset(await store.children(znodes.ELIGIBLE))
    except NoNodeError:
        return {}  # of a cluster that is older than they are
    wanted = [key for key in keys if key[0] in topics]
    paths = [znodes.eligible_path(*key) for key in wanted]
    found = {}
    for key, path, node in zip(wanted, paths, await store.get_many(paths), strict=True):
        if node is not None:
            try:
                found[key] = znodes.decode_eligible(path, node.data)
            except znodes.ZnodeError as error:
                log.error("bad_znode", reason=str(error))
    return found


async def read_overrides(store: Metastore, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """The options that were set of each topic; none where they cannot be read."""
    paths = [znodes.topic_config_path(topic) for topic in topics]
    overrides: dict[str, dict[str, str]] = {}
    for topic, path, node in zip(topics, paths, await store.get_many(paths), strict=True):
        overrides[topic] = {}
        if node is not None:
            try:
                overrides[topic] = znodes.decode_config(path, node.data)
            except znodes.ZnodeError as error:
                log.error("bad_znode", reason=str(error))
    return overrides


async def read_epoch(store: Metastore) -> tuple[int, int]:
    """The controller epoch and the version of its node, which is made where there is none.

    Raises :class:`StoreFailedError` where the node holds none.
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
