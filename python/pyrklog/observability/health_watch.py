"""What a broker's health needs of the past: free space, ZooKeeper's absence, what the cache did.

Bounded: readings of two hours for each log directory, and counters of five minutes. Each directory
has a task and a thread of its own, so that one whose volume hangs delays nothing.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import trio

from pyrklog.observability.health_signs import (
    CACHE_COUNTERS,
    BrokerSnapshot,
    Counted,
    Disk,
    DiskReading,
    OpenFiles,
)
from pyrklog.observability.sources import Sources
from pyrklog.plane.cache_place import cache_place

STORE_SECONDS = 1.0
"""Brokers are looked for as often."""
AWAY_MAX = 100
"""Brokers whose absence is remembered; the latest ones."""
DISK_SECONDS = 60.0
DISK_READINGS_MAX = 120
FILES_SECONDS = 60.0
CACHE_VOLUME_SECONDS = 60.0
COUNT_SECONDS = 30.0
COUNTS_MAX = 11
"""With :data:`COUNT_SECONDS` five minutes."""

Volume = tuple[int, int, int]
"""Total and free bytes, and the number of the device."""
ReadVolume = Callable[[str], Awaitable[Volume]]
"""Of a directory. May raise :class:`OSError`, and take for ever."""


def read_volume(path: str) -> Volume:
    usage = shutil.disk_usage(path)
    # As df: what is kept for root is neither used nor usable.
    return usage.used + usage.free, usage.free, os.stat(path).st_dev


def read_open_files() -> OpenFiles | None:
    """None where there is no limit, or where the system does not tell. The answer takes a handle
    itself: without one all are in use."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        return OpenFiles(len(os.listdir("/proc/self/fd")), limit)
    except OSError as error:
        return OpenFiles(limit, limit) if error.errno == errno.EMFILE else None


def read_cache_volume(directory: Path) -> int | None:
    """Its size; None if it cannot be told."""
    try:
        return shutil.disk_usage(directory).total
    except OSError:
        return None


def in_thread(read: Callable[[str], Volume] = read_volume) -> ReadVolume:
    """Reads in a thread of its own, one directory at a time."""
    limiter = trio.CapacityLimiter(1)

    async def in_turn(path: str) -> Volume:
        return await trio.to_thread.run_sync(read, path, limiter=limiter, abandon_on_cancel=True)

    return in_turn


class _WatchedDisk:
    def __init__(self, path: str) -> None:
        self.path = path
        self.readings: deque[DiskReading] = deque(maxlen=DISK_READINGS_MAX)
        self.asked_at: float | None = None
        """None: nothing is being asked."""

    def seen(self, now: float) -> Disk:
        silent = 0.0 if self.asked_at is None else now - self.asked_at
        return Disk(self.path, tuple(self.readings), silent)


class HealthWatch:
    def __init__(self, sources: Sources, *, reader: Callable[[], ReadVolume] = in_thread) -> None:
        """``reader`` is called once for each log directory."""
        self._sources = sources
        self._reader = reader
        self._disks = [_WatchedDisk(path) for path in sources.log_dirs]
        self._counts: deque[Counted] = deque(maxlen=COUNTS_MAX)
        self._open_files: OpenFiles | None = None
        self._store_lost_at: float | None = None
        self._alive: set[int] = set()
        self._away_since: dict[int, float] = {}
        cache_max_bytes = sources.metadata.config.integer("pyrklog.cache.max.bytes")
        self._wants_cache = cache_max_bytes != 0
        cache_dir = sources.metadata.config.string("pyrklog.cache.dir")
        self._cache_dir = cache_place(cache_dir, cache_max_bytes).directory
        self._cache_volume_bytes: int | None = None

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_store)
            nursery.start_soon(self._count)
            nursery.start_soon(self._watch_files)
            if self._cache_dir is not None:
                nursery.start_soon(self._watch_cache_volume, self._cache_dir)
            for disk in self._disks:
                nursery.start_soon(self._watch_disk, disk)

    def snapshot(self, statistics: Mapping[str, int], log_dirs: Sequence[str]) -> BrokerSnapshot:
        """Of now. ``log_dirs`` are named as the statistics number them."""
        counts = self._counts
        now = trio.current_time()
        return BrokerSnapshot(
            self._sources.metadata.node_id,
            statistics,
            log_dirs,
            [disk.seen(now) for disk in self._disks],
            self.store_away_seconds(),
            self._sources.store_clock(),
            self._wants_cache,
            (counts[0], counts[-1]) if len(counts) > 1 else None,
            self._open_files,
            self._cache_volume_bytes,
        )

    def store_away_seconds(self) -> float | None:
        """None: it is reached."""
        if self._sources.store.is_reachable:
            self._store_lost_at = None
            return None
        now = trio.current_time()
        if self._store_lost_at is None:
            self._store_lost_at = now
        return now - self._store_lost_at

    def brokers_away_seconds(self) -> dict[int, float]:
        """Of those that this broker has seen go, and not return."""
        self._see_brokers()
        now = trio.current_time()
        return {number: now - since for number, since in self._away_since.items()}

    def _see_brokers(self) -> None:
        alive = {one.id for one in self._sources.metadata.image.brokers}
        if alive == self._alive:
            return
        now = trio.current_time()
        left = {number: at for number, at in self._away_since.items() if number not in alive}
        left |= dict.fromkeys(sorted(self._alive - alive), now)
        self._away_since = dict(list(left.items())[-AWAY_MAX:])
        self._alive = alive

    async def _watch_store(self) -> None:
        while True:
            self.store_away_seconds()
            self._see_brokers()
            await trio.sleep(STORE_SECONDS)

    async def _count(self) -> None:
        while True:
            statistics = self._sources.plane.statistics()
            values = {name: statistics.get(name, 0) for name in CACHE_COUNTERS}
            self._counts.append(Counted(trio.current_time(), values))
            await trio.sleep(COUNT_SECONDS)

    async def _watch_files(self) -> None:
        while True:
            self._open_files = await trio.to_thread.run_sync(read_open_files)
            await trio.sleep(FILES_SECONDS)

    async def _watch_cache_volume(self, directory: Path) -> None:
        """It may be made larger meanwhile."""
        while True:
            self._cache_volume_bytes = await trio.to_thread.run_sync(
                read_cache_volume, directory, abandon_on_cancel=True
            )
            await trio.sleep(CACHE_VOLUME_SECONDS)

    async def _watch_disk(self, disk: _WatchedDisk) -> None:
        read = self._reader()
        while True:
            disk.asked_at = trio.current_time()
            try:
                total, free, device = await read(disk.path)
            except OSError:
                disk.readings.clear()  # the plane says more about it
            else:
                at = trio.current_time()
                disk.readings.append(DiskReading(at, total, free, device))
            disk.asked_at = None
            await trio.sleep(DISK_SECONDS)
