"""How far a plan is, how fast it copies, and how long it still takes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyrklog.balance.filling import fill_seconds, later, sooner
from pyrklog.balance.model import PartitionKey
from pyrklog.balance.prediction import STEP_S, Copy, RateFrom, grown, seconds
from pyrklog.balance.record import Corrected, Record
from pyrklog.balance.throttle import AUTO

MEASURED_AFTER_S = 3.0
"""Copying for so long tells a rate."""
SURE_AFTER_S = 10.0
"""So much later it tells whether a given rate is reached."""
REACHED = 0.8
"""A given rate counts as reached from this share on: averages of throttles are rough."""
FILLED_LEAST = 0.25
"""Of a broker's back-fill, before its speed counts: segments count once they are whole."""


class There(NamedTuple):
    """A partition that moves. ``size``: bytes of its largest replica now; ``by``: of the replicas
    that are added. ``started``: those that have started at the leader's end."""

    size: int
    by: Mapping[int, int]
    started: frozenset[int] = frozenset()

    def left(self, broker: int) -> int:
        return max(0, self.size - self.by.get(broker, 0))


@dataclass(frozen=True)
class Seen:
    """A look at a plan. ``done``: what is as planned. ``fill_rates``: of the brokers that get
    replicas, where they tell."""

    at_ms: int
    done: Collection[PartitionKey] = ()
    moving: Mapping[PartitionKey, There] = field(default_factory=dict)
    fill_rates: Mapping[int, int] | None = None


@dataclass(frozen=True)
class Progress:
    """How far a plan is, in bytes that are copied or back-filled. ``left_s`` None: unknown, or for
    ever. ``rate_bytes``: what the busiest broker copies a second, by which time is told."""

    partitions: int
    partitions_done: int
    total_bytes: int
    done_bytes: int
    left_s: float | None
    rate_bytes: int
    rate_from: RateFrom
    fill_total_bytes: int = 0
    fill_done_bytes: int = 0
    has_tail: bool = True
    """Whether all new replicas have started that start at their leaders' ends."""

    @property
    def percent(self) -> float:
        if self.total_bytes:
            return 100 * self.done_bytes / self.total_bytes
        return 100 * self.partitions_done / self.partitions if self.partitions else 100.0

    @property
    def left_bytes(self) -> int:
        return self.total_bytes - self.done_bytes

    @property
    def fill_left_bytes(self) -> int:
        return self.fill_total_bytes - self.fill_done_bytes


def progress(record: Record, seen: Seen, earlier: Seen | None = None) -> Progress:
    """``earlier``: a look since which the speed counts; None: since the plan began."""
    copied = filled = 0
    for key, one in record.entries.items():
        there = seen.moving.get(key)
        if key in seen.done:
            copied += one.copied_bytes
            filled += one.filled_bytes
        elif there is not None and key in record.at_end:
            filled += max(0, one.filled_bytes - sum(map(there.left, one.targets)))
        elif there is not None:
            copied += min(sum(there.by.values()), one.copied_bytes)
    rate, rate_from = _rate(record, seen, earlier)
    left_s: float | None = 0.0
    if len(seen.done) < len(record.entries):
        left_s = _left_s(record, seen, rate) if record.is_measured else None
    fills = record.fill_bytes
    has_tail = all(key in seen.done or _has_started(record, seen, key) for key in record.at_end)
    return Progress(
        len(record.entries),
        len(seen.done),
        record.total_bytes + fills,
        copied + filled,
        left_s,
        rate,
        rate_from,
        fills,
        filled,
        has_tail,
    )


def _has_started(record: Record, seen: Seen, key: PartitionKey) -> bool:
    there = seen.moving.get(key)
    return there is not None and there.started.issuperset(record.entries[key].targets)


def corrected(record: Record, seen: Seen, found: Progress) -> Corrected | None:
    """The prediction of the whole by what was measured, once that tells."""
    passed_s = _passed_s(record, seen)
    if found.rate_from is not RateFrom.MEASURED or found.left_s is None or not seen.moving:
        return None
    if passed_s < SURE_AFTER_S:
        return None
    return Corrected(passed_s, found.rate_bytes, passed_s + found.left_s)


def measured_rate(record: Record, seen: Seen, earlier: Seen | None = None) -> int | None:
    """What the busiest broker takes or gives a second, for copies. None: too early to tell. Each
    batch has a busiest one of its own."""
    batches = record.batches()
    if earlier is not None:
        lasted_s = (seen.at_ms - earlier.at_ms) / 1000
    else:
        begun = sum(_has_begun(keys, seen) for keys in batches)
        lasted_s = _passed_s(record, seen) - STEP_S * begun
    if lasted_s < MEASURED_AFTER_S:
        return None
    total = 0
    for keys in batches:
        now = _carried(record, keys, seen)
        before = {} if earlier is None else _carried(record, keys, earlier)
        total += max((count - before.get(end, 0) for end, count in now.items()), default=0)
    return int(total / lasted_s) or None


def _rate(record: Record, seen: Seen, earlier: Seen | None) -> tuple[int, RateFrom]:
    given = record.rate_bytes, record.rate_from
    found = measured_rate(record, seen, earlier)
    if found is None and record.corrected is not None:
        # A batch has just begun: it is as fast as those before.
        return record.corrected.rate_bytes, RateFrom.MEASURED
    if found is None:
        return given
    if record.rate_from is RateFrom.GIVEN:
        is_sure = _passed_s(record, seen) >= SURE_AFTER_S
        if not is_sure or found >= REACHED * record.rate_bytes:
            return given
    return found, RateFrom.MEASURED


def _passed_s(record: Record, seen: Seen) -> float:
    return max(0.0, (seen.at_ms - record.begun_ms) / 1000)


def _has_begun(keys: Sequence[PartitionKey], seen: Seen) -> bool:
    return any(key in seen.moving or key in seen.done for key in keys)


def _carried(
    record: Record, keys: Sequence[PartitionKey], seen: Seen
) -> dict[tuple[str, int], int]:
    """Bytes of copies of a batch that each broker has given and taken."""
    found: dict[tuple[str, int], int] = {}
    for key in keys:
        there = seen.moving.get(key)
        for copy in record.copies(key):
            count = 0
            if key in seen.done:
                count = copy.size_bytes
            elif there is not None:
                count = there.by.get(copy.target, 0)
            for end in (("out", copy.source), ("in", copy.target)):
                found[end] = found.get(end, 0) + count
    return found


def _left_s(record: Record, seen: Seen, rate_bytes: int) -> float | None:
    """Of all batches, one after the other."""
    rates = _fill_rates(record, seen)
    passed_s = _passed_s(record, seen)
    retention_s = None
    if record.fill is not None and record.fill.retention_s is not None:
        retention_s = max(0.0, record.fill.retention_s - passed_s)
    total_s = 0.0
    for keys in record.batches():
        left = [key for key in keys if key not in seen.done]
        if not left:
            continue
        copies: list[Copy] = []
        lacks: dict[int, float] = {}
        for key in left:
            there = seen.moving.get(key)
            if there is None:
                copies += grown(record.copies(key), passed_s + total_s)
            else:
                copies += [
                    copy._replace(size_bytes=there.left(copy.target)) for copy in record.copies(key)
                ]
            for broker, size in _fill_left(record, seen, key).items():
                lacks[broker] = lacks.get(broker, 0) + size
        lasts_s = seconds(copies, rate_bytes)
        if lacks:
            lasts_s = later(lasts_s, sooner(fill_seconds(lacks, rates), retention_s))
        if lasts_s is None:
            return None
        total_s += lasts_s + (0.0 if _has_begun(keys, seen) else STEP_S)
    return total_s


def _fill_left(record: Record, seen: Seen, key: PartitionKey) -> dict[int, int]:
    """What new replicas of a partition lack that start at the end."""
    one, there = record.entries[key], seen.moving.get(key)
    if key not in record.at_end or key in seen.done:
        return {}
    each = one.filled_bytes // max(1, len(one.targets))
    return {broker: each if there is None else there.left(broker) for broker in one.targets}


def _fill_rates(record: Record, seen: Seen) -> dict[int, float]:
    """Bytes a second of each broker's back-fills: as it was told to, or as it does where that is
    less, or where nobody told it a lasting rate."""
    if record.fill is None:
        return {}
    rates: dict[int, float] = {**record.fill.rates, **(seen.fill_rates or {})}
    total: dict[int, int] = {}
    left: dict[int, int] = {}
    for key in record.at_end:
        one = record.entries[key]
        for broker in one.targets:
            total[broker] = total.get(broker, 0) + one.filled_bytes // len(one.targets)
        for broker, size in _fill_left(record, seen, key).items():
            left[broker] = left.get(broker, 0) + size
    passed_s = _passed_s(record, seen) - STEP_S
    if passed_s < SURE_AFTER_S:
        return rates
    is_given = record.throttle != AUTO
    for broker, size in total.items():
        filled = size - left.get(broker, 0)
        speed = filled / passed_s
        if filled < FILLED_LEAST * size or (is_given and speed >= REACHED * rates.get(broker, 0)):
            continue
        rates[broker] = speed
    return rates
