"""Who this broker is: its number and its cluster, from options, log directories and the store."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pyrklog.config.properties import PropertiesError, parse_properties
from pyrklog.errors import ConfigError
from pyrklog.logs import get_logger
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Create, Metastore, MetastoreError, NodeExistsError

META_PROPERTIES = "meta.properties"
DEFAULT_NODE_ID = 1

log = get_logger("broker")


class DirectoryIdentity(NamedTuple):
    """What ``meta.properties`` of a log directory says; None where it says nothing."""

    directory: Path
    node_id: int | None
    cluster_id: str | None


def read_identities(log_dirs: Sequence[Path]) -> list[DirectoryIdentity]:
    """The log directories that were used before. What is wrong in them the plane will say."""
    found = []
    for directory in log_dirs:
        try:
            text = (directory / META_PROPERTIES).read_text(encoding="utf-8", errors="replace")
            content = {item.key: item.value for item in parse_properties(text)}
        except (OSError, PropertiesError):
            continue
        node_id = content.get("broker.id", content.get("node.id", ""))
        found.append(
            DirectoryIdentity(
                directory,
                int(node_id) if node_id.isdecimal() else None,
                content.get("cluster.id") or None,
            )
        )
    return found


def choose_node_id(configured: int, identities: Sequence[DirectoryIdentity]) -> int:
    """``broker.id``, else the number found in the log directories, else 1."""
    if configured >= 0:
        return configured
    known = {item.node_id: item.directory for item in identities if item.node_id is not None}
    if len(known) > 1:
        listed = ", ".join(f"{directory}: {node}" for node, directory in sorted(known.items()))
        raise ConfigError(
            f"The log directories belong to different brokers ({listed}).",
            fix="give each broker its own log.dirs",
        )
    return next(iter(known), DEFAULT_NODE_ID)


async def create_paths(store: Metastore, paths: Sequence[str]) -> None:
    """Creates the persistent nodes that are missing, and their parents, in one go."""
    wanted: dict[str, None] = {}
    for path in paths:
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            wanted["/" + "/".join(parts[:depth])] = None
    present = await store.get_many(list(wanted))
    missing = [path for path, node in zip(wanted, present, strict=True) if node is None]
    if not missing:
        return
    for outcome in await store.multis([[Create(path)] for path in missing]):
        if isinstance(outcome, MetastoreError) and not isinstance(outcome, NodeExistsError):
            raise outcome


async def choose_cluster_id(store: Metastore, identities: Sequence[DirectoryIdentity]) -> str:
    """/cluster/id. A new store takes the id that the log directories carry, else a random one."""
    (node,) = await store.get_many([znodes.CLUSTER_ID])
    if node is not None:
        return znodes.decode_cluster_id(node.data)
    known = {item.cluster_id: item.directory for item in identities if item.cluster_id is not None}
    if len(known) > 1:
        listed = ", ".join(f"{directory}: {cluster}" for cluster, directory in known.items())
        raise ConfigError(
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


def memory_bytes(files: Mapping[str, str] | None = None) -> int:
    """The machine's memory, or the control group's limit where that is lower."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = files[path] if files is not None else Path(path).read_text()
            total = min(total, int(text))
        except (OSError, KeyError, ValueError):
            continue  # no such control group, or "max"
    return total
