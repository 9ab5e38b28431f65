"""The past lag of a group as rows: at steps of equal length, or as points. Pure.

A *run* is a time without a gap: between two points of it the lag is on a straight line.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pyrklog.protocol.lag import PastLag

STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)
DAY_S = 86_400
SPARKS = "▁▂▃▄▅▆▇█"


class Point(NamedTuple):
    """By the wall clock, in seconds. ``lag_s`` None: unknown; ``lag`` None: a gap begins."""

    at_s: float
    lag: float | None
    lag_s: float | None


Run = list[Point]


def runs_of(told: PastLag, now_s: float) -> list[Run]:
    """Those of one broker, the oldest first."""
    runs: list[Run] = []
    run: Run = []
    for age_ms, lag, lag_ms in zip(told.ages_ms, told.lags, told.lags_ms, strict=True):
        at_s = now_s - age_ms / 1000
        if lag >= 0:
            run.append(Point(at_s, lag, lag_ms / 1000 if lag_ms >= 0 else None))
        elif run:
            # The lag held until it became unknown.
            runs.append([*run, run[-1]._replace(at_s=at_s)])
            run = []
    return [*runs, run] if run else runs


def joined(told: Iterable[Sequence[Run]], since_s: float) -> list[Run]:
    """The runs of all brokers from then on, one after another: a group has one coordinator at a
    time."""
    found: list[Run] = []
    until_s = since_s
    for run in sorted((run for runs in told for run in runs), key=lambda run: run[0].at_s):
        if run[-1].at_s >= until_s:
            behind = bisect_right(run, until_s, key=_at_s)
            begin = [_at(run, until_s)] if run[0].at_s <= until_s else []
            found.append([*begin, *run[behind:]])
            until_s = run[-1].at_s
    return found


def points(runs: Sequence[Run]) -> list[Point]:
    """With one without a lag where a gap begins."""
    found: list[Point] = []
    for run in runs:
        if found:
            found.append(Point(found[-1].at_s, None, None))
        found += run
    return found


def at_steps(
    runs: Sequence[Run], step_s: float, now_s: float, begin_s: float | None = None
) -> list[Point]:
    """The most of each step, from the first that is known on; a step begins at a multiple of its
    length, the first one at ``begin_s``, where nothing is known of the time before."""
    if not runs:
        return []
    first = int(runs[0][0].at_s // step_s)
    found = [Point(at * step_s, None, None) for at in range(first, int(now_s // step_s) + 1)]
    for run in runs:
        begin, end = run[0].at_s, run[-1].at_s
        for at in range(int(begin // step_s) - first, int(end // step_s) - first + 1):
            if at < len(found):
                left, right = max(begin, found[at].at_s), min(end, found[at].at_s + step_s)
                inner = run[bisect_left(run, left, key=_at_s) : bisect_right(run, right, key=_at_s)]
                for one in (_at(run, left), *inner, _at(run, right)):
                    found[at] = _most(found[at], one)
    if begin_s is not None:
        found[0] = found[0]._replace(at_s=max(begin_s, found[0].at_s))
    return found


def fitting_step_s(span_s: float, rows_max: int) -> float:
    """The shortest usual step by which the time takes no more rows."""
    for step_s in STEPS_S:
        if span_s / step_s <= rows_max:
            return step_s
    return DAY_S


def sparkline(values: Sequence[float | None]) -> str:
    """A bar for each, of the greatest; a blank for what is unknown."""
    most = max((one for one in values if one is not None), default=0)
    return "".join(
        " " if one is None else SPARKS[round((len(SPARKS) - 1) * one / most)] if most else SPARKS[0]
        for one in values
    )


def _at_s(point: Point) -> float:
    return point.at_s


def _at(run: Run, at_s: float) -> Point:
    """Within the run."""
    behind = bisect_right(run, at_s, key=_at_s)
    if behind == len(run):
        return run[-1]._replace(at_s=at_s)
    left, right = run[behind - 1], run[behind]
    share = (at_s - left.at_s) / (right.at_s - left.at_s)
    return Point(
        at_s, _between(left.lag, right.lag, share), _between(left.lag_s, right.lag_s, share)
    )


def _between(left: float | None, right: float | None, share: float) -> float | None:
    return left if left is None or right is None else left + share * (right - left)


def _most(one: Point, other: Point) -> Point:
    return Point(one.at_s, _greater(one.lag, other.lag), _greater(one.lag_s, other.lag_s))


def _greater(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
