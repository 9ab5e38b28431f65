"""Where rows can be that satisfy a query's conditions: places, offsets, times.

Whatever a condition says that is not understood leaves everything in; Spark applies all conditions
to the rows. Why an upper bound of times narrows nothing: ``docs/understanding/spark-source.md``.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pyrklog.spark.conditions import Condition, Operator, may_hold
from pyrklog.spark.offsets import TopicPartition

JOINED_OFFSETS = 10_000
"""As many offsets between two wanted ones are read with them: another task would take longer."""

RANGES_MAX = 16
"""Of a partition."""

_OFFSET_END = 2**63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Narrowing:
    """Rows are where all ``places`` may hold, at offsets from ``low`` up to, and without, ``high``,
    at one of ``offsets`` unless that is None, and not older than ``least_ms`` unless that is."""

    places: tuple[Condition, ...] = ()
    low: int = 0
    high: int = _OFFSET_END
    offsets: frozenset[int] | None = None
    least_ms: int | None = None

    def admits(self, place: TopicPartition) -> bool:
        return all(may_hold(one, getattr(place, one.column)) for one in self.places)

    def ranges(self, start: int, end: int, *, keeps_end: bool = False) -> list[tuple[int, int]]:
        """What is left of the offsets from ``start`` up to, and without, ``end``; none is empty.
        With ``keeps_end`` all behind the first one is."""
        low, high = max(start, self.low), min(end, self.high)
        if self.offsets is None:
            found = [(low, high)] if low < high else []
        else:
            found = _joined(sorted(one for one in self.offsets if low <= one < high))
        return [(found[0][0], end)] if keeps_end and found else found


EVERYWHERE = Narrowing()


def narrowing(conditions: Iterable[Condition]) -> Narrowing:
    """Of conditions all of which a row satisfies."""
    found = EVERYWHERE
    for one in conditions:
        if one.column in TopicPartition._fields:
            found = replace(found, places=(*found.places, one))
        elif one.column == "offset" and not one.is_negated:
            found = _with_offsets(found, one)
        elif one.column == "timestamp" and not one.is_negated:
            found = _with_times(found, one)
    return found


def _with_offsets(found: Narrowing, one: Condition) -> Narrowing:
    low, high, offsets, value = found.low, found.high, found.offsets, one.value
    if one.operator is Operator.IN and isinstance(value, tuple):
        # A null among them is equal to nothing.
        wanted = [offset for offset in value if offset is not None]
        if all(type(offset) is int for offset in wanted):
            offsets = frozenset(wanted) if offsets is None else offsets.intersection(wanted)
    elif type(value) is int:
        if one.operator in (Operator.EQUAL, Operator.GREATER_OR_EQUAL):
            low = max(low, value)
        elif one.operator is Operator.GREATER:
            low = max(low, value + 1)
        if one.operator in (Operator.EQUAL, Operator.LESS_OR_EQUAL):
            high = min(high, value + 1)
        elif one.operator is Operator.LESS:
            high = min(high, value)
    return replace(found, low=low, high=high, offsets=offsets)


def _with_times(found: Narrowing, one: Condition) -> Narrowing:
    value: object = one.value
    if one.operator is Operator.IN and isinstance(value, tuple):
        times = [time for time in value if time is not None]
        if not times or not all(_is_time(time) for time in times):
            return found
        value = min(times)
    elif one.operator not in (Operator.EQUAL, Operator.GREATER, Operator.GREATER_OR_EQUAL):
        return found
    if not _is_time(value):
        return found
    assert isinstance(value, datetime)
    micros = (value - _EPOCH) // timedelta(microseconds=1)
    least = micros // 1000 + 1 if one.operator is Operator.GREATER else -(-micros // 1000)
    if found.least_ms is not None:
        least = max(least, found.least_ms)
    return replace(found, least_ms=least)


def _is_time(value: object) -> bool:
    """With a zone: without one it is no moment."""
    return isinstance(value, datetime) and value.tzinfo is not None


def _joined(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges with all these offsets, which rise; the largest gaps are between them."""

    def gap(number: int) -> int:
        return offsets[number] - offsets[number - 1]

    wide = (number for number in range(1, len(offsets)) if gap(number) > JOINED_OFFSETS)
    cuts = sorted(heapq.nlargest(RANGES_MAX - 1, wide, key=gap))
    edges = itertools.pairwise([0, *cuts, len(offsets)])
    return [(offsets[first], offsets[behind - 1] + 1) for first, behind in edges if first < behind]
