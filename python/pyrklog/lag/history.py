"""Log ends of one partition over time. Pure; lag.md says what is kept.

Times are milliseconds of history time, and only grow.
"""

from __future__ import annotations

import itertools
import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

_MINUTE_MS = 60_000
SAMPLE_MS = 1000
"""Between two samples of a partition."""
SLACK_MS = SAMPLE_MS // 2
"""A sample may be early by so much and still be an interval behind the last one."""
POINT_BYTES = 16
_FIRST = Struct("=qq")
_TIER = Struct("=qqqdd")
"""Of a tier that is packed: the number of points, what is held, and the paces."""


class TierShape(NamedTuple):
    """``tolerance_ms``: by how much the time of an offset may be off for a point left out."""

    span_ms: int
    interval_ms: int
    tolerance_ms: int
    points_max: int


TIERS = (
    TierShape(15 * _MINUTE_MS, SAMPLE_MS, 200, 900),
    TierShape(6 * 60 * _MINUTE_MS, 10_000, 2_000, 2_160),
    TierShape(14 * 24 * 60 * _MINUTE_MS, 5 * _MINUTE_MS, _MINUTE_MS, 4_032),
)
"""The finest first."""


class Point(NamedTuple):
    at_ms: int
    end: int


class PastPoint(NamedTuple):
    """A log end, and how long ago it was."""

    age_ms: int
    end: int


class Age(NamedTuple):
    """``is_least``: the log left the offset before the history begins."""

    ms: int
    is_least: bool = False


class Tier:
    """Points between which a straight line tells the time of an offset.

    The last point kept is the *anchor*; behind it is a sample that is *held*: up to it, the line
    from the anchor misses no sample by more than the tolerance.
    """

    __slots__ = (
        "_fastest",
        "_interval_ms",
        "_shape",
        "_slowest",
        "_tolerance_ms",
        "ends",
        "held_end",
        "held_ms",
        "times",
    )

    def __init__(self, shape: TierShape, times: array[int], ends: array[int]) -> None:
        """Of at least one point, oldest first."""
        self._shape = shape
        self._interval_ms = shape.interval_ms - SLACK_MS
        self._tolerance_ms = shape.tolerance_ms
        self.times = times
        self.ends = ends
        self.held_ms, self.held_end = times[-1], ends[-1]
        """The anchor itself, where no sample is held."""
        # Milliseconds a record, so that the line from the anchor misses no sample so far.
        self._fastest, self._slowest = 0.0, math.inf

    def pack(self) -> bytes:
        """Several of these may follow each other."""
        state = (self.held_ms, self.held_end, self._fastest, self._slowest)
        head = _TIER.pack(len(self.times), *state)
        return head + self.times.tobytes() + self.ends.tobytes()

    @classmethod
    def unpack(cls, shape: TierShape, packed: bytes, at: int) -> tuple[Tier, int]:
        """Returns where the next one begins, too."""
        count, held_ms, held_end, fastest, slowest = _TIER.unpack_from(packed, at)
        at += _TIER.size
        times, ends = array("q"), array("q")
        times.frombytes(packed[at : at + 8 * count])
        ends.frombytes(packed[at + 8 * count : at + 16 * count])
        found = cls(shape, times, ends)
        found.held_ms, found.held_end = held_ms, held_end
        found._fastest, found._slowest = fastest, slowest
        return found, at + 16 * count

    @property
    def due_ms(self) -> int:
        """Samples before it are not taken."""
        return self.held_ms + self._interval_ms

    def take(self, at_ms: int, end: int) -> int:
        """Takes a sample, not below the last one. Returns how many points there are more now."""
        anchor_end, held_end = self.ends[-1], self.held_end
        more = 0
        if held_end == anchor_end or end == held_end:
            if self.held_ms > self.times[-1] and (held_end != anchor_end or end != held_end):
                more = self._keep()  # a pause begins or ends
        else:
            pace = (at_ms - self.times[-1]) / (end - anchor_end)
            if not self._fastest <= pace <= self._slowest:
                more = self._keep()
        anchor_end = self.ends[-1]
        if end > anchor_end:
            records, ms = end - anchor_end, at_ms - self.times[-1]
            fastest = (ms - self._tolerance_ms) / records
            slowest = (ms + self._tolerance_ms) / records
            if fastest > self._fastest:
                self._fastest = fastest
            if slowest < self._slowest:
                self._slowest = slowest
        self.held_ms, self.held_end = at_ms, end
        return more

    def pause(self, from_ms: int, to_ms: int, end: int) -> int:
        """The log end did not move in between. Returns as :meth:`take`."""
        if to_ms - from_ms < self._interval_ms:
            return 0
        more = self.take(from_ms, end) if from_ms > self.held_ms else 0
        return more + (self.take(to_ms, end) if to_ms > self.held_ms else 0)

    def _keep(self) -> int:
        """What is held becomes the anchor."""
        before = len(self.times)
        if before >= self._shape.points_max:
            self._forget(before // 8)
        else:
            # One point stays before the span, for the line from it.
            self._forget(bisect_left(self.times, self.held_ms - self._shape.span_ms) - 1)
        self.times.append(self.held_ms)
        self.ends.append(self.held_end)
        self._fastest, self._slowest = 0.0, math.inf
        return len(self.times) - before

    def _forget(self, count: int) -> None:
        if count > 0:
            del self.times[:count]
            del self.ends[:count]

    def halve(self) -> int:
        """Forgets the older half. Returns the number of points forgotten."""
        count = len(self.times) // 2
        self._forget(count)
        return count

    def cut(self, end: int, last: Point) -> int:
        """The log end has moved back, from the ``last`` sample: forgets what is above it. Returns
        the number of points forgotten."""
        before, crossed_ms = len(self.times), self.left_at(end, last)
        kept = max(1, bisect_right(self.ends, end))
        del self.times[kept:]
        del self.ends[kept:]
        self.ends[0] = min(self.ends[0], end)
        if crossed_ms is not None and crossed_ms > self.times[-1]:
            self.times.append(round(crossed_ms))
            self.ends.append(end)
        self.held_ms, self.held_end = self.times[-1], self.ends[-1]
        self._fastest, self._slowest = 0.0, math.inf
        return before - len(self.times)

    def left_at(self, offset: int, last: Point) -> float | None:
        """When the log end left the offset. None: before the first point, or not yet. ``last``: the
        last sample, which may not have been taken."""
        ends = self.ends
        if offset < ends[0]:
            return None
        if offset < ends[-1]:
            above = bisect_right(ends, offset)
            before = Point(self.times[above - 1], ends[above - 1])
            return _crossing(before, Point(self.times[above], ends[above]), offset)
        anchor, held = Point(self.times[-1], ends[-1]), Point(self.held_ms, self.held_end)
        if offset < held.end:
            return _crossing(anchor, held, offset)
        return _crossing(held, last, offset) if offset < last.end else None

    def end_at(self, at_ms: int, last: Point) -> float | None:
        """The log end at a time up to the ``last`` sample. None: before the first point."""
        times = self.times
        if at_ms < times[0]:
            return None
        above = bisect_right(times, at_ms)
        before, after = Point(times[above - 1], self.ends[above - 1]), last
        if above < len(times):
            after = Point(times[above], self.ends[above])
        elif at_ms < self.held_ms:
            after = Point(self.held_ms, self.held_end)
        elif self.held_ms > before.at_ms:
            before = Point(self.held_ms, self.held_end)
        if after.at_ms <= before.at_ms:
            return before.end
        share = (at_ms - before.at_ms) / (after.at_ms - before.at_ms)
        return before.end + share * (after.end - before.end)


def _crossing(before: Point, after: Point, offset: int) -> float:
    share = (offset - before.end) / (after.end - before.end)
    return before.at_ms + share * (after.at_ms - before.at_ms)


class History:
    """Of one partition. It has no tiers before the log end has moved once.

    Between two calls its tiers are packed into one object: most histories are short, and a tenth of
    their memory would be points.
    """

    __slots__ = ("_packed", "asked_ms", "at_ms", "end")

    def __init__(self, at_ms: int, end: int) -> None:
        self._packed = _FIRST.pack(at_ms, end)
        self.at_ms, self.end = at_ms, end
        """The last sample: when the log end moved last."""
        self.asked_ms = 0
        """When a group was last asked about the partition; 0: never."""

    @property
    def first(self) -> Point:
        return Point(*_FIRST.unpack_from(self._packed))

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """Copies, the finest first."""
        return tuple(self._unpacked())

    def _unpacked(self) -> Iterator[Tier]:
        at = _FIRST.size
        for shape in TIERS:
            if at == len(self._packed):
                break
            tier, at = Tier.unpack(shape, self._packed, at)
            yield tier

    def _pack(self, first: Point, tiers: Iterable[Tier]) -> None:
        self._packed = b"".join([_FIRST.pack(*first), *(tier.pack() for tier in tiers)])

    def add(self, at_ms: int, end: int, *, unmoved_ms: int) -> int:
        """The log end is elsewhere now; at ``unmoved_ms`` it had still not moved. Returns how many
        points there are more."""
        more = 0
        first, tiers = self.first, self.tiers
        if not tiers:
            tiers = tuple(
                Tier(shape, array("q", [first.at_ms]), array("q", [first.end])) for shape in TIERS
            )
            more = len(TIERS)
        if end < self.end:
            last = Point(self.at_ms, self.end)
            more -= sum(tier.cut(end, last) for tier in tiers)
            first = first._replace(end=min(first.end, end))
            unmoved_ms = 0
        for tier in tiers:
            if at_ms >= tier.due_ms:
                if unmoved_ms > self.at_ms:
                    more += tier.pause(self.at_ms, unmoved_ms, self.end)
                more += tier.take(at_ms, end)
        self._pack(first, tiers)
        self.at_ms, self.end = at_ms, end
        return more

    def age(self, offset: int, now_ms: int, unmoved_ms: int) -> Age:
        """How long ago the log end left an offset below it. ``unmoved_ms``: when the log end was
        looked at last."""
        if offset >= self.end:
            return Age(max(0, now_ms - max(unmoved_ms, self.first.at_ms)))
        last = Point(self.at_ms, self.end)
        begins_ms = self.first.at_ms
        for at, tier in enumerate(self._unpacked()):
            left_ms = tier.left_at(offset, last)
            if left_ms is not None:
                return Age(max(0, round(now_ms - left_ms)))
            begins_ms = min(begins_ms, tier.times[0]) if at else tier.times[0]
        return Age(max(0, now_ms - begins_ms), is_least=True)

    def past(self, back_ms: int, now_ms: int) -> PastPoint:
        """The log end so long ago, or where the history begins."""
        at_ms, last = now_ms - back_ms, Point(self.at_ms, self.end)
        if at_ms >= last.at_ms:
            return PastPoint(back_ms, last.end)
        for tier in self.tiers:
            end = tier.end_at(at_ms, last)
            if end is not None:
                return PastPoint(back_ms, round(end))
        begins = [Point(tier.times[0], tier.ends[0]) for tier in self.tiers]
        begin = min(begins, default=self.first)
        return PastPoint(max(0, now_ms - begin.at_ms), begin.end)

    @property
    def points(self) -> int:
        more = len(self._packed) - _FIRST.size
        return (more - _TIER.size * len(TIERS)) // POINT_BYTES if more else 0

    @property
    def is_long(self) -> bool:
        """It can be halved."""
        return self.points > len(TIERS)

    def halve(self) -> int:
        """Forgets the older half of each tier. Returns the number of points forgotten."""
        tiers = self.tiers
        forgotten = sum(tier.halve() for tier in tiers)
        self._pack(self.first, tiers)
        return forgotten

    def dump(self) -> list[tuple[Sequence[int], Sequence[int]]]:
        """Copies of (times, log ends), tier by tier, with the samples behind them."""
        tiers = self.tiers
        if not tiers:
            return [((self.first.at_ms,), (self.first.end,))]
        found: list[tuple[Sequence[int], Sequence[int]]] = []
        for tier in tiers:
            times, ends = tier.times, tier.ends
            for at_ms, end in ((tier.held_ms, tier.held_end), (self.at_ms, self.end)):
                if at_ms > times[-1] and end >= ends[-1]:
                    times.append(at_ms)
                    ends.append(end)
            found.append((times, ends))
        return found


def restored(tiers: Sequence[tuple[Sequence[int], Sequence[int]]], shift_ms: int) -> History:
    """From :meth:`History.dump`, with all times later by ``shift_ms``.

    Raises :class:`ValueError` for what no history can be.
    """
    for times, ends in tiers:
        if not times or len(times) != len(ends) or not (_ascends(times) and _ascends(ends)):
            raise ValueError("times or log ends that go back")
    history = History(tiers[-1][0][0] + shift_ms, tiers[-1][1][0])
    history.at_ms = max(times[-1] for times, _ in tiers) + shift_ms
    history.end = max(ends[-1] for _, ends in tiers)
    if len(tiers) == len(TIERS):
        kept = [
            Tier(
                shape,
                array("q", (one + shift_ms for one in times[-shape.points_max :])),
                array("q", ends[-shape.points_max :]),
            )
            for shape, (times, ends) in zip(TIERS, tiers, strict=True)
        ]
        history._pack(history.first, kept)
    elif len(tiers) != 1:
        raise ValueError(f"{len(tiers)} tiers")
    return history


def _ascends(values: Sequence[int]) -> bool:
    return all(one <= two for one, two in itertools.pairwise(values))
