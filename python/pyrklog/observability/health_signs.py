"""Findings about one broker besides the metadata: disks, clocks, queues, cache, controllers. Pure.

The table of health.md says when each is told, and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyrklog.base.clock_reading import OWN, ClockReading
from pyrklog.observability.health_rules import (
    UNREACHED,
    ZOOKEEPER_FIX,
    Reason,
    Severity,
    span,
)

DISK_USED_WARN_PERCENT = 90
FULL_WARN_SECONDS = 24 * 3600
FULL_SOON_SECONDS = 3600
FORECAST_READINGS_MIN = 10
FORECAST_FIT_MIN = 0.5
"""Share of the free space's changes that a straight line explains (r squared)."""
DISK_SILENT_SECONDS = 30
CLOCK_SKEW_WARN_MS = 500
FILES_WARN_PERCENT = 80
FILES_FEW_PERCENT = 95
STUCK_MS = 5_000
CACHE_SMALL_BYTES = 64 * 2**20
CACHE_HOLDS_SECONDS_MIN = 60
CACHE_MISSES_PERCENT = 25
CACHE_MISSES_BYTES_MIN = 64 * 2**20
"""Less than so many bytes from disks are no sign of anything."""
AWAY_TOLD_SECONDS = 1
DISK_FIX = (
    "free space there, lower retention.ms or retention.bytes of its largest topics, or move "
    "partitions to other brokers"
)
CLOCK_FIX = "run a time service (chrony, ntpd, systemd-timesyncd) on each broker's host"
HANGING_FIX = "look at the disk and the kernel's log; a directory that never answers is left out"
SLOW_FIX = "the disk does not keep up: move partitions to other directories or brokers"
FILES_FIX = (
    "allow it more: ulimit -n 100000 before the start, or LimitNOFILE=100000 in the systemd unit; "
    "it needs three for each segment and one for each connection"
)
CACHE_FIX = "raise pyrklog.cache.max.bytes, or move partitions to other brokers"
NO_CACHE_FIX = "give the broker shared memory (a larger /dev/shm, or pyrklog.cache.dir)"
DOUBLE_FIX = (
    "see whether all brokers name the same zookeeper.connect; else wait for the session of the one "
    "that does not reach ZooKeeper to end"
)

_FROM_DISK = ("fetched_bytes.copy", "fetched_bytes.sendfile", "fetched_bytes.window")
_FROM_MEMORY = ("fetched_bytes.cached", "fetched_bytes.inline")
CACHE_LIMIT = "cache_limit_bytes"
CACHE_APPENDED = "cache_appended_bytes"
CACHE_COUNTERS = (CACHE_APPENDED, *_FROM_DISK, *_FROM_MEMORY)


class DiskReading(NamedTuple):
    at: float
    """Seconds of any clock that does not jump."""
    total_bytes: int
    free_bytes: int
    device: int


class Disk(NamedTuple):
    """A log directory's volume: readings in their order, and how long the present one takes."""

    path: str
    readings: Sequence[DiskReading]
    silent_seconds: float = 0.0


class OpenFiles(NamedTuple):
    """File handles that the broker has, and may have."""

    used: int
    limit: int


class Counted(NamedTuple):
    """Counters at some time."""

    at: float
    values: Mapping[str, int]


@dataclass(frozen=True)
class BrokerSnapshot:
    """What a broker has seen of itself. ``cache_counted``: the older reading first, None before
    there are two."""

    broker: int
    statistics: Mapping[str, int]
    log_dirs: Sequence[str]
    """By the numbers that statistics give them."""
    disks: Sequence[Disk] = ()
    store_away_seconds: float | None = None
    """None: it is reached."""
    store_clock: ClockReading | None = None
    wants_cache: bool = True
    cache_counted: tuple[Counted, Counted] | None = None
    open_files: OpenFiles | None = None
    """None: not known."""
    cache_volume_bytes: int | None = None
    """Size of the file system in memory that has the block cache. None: not known, or no cache."""


def signs(broker: BrokerSnapshot) -> list[Reason]:
    return [
        *_of_disks(broker),
        *_of_files(broker),
        *_of_store_clock(broker),
        *_of_queues(broker),
        *_of_cache(broker),
    ]


def store_unreached(
    broker: int, away_seconds: float | None = None, severity: Severity = "degraded"
) -> Reason:
    what = f"broker {broker} does not reach ZooKeeper"
    if away_seconds is not None and away_seconds >= AWAY_TOLD_SECONDS:
        what += f", for {span(away_seconds)} now"
    return Reason(UNREACHED, severity, what, broker, fix=ZOOKEEPER_FIX)


# --- disks ---------------------------------------------------------------------------------------


def seconds_until_full(readings: Sequence[DiskReading]) -> float | None:
    """By the straight line that fits the free space best; None without a trend towards zero."""
    if len(readings) < FORECAST_READINGS_MIN:
        return None
    count = len(readings)
    middle = sum(one.at for one in readings) / count
    mean = sum(one.free_bytes for one in readings) / count
    spread = sum((one.at - middle) ** 2 for one in readings)
    changes = sum((one.free_bytes - mean) ** 2 for one in readings)
    both = sum((one.at - middle) * (one.free_bytes - mean) for one in readings)
    if not spread or not changes or both >= 0 or both * both < FORECAST_FIT_MIN * spread * changes:
        return None
    return readings[-1].free_bytes / -(both / spread)


def _of_disks(broker: BrokerSnapshot) -> list[Reason]:
    """A volume is told once, by the first of its directories."""
    found: list[Reason] = []
    devices: set[int] = set()
    for disk in broker.disks:
        if disk.silent_seconds >= DISK_SILENT_SECONDS:
            silent = span(disk.silent_seconds)
            what = f"broker {broker.broker}: the volume of {disk.path} has not answered for"
            found.append(_reason("disk_hangs", "degraded", f"{what} {silent}", broker, HANGING_FIX))
            continue
        if not disk.readings or disk.readings[-1].device in devices:
            continue
        devices.add(disk.readings[-1].device)
        filling = _filling(broker, disk)
        if filling is not None:
            found.append(filling)
    return found


def _filling(broker: BrokerSnapshot, disk: Disk) -> Reason | None:
    last = disk.readings[-1]
    used = (last.total_bytes - last.free_bytes) * 100 // max(1, last.total_bytes)
    until_full = seconds_until_full(disk.readings)
    about = f"broker {broker.broker}: the volume of {disk.path} is"
    free = f"({size(last.free_bytes)} free)"
    if until_full is not None and until_full < FULL_WARN_SECONDS:
        severity: Severity = "degraded" if until_full < FULL_SOON_SECONDS else "warning"
        what = f"{about} full in {span(until_full)} if it goes on as now {free}"
        return _reason("disk_filling", severity, what, broker, DISK_FIX)
    if used >= DISK_USED_WARN_PERCENT:
        return _reason("disk_filling", "warning", f"{about} {used} % full {free}", broker, DISK_FIX)
    return None


# --- file handles ---------------------------------------------------------------------------------


def _of_files(broker: BrokerSnapshot) -> list[Reason]:
    found = broker.open_files
    if found is None or found.used * 100 < FILES_WARN_PERCENT * found.limit:
        return []
    is_few = found.used * 100 >= FILES_FEW_PERCENT * found.limit
    severity: Severity = "degraded" if is_few else "warning"
    what = f"broker {broker.broker} has {found.used:,} of {found.limit:,} file handles in use"
    return [_reason("file_handles", severity, what, broker, FILES_FIX)]


# --- clocks --------------------------------------------------------------------------------------


def _of_store_clock(broker: BrokerSnapshot) -> list[Reason]:
    """Measured when the broker registered."""
    if broker.store_clock is None:
        return []
    return clock_skew(broker.broker, OWN.ahead_of(broker.store_clock), "ZooKeeper's")


def clock_skew(broker: int, ahead_ms: int, whose: str) -> list[Reason]:
    if abs(ahead_ms) <= CLOCK_SKEW_WARN_MS:
        return []
    side = "ahead of" if ahead_ms > 0 else "behind"
    what = (
        f"broker {broker}'s clock is {span(abs(ahead_ms) / 1000)} {side} {whose}: retention by "
        "time and times of appends are off by so much"
    )
    return [Reason("clock_skew", "warning", what, broker, fix=CLOCK_FIX)]


def peer_clocks(clocks: Mapping[int, ClockReading]) -> list[Reason]:
    """Brokers' clocks, read from one place, against the one in their middle."""
    if len(clocks) < 2:
        return []
    order = sorted(clocks, key=lambda one: clocks[one].least_ahead_ms)
    middle = order[(len(order) - 1) // 2]
    return [
        reason
        for broker in sorted(clocks)
        for reason in clock_skew(
            broker, clocks[broker].ahead_of(clocks[middle]), f"broker {middle}'s"
        )
    ]


# --- controllers ---------------------------------------------------------------------------------


def doubled_controllers(claims: Sequence[int]) -> list[Reason]:
    """``claims``: brokers that take themselves for the controller."""
    if len(claims) < 2:
        return []
    names, how_many = " and ".join(map(str, sorted(claims))), "both" if len(claims) == 2 else "all"
    what = f"brokers {names} {how_many} take themselves for the controller"
    return [Reason("controller_doubled", "error", what, fix=DOUBLE_FIX)]


# --- queues --------------------------------------------------------------------------------------


def _of_queues(broker: BrokerSnapshot) -> list[Reason]:
    found: list[Reason] = []
    for name, value in sorted(broker.statistics.items()):
        if value < STUCK_MS:
            continue
        what, _, place = name.partition(".")
        number, _, queue = place.partition(".")
        if what == "reader_queue_stalled_ms" and queue:
            found.append(_stuck_reads(broker, number, queue, value))
        elif what == "produce_muted_oldest_wait_ms" and number:
            found.append(_stuck_writes(broker, number, value))
    return found


def _stuck_reads(broker: BrokerSnapshot, number: str, queue: str, stalled_ms: int) -> Reason:
    waiting = broker.statistics.get(f"reader_queue_waiting.{number}.{queue}", 0)
    whose = "of a part of its topics " if queue.startswith("fetch-") else ""
    what = (
        f"broker {broker.broker}: reads {whose}in {_log_dir(broker, number)} stand still for "
        f"{span(stalled_ms / 1000)} (queue {queue}, {waiting} wait)"
    )
    return _reason("reads_stuck", "degraded", what, broker, HANGING_FIX)


def _stuck_writes(broker: BrokerSnapshot, number: str, waited_ms: int) -> Reason:
    waiting = broker.statistics.get(f"produce_muted_waiting.{number}", 0)
    producers = "1 producer waits" if waiting == 1 else f"{waiting} producers wait"
    what = (
        f"broker {broker.broker}: {producers} for room in {_log_dir(broker, number)}, the first "
        f"for {span(waited_ms / 1000)}"
    )
    return _reason("writes_stuck", "degraded", what, broker, SLOW_FIX)


def _log_dir(broker: BrokerSnapshot, number: str) -> str:
    index = int(number) if number.isdecimal() else len(broker.log_dirs)
    return broker.log_dirs[index] if index < len(broker.log_dirs) else f"log directory {number}"


# --- cache ---------------------------------------------------------------------------------------


def _of_cache(broker: BrokerSnapshot) -> list[Reason]:
    limit = broker.statistics.get(CACHE_LIMIT)
    if limit is None or not broker.wants_cache:
        return []
    if broker.cache_volume_bytes is not None:
        limit = min(limit, broker.cache_volume_bytes)
    if limit < CACHE_SMALL_BYTES:
        what = f"broker {broker.broker} has no block cache"
        if limit:
            what = f"broker {broker.broker}'s block cache has {size(limit)} at most"
        what += ": appends wait for files"
        return [_reason("cache_small", "info", what, broker, NO_CACHE_FIX)]
    return _of_turnover(broker, limit)


def _of_turnover(broker: BrokerSnapshot, limit: int) -> list[Reason]:
    """Whether records leave the cache before their consumers come."""
    if broker.cache_counted is None:
        return []
    before, now = broker.cache_counted
    seconds = now.at - before.at

    def grown(*names: str) -> int:
        return sum(now.values.get(name, 0) - before.values.get(name, 0) for name in names)

    appended, missed = grown(CACHE_APPENDED), grown(*_FROM_DISK)
    sent = missed + grown(*_FROM_MEMORY)
    if (
        appended <= 0
        or missed < CACHE_MISSES_BYTES_MIN
        or missed * 100 < CACHE_MISSES_PERCENT * sent
    ):
        return []
    holds_seconds = limit * seconds / appended
    if holds_seconds >= CACHE_HOLDS_SECONDS_MIN:
        return []
    what = (
        f"broker {broker.broker}'s block cache ({size(limit)}) holds {span(holds_seconds)} of "
        f"what is appended, and {missed * 100 // sent} % of what was sent in the last "
        f"{span(seconds)} came from disks"
    )
    return [_reason("cache_thrashing", "warning", what, broker, CACHE_FIX)]


# --- words ---------------------------------------------------------------------------------------


def _reason(kind: str, severity: Severity, what: str, broker: BrokerSnapshot, fix: str) -> Reason:
    return Reason(kind, severity, what, broker.broker, fix=fix)


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
