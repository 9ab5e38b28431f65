"""The lag of one group over time: what is kept, what is forgotten, what is told."""

import math
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from pyrklog.lag.lag_history import (
    LAG_TIERS,
    NO_LAG,
    TOLERANCE,
    Lag,
    LagColumns,
    LagHistory,
    restored,
)

START = 1_700_000_000_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

Lags = Callable[[int], Lag]


def watched(lags: Lags, seconds: int, every: int = 1) -> LagHistory:
    history = LagHistory(START, lags(0))
    for at in range(every, seconds + 1, every):
        history.observe(START + at * 1000, lags(at))
    return history


def told(columns: LagColumns, at_ms: int) -> Lag:
    """By the straight line between two points."""
    for left, right in pairwise(zip(*columns, strict=True)):
        if left[0] <= at_ms <= right[0]:
            if min(*left[1:], *right[1:]) < 0:
                return Lag(*(right if at_ms == right[0] else left)[1:])
            share = (at_ms - left[0]) / (right[0] - left[0])
            return Lag(*(a + share * (b - a) for a, b in zip(left[1:], right[1:], strict=True)))
    raise AssertionError("outside of the history")


def rising(at: int) -> Lag:
    return Lag(10 * at, 1000 * at)


def jumping(at: int) -> Lag:
    return Lag(at * 7919 % 1000, at * 104_729 % 60_000)


def test_a_lag_that_stays_takes_no_points() -> None:
    history = watched(lambda _: Lag(5, 1000), 3600)
    assert history.points == 0
    assert list(history.columns(0).times) == [START, START + HOUR_MS]


def test_a_steady_rise_takes_few_points_and_is_told_exactly() -> None:
    history = watched(rising, 6 * 3600, every=10)
    assert history.points <= 3 * len(LAG_TIERS)
    columns = history.columns(0)
    for at in (10, 600, 5000, 20_000):
        found = told(columns, START + at * 1000)
        assert found.records == pytest.approx(10 * at, rel=TOLERANCE)
        assert found.ms == pytest.approx(1000 * at, rel=TOLERANCE, abs=5000)


def test_each_sample_of_the_last_minutes_is_within_the_tolerance() -> None:
    """The past quarter of an hour, at 1 s, of a lag that nobody can foretell."""
    chance = random.Random(7)
    lags = [Lag(chance.randrange(1000), chance.randrange(60_000)) for _ in range(881)]
    history = watched(lags.__getitem__, 880)
    columns = history.columns(0)
    for at, lag in enumerate(lags):
        found = told(columns, START + at * 1000)
        assert found.records == pytest.approx(lag.records, rel=TOLERANCE, abs=0.001)
        assert found.ms == pytest.approx(lag.ms, rel=TOLERANCE, abs=501)


def test_what_is_older_has_the_most_of_each_interval() -> None:
    """A spike of one second is still there after hours, and after days."""
    spike = 5000

    def lags(at: int) -> Lag:
        return Lag(900_000, 70_000) if at == spike else Lag(at % 3, 0)

    history = LagHistory(START, lags(0))
    for at in range(1, 9 * 3600):
        history.observe(START + at * 1000, lags(at))
    columns = history.columns(0)
    assert max(columns.records) == 900_000
    [at_ms] = [at for at, one in zip(columns.times, columns.records, strict=True) if one > 9]
    assert abs(at_ms - START - spike * 1000) <= LAG_TIERS[-1].interval_ms


def test_a_tier_reaches_back_for_its_span_and_is_bounded() -> None:
    chance = random.Random(7)
    history = LagHistory(START, Lag(0, 0))
    for at in range(1, 20 * DAY_MS // 10_000):
        history.observe(START + at * 10_000, Lag(chance.randrange(10**6), chance.randrange(10**6)))
    end_ms = history.last.at_ms
    for tier, shape in zip(history.tiers, LAG_TIERS, strict=True):
        assert len(tier.times) <= shape.points_max
        assert shape.span_ms * 0.85 <= end_ms - tier.times[0] <= shape.span_ms * 1.1
    steps = [later - one for one, later in pairwise(history.columns(end_ms - 10 * MINUTE_MS).times)]
    assert sum(steps) / len(steps) < 12_000


def test_a_rest_after_a_spike_is_no_slope() -> None:
    """Read while it lasts, and after it."""
    history = LagHistory(START, Lag(0, 0))
    for at, lag in ((1, 0), (2, 1000), (3, 10)):
        history.observe(START + at * 1000, Lag(lag, 0))
    rested_ms = START + 10 * HOUR_MS
    history.observe(rested_ms, Lag(10, 0))
    for _ in range(2):
        columns = history.columns(0)
        for ago_ms in (HOUR_MS, 5 * HOUR_MS, 9 * HOUR_MS):
            assert told(columns, rested_ms - ago_ms).records == pytest.approx(10, abs=0.1)
        history.observe(rested_ms + 1000, Lag(500, 0))


def test_what_is_unknown_is_no_line() -> None:
    def lags(at: int) -> Lag:
        return NO_LAG if 100 <= at < 200 else rising(at)

    columns = watched(lags, 300).columns(0)
    for at in (98, 202):
        assert told(columns, START + at * 1000).records == pytest.approx(10 * at, rel=TOLERANCE)
    for at in (100, 150, 198):
        assert told(columns, START + at * 1000) == NO_LAG


def test_a_history_that_nobody_goes_on_with_breaks_off() -> None:
    history = watched(rising, 100)
    history.break_off()
    history.break_off()
    history.observe(START + DAY_MS, rising(50))
    history.observe(START + DAY_MS + 1000, rising(51))
    columns = history.columns(0)
    assert told(columns, START + 99_000).records == pytest.approx(990, rel=TOLERANCE)
    assert told(columns, START + HOUR_MS) == NO_LAG
    assert told(columns, START + DAY_MS + 1000).records == 510


def test_an_unmoved_history_breaks_off_too() -> None:
    history = LagHistory(START, Lag(3, 0))
    history.observe(START + HOUR_MS, Lag(3, 0))
    history.break_off()
    history.observe(START + 2 * HOUR_MS, Lag(3, 0))
    columns = history.columns(0)
    assert told(columns, START + HOUR_MS // 2) == (3, 0)
    assert told(columns, START + HOUR_MS + MINUTE_MS) == NO_LAG


def test_a_clock_that_stands_still_moves_nothing_back() -> None:
    history = watched(rising, 100)
    for at in (100, 50, 0):
        history.observe(START + at * 1000, Lag(at, 0))
    times = history.columns(0).times
    assert all(one < two for one, two in pairwise(times))


def test_one_asks_for_the_last_part() -> None:
    history = watched(jumping, 3600)
    since = START + 3_000_500
    times = history.columns(since).times
    assert times[0] <= since < times[1]


def test_halving_forgets_the_older_half() -> None:
    history = watched(jumping, 800)
    before = history.points
    forgotten = history.halve()
    assert forgotten == before - history.points > 0
    assert history.columns(0).times[-1] == START + 800_000


@pytest.mark.parametrize("lags", [rising, jumping, lambda _: Lag(4, 2)])
def test_a_dump_is_the_history(lags: Lags) -> None:
    history = watched(lags, 2000)
    copy = restored(history.dump(), 5000)
    before, after = history.columns(0), copy.columns(0)
    assert [one + 5000 for one in before.times] == list(after.times)
    assert list(before.records) == list(after.records)
    assert list(before.ms) == list(after.ms)
    copy.observe(START + 2_006_000, Lag(1, 1))
    assert copy.columns(0).records[-1] == 1


@pytest.mark.parametrize(
    "tiers",
    [
        [],
        [LagColumns([], [], [])],
        [LagColumns([1, 1], [0, 0], [0, 0])],
        [LagColumns([2, 1], [0, 0], [0, 0])],
        [LagColumns([1], [-2], [0])],
        [LagColumns([1], [0], [math.inf])],
        [LagColumns([1], [math.nan], [0])],
        2 * [LagColumns([1], [0], [0])],
    ],
)
def test_no_history_is_made_of_what_makes_no_sense(tiers: list[LagColumns]) -> None:
    with pytest.raises(ValueError, match=r"tiers|times"):
        restored(tiers, 0)
