"""How far one group was behind over time, in records and milliseconds. Pure; lag.md says what is
kept.

Times are milliseconds of history time, and only grow. Points are kept as 32-bit floats.
"""

from __future__ import annotations

import itertools
import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from pyrklog.lag.history import SLACK_MS, TIERS
from pyrklog.protocol.lag import UNKNOWN

POINT_BYTES = 16
TOLERANCE = 0.02
"""A share of the value by which a point left out may be missed."""
SPAN_MS = TIERS[-1].span_ms
_FIRST = Struct("=qff")
_TIER = Struct("=qqffqffqffff")
"""Of a tier that is packed: the number of points, what is held, what is pending and until when, and
both fans."""
_FLOATS = Struct("=ff")


class Lag(NamedTuple):
    """-1: unknown. ``ms``: of the partition that is farthest behind."""

    records: float
    ms: float

    @property
    def kind(self) -> tuple[bool, bool]:
        return self.records < 0, self.ms < 0

    def most(self, other: Lag) -> Lag:
        return Lag(max(self.records, other.records), max(self.ms, other.ms))

    def rounded(self) -> Lag:
        """As points have it."""
        return Lag(*_FLOATS.unpack(_FLOATS.pack(*self)))


NO_LAG = Lag(UNKNOWN, UNKNOWN)


class LagShape(NamedTuple):
    """``tolerance_ms``: by how much lag in time may be missed, if that is more than its share."""

    span_ms: int
    interval_ms: int
    tolerance_ms: int
    points_max: int


LAG_TIERS = tuple(
    LagShape(shape.span_ms, shape.interval_ms, tolerance_ms, shape.points_max)
    for shape, tolerance_ms in zip(TIERS, (500, 1_000, 5_000), strict=True)
)
"""The spans and intervals of log ends, the finest first."""


class LagPoint(NamedTuple):
    at_ms: int
    lag: Lag


_NO_POINT = LagPoint(-1, NO_LAG)


class LagColumns(NamedTuple):
    """Points by column, the oldest first."""

    times: Sequence[int]
    records: Sequence[float]
    ms: Sequence[float]


class _Fan:
    """The slopes of lines from the anchor that miss no value of one column so far."""

    __slots__ = ("high", "low")

    def __init__(self, low: float = -math.inf, high: float = math.inf) -> None:
        self.low, self.high = low, high

    def has(self, slope: float) -> bool:
        return self.low <= slope <= self.high

    def narrow(self, least: float, most: float) -> None:
        self.low, self.high = max(self.low, least), min(self.high, most)


class LagTier:
    """Points between which the lag is on a straight line, unless it is unknown at one of them: then
    the earlier one holds until the later.

    Samples within an interval become one, the most of each column; it is *pending* until the
    interval is over. The last point kept is the *anchor*; behind it a sample is *held*: up to it,
    the line from the anchor misses none by more than the tolerance.
    """

    __slots__ = (
        "_due_ms",
        "_fans",
        "_interval_ms",
        "_shape",
        "held",
        "lags",
        "ms",
        "pending",
        "times",
    )

    def __init__(
        self, shape: LagShape, times: array[int], lags: array[float], ms: array[float]
    ) -> None:
        """Of at least one point, oldest first."""
        self._shape = shape
        self._interval_ms = shape.interval_ms - SLACK_MS
        self.times, self.lags, self.ms = times, lags, ms
        self.held = self._anchor()
        self.pending: LagPoint | None = None
        self._due_ms = 0
        self._fans = (_Fan(), _Fan())

    def pack(self) -> bytes:
        """Several of these may follow each other."""
        held, pending = self.held, self.pending or _NO_POINT
        head = _TIER.pack(
            len(self.times),
            held.at_ms,
            *held.lag,
            pending.at_ms,
            *pending.lag,
            self._due_ms,
            *(number for fan in self._fans for number in (fan.low, fan.high)),
        )
        return head + self.times.tobytes() + self.lags.tobytes() + self.ms.tobytes()

    @classmethod
    def unpack(cls, shape: LagShape, packed: bytes, at: int) -> tuple[LagTier, int]:
        """Returns where the next one begins, too."""
        count, *state = _TIER.unpack_from(packed, at)
        at += _TIER.size
        times, lags, ms = array("q"), array("f"), array("f")
        times.frombytes(packed[at : at + 8 * count])
        lags.frombytes(packed[at + 8 * count : at + 12 * count])
        ms.frombytes(packed[at + 12 * count : at + 16 * count])
        found = cls(shape, times, lags, ms)
        found.held = LagPoint(state[0], Lag(state[1], state[2]))
        pending = LagPoint(state[3], Lag(state[4], state[5]))
        found.pending = None if pending == _NO_POINT else pending
        found._due_ms = state[6]
        found._fans = (_Fan(state[7], state[8]), _Fan(state[9], state[10]))
        return found, at + 16 * count

    def _anchor(self) -> LagPoint:
        return LagPoint(self.times[-1], Lag(self.lags[-1], self.ms[-1]))

    def observe(self, at_ms: int, lag: Lag) -> int:
        """A sample. Returns how many points there are more now."""
        if self.pending is not None and at_ms < self._due_ms:
            self.pending = LagPoint(at_ms, self.pending.lag.most(lag))
            return 0
        more = self._flush()
        self.pending = LagPoint(at_ms, lag)
        self._due_ms = at_ms + self._interval_ms
        return more

    def rested(self, until_ms: int, lag: Lag) -> int:
        """The last sample's lag was the same until then. Returns as :meth:`observe`."""
        last_ms = self.held.at_ms if self.pending is None else self.pending.at_ms
        if until_ms - last_ms < self._interval_ms:
            return 0
        begin = self._rest_began(LagPoint(until_ms, lag))
        more = self._flush()
        if begin is not None:
            more += self._take(begin)
        return more + self._take(LagPoint(until_ms, lag))

    def _rest_began(self, last: LagPoint) -> LagPoint | None:
        """Where what is pending was more than the lag since: the end of its interval."""
        if self.pending is None or self.pending.lag == last.lag or last.at_ms <= self._due_ms:
            return None
        return LagPoint(max(self._due_ms, self.pending.at_ms + 1), last.lag)

    def break_off(self, at_ms: int) -> int:
        """From then on the lag is unknown, however short of an interval that is."""
        return self._flush() + self._take(LagPoint(at_ms, NO_LAG))

    def _flush(self) -> int:
        pending, self.pending = self.pending, None
        return 0 if pending is None else self._take(pending)

    def _take(self, point: LagPoint) -> int:
        if point.at_ms <= self.held.at_ms:
            return 0
        more = 0
        if point.lag.kind != self.held.lag.kind:
            more = self._keep()
            self.held = point
            return more + self._keep()
        slopes = self._slopes(point)
        if not (self._fans[0].has(slopes[0]) and self._fans[1].has(slopes[1])):
            more = self._keep()
            slopes = self._slopes(point)
        since_ms = point.at_ms - self.times[-1]
        records = TOLERANCE * point.lag.records / since_ms
        ms = max(TOLERANCE * point.lag.ms, self._shape.tolerance_ms) / since_ms
        self._fans[0].narrow(slopes[0] - records, slopes[0] + records)
        self._fans[1].narrow(slopes[1] - ms, slopes[1] + ms)
        self.held = point
        return more

    def _slopes(self, point: LagPoint) -> tuple[float, float]:
        since_ms = point.at_ms - self.times[-1]
        records, ms = point.lag.records - self.lags[-1], point.lag.ms - self.ms[-1]
        return records / since_ms, ms / since_ms

    def _keep(self) -> int:
        """What is held becomes the anchor."""
        at_ms, lag = self.held
        if at_ms <= self.times[-1]:
            return 0
        before = len(self.times)
        if before >= self._shape.points_max:
            self._forget(before // 8)
        else:
            # One point stays before the span, for the line from it.
            self._forget(bisect_left(self.times, at_ms - self._shape.span_ms) - 1)
        self.times.append(at_ms)
        self.lags.append(lag.records)
        self.ms.append(lag.ms)
        self._fans = (_Fan(), _Fan())
        return len(self.times) - before

    def _forget(self, count: int) -> None:
        if count > 0:
            del self.times[:count], self.lags[:count], self.ms[:count]

    def halve(self) -> int:
        """Forgets the older half. Returns the number of points forgotten."""
        count = len(self.times) // 2
        self._forget(count)
        return count

    def columns(self, last: LagPoint) -> LagColumns:
        """All, with what is held and pending, and the last sample behind them."""
        times, records, ms = self.times, self.lags, self.ms
        for one in (self.held, self.pending, self._rest_began(last), last):
            if one is not None and one.at_ms > times[-1]:
                times.append(one.at_ms)
                records.append(one.lag.records)
                ms.append(one.lag.ms)
        return LagColumns(times, records, ms)


class LagHistory:
    """Of one group, or of one topic of it. It has no tiers before the lag has moved once.

    Between two calls its tiers are packed into one object, as those of a partition.
    """

    __slots__ = ("_at_ms", "_lag", "_packed", "asked_ms", "is_moved", "seen")

    def __init__(self, at_ms: int, lag: Lag) -> None:
        self._at_ms, self._lag = at_ms, lag
        """Of the last sample."""
        self._packed = _FIRST.pack(at_ms, *lag)
        self.seen = 0
        """The round that found it last."""
        self.is_moved = False
        """The last sample's lag differs from the one before it."""
        self.asked_ms = 0
        """When somebody asked for it last; 0: never."""

    @property
    def first(self) -> LagPoint:
        at_ms, records, ms = _FIRST.unpack_from(self._packed)
        return LagPoint(at_ms, Lag(records, ms))

    @property
    def last(self) -> LagPoint:
        return LagPoint(self._at_ms, self._lag)

    @property
    def tiers(self) -> tuple[LagTier, ...]:
        """Copies, the finest first."""
        return tuple(self._unpacked())

    def _unpacked(self) -> Iterator[LagTier]:
        at = _FIRST.size
        if at < len(self._packed):
            for shape in LAG_TIERS:
                tier, at = LagTier.unpack(shape, self._packed, at)
                yield tier

    def _pack(self, tiers: Iterable[LagTier]) -> None:
        first = self._packed[: _FIRST.size]
        self._packed = b"".join([first, *(tier.pack() for tier in tiers)])

    def observe(self, at_ms: int, lag: Lag) -> int:
        """A sample. Returns how many points there are more."""
        at_ms = max(at_ms, self._at_ms)
        if lag == self._lag:
            self._at_ms = at_ms
            self.is_moved = False
            return 0
        tiers, more = self._rest()
        rounded = lag.rounded()
        for tier in tiers:
            more += tier.observe(at_ms, rounded)
        self._pack(tiers)
        self._at_ms, self._lag = at_ms, lag
        self.is_moved = True
        return more

    def break_off(self) -> int:
        """Nobody looks at the lag any more: it is unknown behind the last sample."""
        if self._lag == NO_LAG:
            return 0
        tiers, more = self._rest()
        at_ms = self._at_ms + 1
        for tier in tiers:
            more += tier.break_off(at_ms)
        self._pack(tiers)
        self._at_ms, self._lag = at_ms, NO_LAG
        self.is_moved = True
        return more

    def _rest(self) -> tuple[tuple[LagTier, ...], int]:
        """Before a sample of another lag. Returns the tiers, and how many points there are more."""
        more = 0
        tiers = self.tiers
        if not tiers:
            at_ms, lag = self.first
            tiers = tuple(
                LagTier(shape, array("q", [at_ms]), array("f", [lag.records]), array("f", [lag.ms]))
                for shape in LAG_TIERS
            )
            more = len(tiers)
        if not self.is_moved:
            rounded = self._lag.rounded()
            more += sum(tier.rested(self._at_ms, rounded) for tier in tiers)
        return tiers, more

    def columns(self, since_ms: int) -> LagColumns:
        """From the last point before that time on, each part from the finest tier that has it."""
        times: list[int] = []
        records: list[float] = []
        ms: list[float] = []
        dump = self.dump()
        for found, finer in itertools.zip_longest(reversed(dump), dump[-2::-1]):
            behind = len(found.times)
            if finer is not None:
                behind = bisect_left(found.times, finer.times[0])
            first = min(behind, max(0, bisect_right(found.times, since_ms) - 1))
            times += found.times[first:behind]
            records += found.records[first:behind]
            ms += found.ms[first:behind]
        first = max(0, bisect_right(times, since_ms) - 1)
        return LagColumns(times[first:], records[first:], ms[first:])

    @property
    def points(self) -> int:
        more = len(self._packed) - _FIRST.size
        return (more - _TIER.size * len(LAG_TIERS)) // POINT_BYTES if more else 0

    @property
    def is_long(self) -> bool:
        """It can be halved."""
        return self.points > len(LAG_TIERS)

    def halve(self) -> int:
        """Forgets the older half of each tier. Returns the number of points forgotten."""
        tiers = self.tiers
        forgotten = sum(tier.halve() for tier in tiers)
        self._pack(tiers)
        return forgotten

    def dump(self) -> list[LagColumns]:
        """Copies, tier by tier; without tiers, the first and the last sample."""
        last = LagPoint(self._at_ms, self._lag.rounded())
        found = [tier.columns(last) for tier in self._unpacked()]
        if found:
            return found
        points = [self.first]
        if last.at_ms > self.first.at_ms:
            points.append(last)
        return [LagColumns(*zip(*((at_ms, *lag) for at_ms, lag in points), strict=True))]


def restored(tiers: Sequence[LagColumns], shift_ms: int) -> LagHistory:
    """From :meth:`LagHistory.dump`, with all times later by ``shift_ms``.

    Raises :class:`ValueError` for what no history can be.
    """
    if len(tiers) not in (1, len(LAG_TIERS)):
        raise ValueError(f"{len(tiers)} tiers")
    for times, records, ms in tiers:
        is_whole = times and all(one < two for one, two in itertools.pairwise(times))
        if not is_whole or not all(map(is_lag, records)) or not all(map(is_lag, ms)):
            raise ValueError("times that go back, or lag that is none")
    begin, last = _point(tiers[-1], 0), _point(tiers[0], -1)
    history = LagHistory(begin.at_ms + shift_ms, begin.lag)
    history._at_ms, history._lag = last.at_ms + shift_ms, last.lag
    if len(tiers) > 1:
        history._pack(
            LagTier(
                shape,
                array("q", [one + shift_ms for one in times[-shape.points_max :]]),
                array("f", records[-shape.points_max :]),
                array("f", ms[-shape.points_max :]),
            )
            for shape, (times, records, ms) in zip(LAG_TIERS, tiers, strict=True)
        )
    return history


def _point(columns: LagColumns, at: int) -> LagPoint:
    return LagPoint(columns.times[at], Lag(columns.records[at], columns.ms[at]))


def is_lag(number: float) -> bool:
    """No damage."""
    return number == UNKNOWN or 0 <= number < math.inf
