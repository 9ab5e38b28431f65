"""Which log directory of its broker a replica goes to."""

from __future__ import annotations

from collections.abc import Mapping

from pyrklog.balance.model import (
    FILL_MAX,
    Cluster,
    LogDir,
    PartitionKey,
    Placement,
    arriving,
)

Directories = Mapping[tuple[PartitionKey, int], str]
"""Paths, by partition and broker."""


def choose(cluster: Cluster, changed: Placement) -> dict[tuple[PartitionKey, int], str]:
    """For replicas that arrive on brokers with several directories: the one that has the fewest
    bytes and room, the largest replica first. Without any the broker chooses."""
    added: dict[tuple[int, str], int] = {}
    arrives = [
        (-cluster.partitions[key].size_bytes, key, number)
        for key, replicas in changed.items()
        for number in arriving(cluster.partitions[key].replicas, replicas)
        if number in cluster.brokers and len(cluster.brokers[number].log_dirs) > 1
    ]
    found = {}
    for negative, key, number in sorted(arrives):
        size = -negative
        able = [
            one
            for one in cluster.brokers[number].log_dirs
            if _has_room(one, size + added.get((number, one.path), 0))
        ]
        if not able:
            continue
        best = min(
            able, key=lambda one: (one.used_bytes + added.get((number, one.path), 0), one.path)
        )
        added[number, best.path] = added.get((number, best.path), 0) + size
        found[key, number] = best.path
    return found


def _has_room(one: LogDir, count: int) -> bool:
    if one.free_bytes is None or one.total_bytes is None:
        return True
    return one.free_bytes - count >= (1 - FILL_MAX) * one.total_bytes
