"""What the controller reads from the metadata store, many nodes at once."""

from __future__ import annotations

from collections.abc import Sequence

from pyrklog.controller.requests import TopicPartition
from pyrklog.logs import get_logger
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Metastore, NodeExistsError, NoNodeError

log = get_logger("controller")


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
            replicas, partition_epoch = eligible.get(key, ((), -1))
            if partition_epoch == node.stat.version:
                leadership = leadership._replace(eligible=replicas)
            found[key] = (leadership, node.stat.version)
        except znodes.ZnodeError as error:
            log.error("bad_znode", reason=str(error))
    return found


async def _read_eligible(
    store: Metastore, keys: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[tuple[int, ...], int]]:
    """Eligible leader replicas with their partition epochs, of the partitions that have any."""
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
    """The controller epoch and the version of its node, which is made where there is none."""
    try:
        node = await store.get(znodes.CONTROLLER_EPOCH)
    except NoNodeError:
        try:
            await store.create(znodes.CONTROLLER_EPOCH, b"0")
        except NodeExistsError:
            pass  # another broker was faster
        node = await store.get(znodes.CONTROLLER_EPOCH)
    return int(node.data), node.stat.version
