"""Which log directory of its broker a replica goes to."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pyrklog.balance.model import (
    Broker,
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
    bytes on a volume with room, the largest replica first. Where none has room, the one with most
    of it: the broker would choose by the number of partitions."""
    arrives = [
        (-cluster.partitions[key].size_bytes, key, number)
        for key, replicas in changed.items()
        for number in arriving(cluster.partitions[key].replicas, replicas)
        if number in cluster.brokers and len(cluster.brokers[number].log_dirs) > 1
    ]
    places: dict[int, _Places] = {}
    found = {}
    for negative, key, number in sorted(arrives):
        own = places.setdefault(number, _Places(cluster.brokers[number], cluster.fill_max))
        found[key, number] = own.take(-negative)
    return found


class _Places:
    """The directories of a broker while replicas arrive."""

    def __init__(self, broker: Broker, fill_max: float) -> None:
        self._dirs = broker.log_dirs
        self._used = {one.path: one.used_bytes for one in broker.log_dirs}
        self._room: list[float] = []
        """Of each volume."""
        self._volume: dict[str, int] = {}
        for at, volume in enumerate(broker.volumes()):
            self._room.append(volume[0].room(fill_max))
            self._volume |= {each.path: at for each in volume}

    def take(self, size: int) -> str:
        able = [one for one in self._dirs if self._left(one) >= size]
        if able:
            best = min(able, key=lambda one: (self._used[one.path], one.path))
        else:
            best = max(self._dirs, key=lambda one: (self._left(one), one.path))
        self._used[best.path] += size
        if best.path in self._volume:
            self._room[self._volume[best.path]] -= size
        return best.path

    def _left(self, one: LogDir) -> float:
        """Unknown is unbounded."""
        return self._room[self._volume[one.path]] if one.path in self._volume else math.inf
