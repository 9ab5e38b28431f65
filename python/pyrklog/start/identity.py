"""The broker's number and cluster id, from options, log directories and the store."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pyrklog.base.logs import get_logger
from pyrklog.base.problems import Problem
from pyrklog.config.properties import PropertiesError, parse_properties
from pyrklog.errors import ConfigError, StartError
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Create, Metastore, MetastoreError, NodeExistsError

META_PROPERTIES = "meta.properties"
META_VERSIONS = ("0", "1")
"""Of ZooKeeper and of KRaft mode."""
DEFAULT_NODE_ID = 1
NODE_PATH = "/pyrklog/node"
"""Our own node in an embedded store: its broker."""

log = get_logger("broker")


class DirectoryIdentity(NamedTuple):
    """A log directory's ``meta.properties``; None for missing values."""

    directory: Path
    node_id: int | None
    cluster_id: str | None


def read_identities(log_dirs: Sequence[Path]) -> list[DirectoryIdentity]:
    """The log directories that were used before. The plane reports damage."""
    found = []
    for directory in log_dirs:
        try:
            text = (directory / META_PROPERTIES).read_text(encoding="utf-8", errors="replace")
            content = {item.key: item.value for item in parse_properties(text)}
        except (OSError, PropertiesError):
            continue
        version = content.get("version", "0")
        if version not in META_VERSIONS:
            raise ConfigError(
                Problem.FOREIGN_DATA,
                f"{directory / META_PROPERTIES} has version {version}, known are 0 and 1.",
                fix="start the broker that wrote it, or choose another directory",
            )
        node_id = content.get("broker.id", content.get("node.id", ""))
        found.append(
            DirectoryIdentity(
                directory,
                int(node_id) if node_id.isdecimal() else None,
                content.get("cluster.id") or None,
            )
        )
    return found


async def choose_node_id(
    configured: int, identities: Sequence[DirectoryIdentity], store: Metastore
) -> int:
    """The number in the store, else ``broker.id``, else the log directories', else 1.

    An embedded store belongs to one broker: another number would orphan its data.
    """
    (node,) = await store.get_many([NODE_PATH])
    if node is not None:
        remembered = decode_node(node.data)
        if configured not in (-1, remembered):
            raise ConfigError(
                Problem.OTHER_BROKERS_DATA,
                f"The data belongs to broker {remembered}, but broker.id is {configured}.",
                fix=f"set broker.id={remembered}, or choose another directory with --data",
            )
        return remembered
    known = configured if configured >= 0 else _known_node_id(identities)
    chosen = DEFAULT_NODE_ID if known is None else known
    _refuse_foreign(chosen, identities)
    try:
        content = json.dumps({"version": 1, "broker": chosen}).encode()
        await store.multi([Create("/pyrklog"), Create(NODE_PATH, content)])
    except NodeExistsError:
        raise ConfigError(
            Problem.OTHER_BROKERS_DATA, "The metadata store is in use by another broker."
        ) from None
    return chosen


async def choose_member_id(
    configured: int,
    identities: Sequence[DirectoryIdentity],
    store: Metastore,
    *,
    reserved_max: int,
    generates: bool,
) -> int:
    """``broker.id``, else the log directories' number, else the cluster's next one.

    Generated numbers begin after ``reserved_max``, and only with ``generates``.
    """
    chosen = configured if configured >= 0 else _known_node_id(identities)
    if chosen is not None:
        _refuse_foreign(chosen, identities)
        return chosen
    if not generates:
        raise ConfigError(
            Problem.BROKER_NUMBER_MISSING,
            "A broker of a cluster needs a number.",
            fix="set broker.id, or broker.id.generation.enable=true",
        )
    stat = await store.set(znodes.BROKER_SEQUENCE, b"")
    return reserved_max + stat.version


async def enter_cluster(store: Metastore, connect: str) -> None:
    """Refuses to join an Apache Kafka cluster, and marks a new cluster as ours.

    A broker of either kind could become the other's controller, without knowing its extra nodes.
    """
    cluster, mark = await store.get_many([znodes.CLUSTER_ID, znodes.OWN_ROOT])
    if cluster is not None and mark is None:
        raise ConfigError(
            Problem.ALONE_OR_IN_A_CLUSTER,
            f"ZooKeeper ({connect}) keeps the metadata of an Apache Kafka cluster.",
            fix="choose another chroot, or set zookeeper.connect= for a broker that is alone",
        )
    await create_paths(store, znodes.OWN_PATHS)


def _refuse_foreign(node_id: int, identities: Sequence[DirectoryIdentity]) -> None:
    """Called before any write: a wrong number must not stay in the store."""
    for item in identities:
        if item.node_id not in (None, node_id):
            raise ConfigError(
                Problem.OTHER_BROKERS_DATA,
                f"{item.directory} belongs to broker {item.node_id}, but this is broker {node_id}.",
                fix=f"set broker.id={item.node_id}, or choose another directory",
            )


def decode_node(data: bytes) -> int:
    """The broker's number at :data:`NODE_PATH`; raises :class:`StartError`."""
    try:
        return int(json.loads(data)["broker"])
    except (ValueError, KeyError, TypeError):
        raise StartError(
            Problem.METADATA_DAMAGED, f"The metadata store holds no broker number at {NODE_PATH}."
        ) from None


def _known_node_id(identities: Sequence[DirectoryIdentity]) -> int | None:
    known = {item.node_id: item.directory for item in identities if item.node_id is not None}
    if len(known) > 1:
        listed = ", ".join(f"{directory}: {node}" for node, directory in sorted(known.items()))
        raise ConfigError(
            Problem.OTHER_BROKERS_DATA,
            f"The log directories belong to different brokers ({listed}).",
            fix="give each broker its own log.dirs",
        )
    return next(iter(known), None)


async def create_paths(store: Metastore, paths: Sequence[str]) -> None:
    wanted: dict[str, None] = {}
    for path in paths:
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            wanted["/" + "/".join(parts[:depth])] = None
    present = await store.get_many(list(wanted))
    missing = [path for path, node in zip(wanted, present, strict=True) if node is None]
    if not missing:
        return
    first = znodes.FIRST_CONTENT
    creations = [[Create(path, first.get(path, b""))] for path in missing]
    for outcome in await store.multis(creations):
        if isinstance(outcome, MetastoreError) and not isinstance(outcome, NodeExistsError):
            raise outcome


async def choose_cluster_id(store: Metastore, identities: Sequence[DirectoryIdentity]) -> str:
    """/cluster/id. A new store takes the log directories' id, else a random one."""
    (node,) = await store.get_many([znodes.CLUSTER_ID])
    if node is not None:
        return znodes.decode_cluster_id(node.data)
    known = {item.cluster_id: item.directory for item in identities if item.cluster_id is not None}
    if len(known) > 1:
        listed = ", ".join(f"{directory}: {cluster}" for cluster, directory in known.items())
        raise ConfigError(
            Problem.OTHER_CLUSTERS_DATA,
            f"The log directories belong to different clusters ({listed}).",
            fix="start with the log.dirs of one cluster",
        )
    cluster_id = next(iter(known), None) or new_cluster_id()
    if known:
        log.warning(
            "cluster_id_adopted",
            cluster_id=cluster_id,
            reason="the metadata store is new, but the log directories were used before",
        )
    try:
        await store.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id))
    except NodeExistsError:
        (node,) = await store.get_many([znodes.CLUSTER_ID])
        assert node is not None
        return znodes.decode_cluster_id(node.data)
    return cluster_id


def new_cluster_id() -> str:
    """16 random bytes as 22 characters of base64url, without a leading dash."""
    while True:
        text = base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text
