"""How far a plan is, how fast it copies, and how long it still takes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from pyrklog.balance.filling import fill_seconds, later, sooner
from pyrklog.balance.model import PartitionKey
from pyrklog.balance.prediction import STEP_S, Copy, RateFrom, grown, seconds
from pyrklog.balance.record import Corrected, Record
from pyrklog.balance.throttle import AUTO

End = tuple[str, int]
"""A broker that gives (out) or takes (in)."""
MEASURED_AFTER_S = 3.0
"""Copying for so long tells a rate."""
SURE_AFTER_S = 10.0
"""After so long a plan tells whether a given rate is reached."""
SURE_AUTO_S = 20.0
"""The same of a throttle that follows the brokers: it rises until then."""
SURE_WATCHED_S = 7.0
"""The same since a look: the first seconds of a plan do not count then."""
CLEAR = 1.25
"""How many times what producers write a measured rate has to be: replicas that have caught up copy
as fast as that, and no faster."""
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
    done: AbstractSet[PartitionKey] = frozenset()
    moving: Mapping[PartitionKey, There] = field(default_factory=dict)
    fill_rates: Mapping[int, int] | None = None


class Mark(NamedTuple):
    """What of a look the speed since then needs. ``carried``: bytes by broker, of the batches that
    were under way. ``over``: batches that were done."""

    at_ms: int
    carried: Mapping[int, Mapping[End, int]]
    over: AbstractSet[int]


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
    fill_rate_bytes: int | None = None
    """What the slowest broker back-fills a second, where that counts instead of what brokers were
    told to."""
    is_sure: bool = False
    """Whether the rate of copies was measured, and for long enough."""

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


def progress(record: Record, seen: Seen, earlier: Mark | None = None) -> Progress:
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
    rate = _rate(record, seen, earlier)
    filling = _filling(record, seen)
    left_s: float | None = 0.0
    if len(seen.done) < len(record.entries):
        # A file of an older version tells nothing of back-fills.
        is_filled = record.fill is not None or all(key in seen.done for key in record.at_end)
        goes_on = record.is_measured and is_filled and record.cancelled_ms is None
        left_s = _left_s(record, seen, rate.rate_bytes, filling.rates) if goes_on else None
    fills = record.fill_bytes
    has_tail = all(key in seen.done or _has_started(record, seen, key) for key in record.at_end)
    return Progress(
        len(record.entries),
        len(seen.done),
        record.total_bytes + fills,
        copied + filled,
        left_s,
        rate.rate_bytes,
        rate.rate_from,
        fills,
        filled,
        has_tail,
        filling.measured,
        rate.is_sure,
    )


def _has_started(record: Record, seen: Seen, key: PartitionKey) -> bool:
    there = seen.moving.get(key)
    return there is not None and there.started.issuperset(record.entries[key].targets)


def corrected(record: Record, seen: Seen, found: Progress) -> Corrected | None:
    """The prediction of the whole by what was measured, once that tells."""
    passed_s = _passed_s(record, seen)
    if found.left_s is None or not seen.moving or passed_s < SURE_AFTER_S:
        return None
    rate_bytes = found.fill_rate_bytes
    if record.total_bytes:
        rate_bytes = found.rate_bytes if found.is_sure else None
    if rate_bytes is None:
        return None
    return Corrected(passed_s, rate_bytes, passed_s + found.left_s)


def mark_of(record: Record, seen: Seen) -> Mark:
    carried, over = {}, set()
    for number, keys in enumerate(record.batches()):
        if all(key in seen.done for key in keys):
            over.add(number)
        elif _has_begun(keys, seen):
            found = _carried(record, keys, seen)
            if any(found.values()):
                carried[number] = found
    return Mark(seen.at_ms, carried, over)


class Speed(NamedTuple):
    """``rate_bytes``: what the busiest broker takes or gives a second, for copies. ``is_sure``: it
    was watched for long enough to tell whether a rate is reached."""

    rate_bytes: int
    is_sure: bool


def measured(record: Record, seen: Seen, earlier: Mark | None = None) -> Speed | None:
    """None: too early to tell, or what is copied is little more than what producers write. Each
    batch has a busiest broker of its own."""
    watched_s, sure_s = _passed_s(record, seen), SURE_AFTER_S
    if earlier is not None:
        watched_s, sure_s = (seen.at_ms - earlier.at_ms) / 1000, SURE_WATCHED_S
    total, begun, grows = 0, 0, 0.0
    for number, keys in enumerate(record.batches()):
        before: Mapping[End, int] | None = None
        if earlier is not None:
            before = earlier.carried.get(number)
            if number in earlier.over:
                continue
        if not _has_begun(keys, seen):
            continue
        begun += before is None
        more = {
            end: count - (before or {}).get(end, 0)
            for end, count in _carried(record, keys, seen).items()
        }
        busiest = max(more, key=lambda end: more[end], default=None)
        if busiest is not None:
            total += more[busiest]
            grows = _growth(record, keys, seen).get(busiest, 0.0)
    copied_s = watched_s - STEP_S * begun
    if copied_s < MEASURED_AFTER_S or total <= 0 or total < CLEAR * grows * copied_s:
        return None
    is_rising = record.throttle == AUTO and _passed_s(record, seen) < SURE_AUTO_S
    return Speed(int(total / copied_s) or 1, watched_s >= sure_s and not is_rising)


class _Rate(NamedTuple):
    """By which the time left is told."""

    rate_bytes: int
    rate_from: RateFrom
    is_sure: bool = False


def _rate(record: Record, seen: Seen, earlier: Mark | None) -> _Rate:
    given = _Rate(record.rate_bytes, record.rate_from)
    if not record.total_bytes:
        return given
    found = measured(record, seen, earlier)
    if found is None and record.corrected is not None:
        # A batch has just begun: it is as fast as those before.
        return _Rate(record.corrected.rate_bytes, RateFrom.MEASURED)
    if found is None:
        return given
    is_reached = not found.is_sure or found.rate_bytes >= REACHED * record.rate_bytes
    if record.rate_from is RateFrom.GIVEN and is_reached:
        return given
    return _Rate(found.rate_bytes, RateFrom.MEASURED, found.is_sure)


def _passed_s(record: Record, seen: Seen) -> float:
    return max(0.0, (seen.at_ms - record.begun_ms) / 1000)


def _has_begun(keys: Sequence[PartitionKey], seen: Seen) -> bool:
    return any(key in seen.moving or key in seen.done for key in keys)


def _carried(record: Record, keys: Sequence[PartitionKey], seen: Seen) -> dict[End, int]:
    """Bytes of copies of a batch that each broker has given and taken."""
    found: dict[End, int] = {}
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


def _growth(record: Record, keys: Sequence[PartitionKey], seen: Seen) -> dict[End, float]:
    """Bytes a second that producers add to what each broker gives and takes."""
    found: dict[End, float] = {}
    for key in keys:
        there = seen.moving.get(key)
        if there is None:
            continue
        for copy in record.copies(key):
            rate = _rate_in(copy, there, _passed_s(record, seen))
            for end in (("out", copy.source), ("in", copy.target)):
                found[end] = found.get(end, 0.0) + rate
    return found


def _left_s(
    record: Record, seen: Seen, rate_bytes: int, fill_rates: Mapping[int, float]
) -> float | None:
    """Of all batches, one after the other."""
    passed_s, retention_s = _passed_s(record, seen), _retention_s(record, seen)
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
                    copy._replace(
                        size_bytes=there.left(copy.target), rate_in=_rate_in(copy, there, passed_s)
                    )
                    for copy in record.copies(key)
                ]
            for broker, size in _fill_left(record, seen, key).items():
                lacks[broker] = lacks.get(broker, 0) + size
        lasts_s = seconds(copies, rate_bytes)
        if lacks:
            deleted_s = None if retention_s is None else max(0.0, retention_s - total_s)
            lasts_s = later(lasts_s, sooner(fill_seconds(lacks, fill_rates), deleted_s))
        if lasts_s is None:
            return None
        total_s += lasts_s + (0.0 if _has_begun(keys, seen) else STEP_S)
    return total_s


def _rate_in(copy: Copy, there: There, passed_s: float) -> float:
    """Bytes a second by which a partition grows: as since the plan began, once that tells. A load
    may have ended right before, and retention deletes."""
    if passed_s < SURE_AFTER_S or not copy.size_bytes:
        return copy.rate_in
    return max(0, there.size - copy.size_bytes) / passed_s


def _retention_s(record: Record, seen: Seen) -> float | None:
    """Until retention has deleted what all new replicas lack, by the prediction of the beginning.
    None: never, or it is late, and nobody knows how much."""
    if record.fill is None or record.fill.retention_s is None:
        return None
    left_s = record.fill.retention_s - _passed_s(record, seen)
    return left_s if left_s > 0 else None


def _fill_left(record: Record, seen: Seen, key: PartitionKey) -> dict[int, float]:
    """What new replicas of a partition lack that start at the end."""
    one, there = record.entries[key], seen.moving.get(key)
    if key not in record.at_end or key in seen.done:
        return {}
    # Until its batch begins, producers write on.
    more = one.rate_in * _passed_s(record, seen)
    each = one.filled_bytes / max(1, len(one.targets)) + more
    return {broker: each if there is None else there.left(broker) for broker in one.targets}


class _Filling(NamedTuple):
    """Bytes a second of each broker's back-fills. ``measured``: the slowest, where one counts that
    was measured."""

    rates: Mapping[int, float]
    measured: int | None = None


def _filling(record: Record, seen: Seen) -> _Filling:
    """As brokers were told to back-fill, or as they do where that is less, or where nobody told
    them a lasting rate."""
    if record.fill is None:
        return _Filling({})
    rates: dict[int, float] = {**record.fill.rates, **(seen.fill_rates or {})}
    passed_s = _passed_s(record, seen) - STEP_S
    # In a batch some have nothing to fill for a while.
    is_given = record.throttle != AUTO
    sure_s = SURE_AFTER_S if is_given else SURE_AUTO_S
    if passed_s < sure_s or len(record.batches()) > 1:
        return _Filling(rates)
    total: dict[int, float] = {}
    left: dict[int, float] = {}
    for key in record.at_end:
        one = record.entries[key]
        for broker in one.targets:
            total[broker] = total.get(broker, 0) + one.filled_bytes / len(one.targets)
        for broker, size in _fill_left(record, seen, key).items():
            left[broker] = left.get(broker, 0) + size
    measured, is_early = [], False
    for broker, size in total.items():
        if left.get(broker, 0) <= 0:
            continue
        filled = size - left[broker]
        speed = filled / passed_s
        if filled < FILLED_LEAST * size:
            is_early = True
        elif not is_given or speed < REACHED * rates.get(broker, 0):
            rates[broker] = speed
            measured.append(speed)
    slowest = int(min(measured)) if measured and not is_early else None
    return _Filling(rates, slowest)
