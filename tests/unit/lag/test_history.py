"""Log ends over time: interpolation, what is left out, pauses, truncation, bounds."""

from bisect import bisect_right
from itertools import accumulate
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrklog.lag import history as module
from pyrklog.lag.history import TIERS, History, Point, TierShape, restored

START = 1_700_000_000_000
FINE = TIERS[0]
HOUR = 3_600_000
DAY = 24 * HOUR


def fed(samples: list[tuple[int, int]]) -> History:
    """A history of samples (ms since the start, log end), each at most a second after a look that
    found nothing new."""
    first, *rest = samples
    history = History(START + first[0], first[1])
    for at, end in rest:
        if end != history.end:
            history.add(START + at, end, unmoved_ms=START + at - 1000)
    return history


def seconds(history: History, offset: int, now: int) -> float:
    age = history.age(offset, START + now, START + now)
    assert not age.is_least
    return age.ms / 1000


def steady(rate: int, duration_s: int) -> History:
    return fed([(at * 1000, at * rate) for at in range(duration_s + 1)])


def test_a_steady_rate_gives_the_seconds() -> None:
    history = steady(rate=100, duration_s=600)
    assert seconds(history, 60_000 - 4_150, 600_000) == pytest.approx(41.5, abs=0.2)
    assert seconds(history, 0, 600_000) == pytest.approx(600, abs=0.2)


def test_a_steady_rate_takes_few_points() -> None:
    assert steady(rate=1000, duration_s=1800).points < 20


def test_an_offset_at_the_log_end_has_just_been_left() -> None:
    history = steady(rate=10, duration_s=60)
    assert history.age(600, START + 60_400, START + 60_000).ms == 400


def test_where_the_log_ended_so_long_ago() -> None:
    history = steady(rate=100, duration_s=1800)
    now = START + 1_800_000
    for back_s, close in ((0, 1), (1, 21), (60, 21), (899, 21), (1500, 210)):
        found = history.past(back_s * 1000, now)
        assert found.age_ms == back_s * 1000
        assert found.end == pytest.approx(100 * (1800 - back_s), abs=close)
    assert history.past(HOUR, now) == (1_800_000, 0), "it begins then"
    assert history.past(60_000, now + HOUR).end == 180_000, "nothing has come since"


def test_log_end_of_a_pause_is_that_before_it() -> None:
    history = fed([(0, 0), (1000, 100), (HOUR, 200), (HOUR + 1000, 300)])
    assert history.past(30 * 60_000, START + HOUR + 1000).end == pytest.approx(100, abs=1)
    assert history.past(1000, START + HOUR + 1000).end == 200
    still = History(START, 7)
    assert still.past(5000, START + 60_000) == (5000, 7)
    assert still.past(60_000, START + 5000) == (5000, 7)


def test_a_pause_is_no_slow_stretch() -> None:
    """What is appended after an hour of silence is new."""
    history = fed([(0, 0), (1000, 100), (HOUR, 200)])
    assert seconds(history, 100, HOUR + 5000) == pytest.approx(6, abs=1)
    assert seconds(history, 50, HOUR + 5000) == pytest.approx((HOUR + 4500) / 1000, abs=1)


def test_a_burst_between_pauses_is_not_smeared_over_them() -> None:
    samples = [(0, 0), (1000, 10), (HOUR, 20), (2 * HOUR, 30), (9 * HOUR, 40)]
    history = fed(samples)
    assert seconds(history, 20, 9 * HOUR) == pytest.approx(7 * HOUR / 1000, abs=62)
    assert seconds(history, 15, 9 * HOUR) == pytest.approx(8 * HOUR / 1000, abs=62)


def test_an_offset_from_before_the_history_is_at_least_so_old() -> None:
    history = History(START, 500)
    assert history.age(400, START + 7000, START + 7000) == (7000, True)
    history.add(START + 9000, 700, unmoved_ms=START + 8000)
    assert history.age(400, START + 10_000, START + 9000) == (10_000, True)
    assert history.age(500, START + 10_000, START + 9000) == (2000, False)


def test_each_tier_reaches_back_as_far_as_it_is_to() -> None:
    """Fourteen days at a rate that changes each five minutes, looked at each thirty seconds."""
    rates = (5, 50, 10, 200)
    ends = list(accumulate(rates[at // 300 % 4] * 30 for at in range(0, 14 * 86_400, 30)))
    history = fed([(at * 30_000, end) for at, end in enumerate(ends)])
    now = (len(ends) - 1) * 30_000
    for ago, off_by in ((600, 30.2), (5 * 3600, 32), (13 * 86_400, 390)):
        offset = ends[-1 - ago // 30]
        assert seconds(history, offset, now) == pytest.approx(ago, abs=off_by)
    assert history.points <= sum(shape.points_max for shape in TIERS)


def test_a_tier_forgets_what_is_behind_its_span() -> None:
    ends = list(accumulate(1 if at % 2 else 1000 for at in range(4000)))  # no line fits
    history = fed([(at * 1000, end) for at, end in enumerate(ends)])
    fine = history.tiers[0]
    assert len(fine.times) <= FINE.points_max
    assert fine.times[1] >= START + 3_999_000 - FINE.span_ms - 2000
    last = Point(history.at_ms, history.end)
    assert fine.left_at(0, last) is None
    assert fine.left_at(history.end - 1, last) is not None


def test_truncation_cuts_what_is_above() -> None:
    history = steady(rate=100, duration_s=100)
    history.add(START + 101_000, 6000, unmoved_ms=START + 100_000)
    history.add(START + 102_000, 6100, unmoved_ms=START + 101_000)
    assert seconds(history, 6050, 102_000) == pytest.approx(0.5, abs=1)
    assert seconds(history, 3000, 102_000) == pytest.approx(72, abs=1)


def test_truncation_below_all_that_is_known() -> None:
    history = fed([(0, 500), (1000, 600)])
    history.add(START + 2000, 100, unmoved_ms=START + 1000)
    history.add(START + 3000, 200, unmoved_ms=START + 2000)
    assert history.age(50, START + 4000, START + 3000).is_least
    assert seconds(history, 150, 4000) <= 4


def test_halving_keeps_the_newer_half() -> None:
    history = fed([(at * 1000, at * at) for at in range(800)])
    before = history.points
    forgotten = history.halve()
    assert 0 < forgotten == before - history.points
    assert seconds(history, 798 * 798, 799_000) == pytest.approx(1, abs=0.3)
    assert history.age(0, START + 799_000, START + 799_000).is_least


@pytest.mark.parametrize("shift_ms", [0, -5000, DAY])
def test_a_dump_makes_the_same_history_again(shift_ms: int) -> None:
    history = fed([(at * 1000, at * at) for at in range(900)])
    again = restored(history.dump(), shift_ms)
    now = START + 900_000
    for offset in range(0, 899 * 899, 1009):
        before, after = history.age(offset, now, now), again.age(offset, now + shift_ms, now)
        assert before == after
    assert again.end == history.end


def test_a_history_that_has_not_moved_is_dumped_too() -> None:
    again = restored(History(START, 7).dump(), 1000)
    assert (again.first, again.end, again.tiers) == ((START + 1000, 7), 7, ())


@pytest.mark.parametrize(
    "tiers",
    [
        [([2, 1], [1, 2])],
        [([1, 2], [2, 1])],
        [([1, 2], [1])],
        [([], [])],
        [([1], [1]), ([1], [1])],
    ],
)
def test_what_no_history_can_be_is_refused(tiers: list[tuple[list[int], list[int]]]) -> None:
    with pytest.raises(ValueError, match=r"go back|tiers"):
        restored(tiers, 0)


STEPS = st.lists(
    st.tuples(st.integers(1000, 30_000), st.one_of(st.integers(0, 3), st.integers(0, 10**6))),
    min_size=2,
    max_size=120,
)


def one_tiered(shape: TierShape, steps: list[tuple[int, int]]) -> tuple[History, list[Point]]:
    """A history of the one tier, and all samples that were taken."""
    samples = [Point(START, 0)]
    with patch.object(module, "TIERS", (shape,)):
        history = History(*samples[0])
        for wait, more in steps:
            at, end = samples[-1].at_ms + wait, samples[-1].end + more
            if more:
                history.add(at, end, unmoved_ms=samples[-1].at_ms)
            samples.append(Point(at, end))
    return history, samples


@given(STEPS, st.sampled_from([0, 200, 5000]))
def test_no_time_is_off_by_more_than_the_tolerance(
    steps: list[tuple[int, int]], tolerance_ms: int
) -> None:
    shape = TierShape(10 * DAY, 1000, tolerance_ms, 10_000)
    history, samples = one_tiered(shape, steps)
    ends = [one.end for one in samples]
    for offset in {end + more for end in ends for more in (-1, 0, 1)}:
        above = bisect_right(ends, offset)
        if offset >= 0 and 0 < above < len(ends):
            left_at = history.tiers[0].left_at(offset, Point(history.at_ms, history.end))
            assert left_at is not None
            assert samples[above - 1].at_ms - tolerance_ms - 1 <= left_at
            assert left_at <= samples[above].at_ms + tolerance_ms + 1


@given(STEPS)
def test_a_tier_that_takes_fewer_samples_is_off_by_its_interval(
    steps: list[tuple[int, int]],
) -> None:
    shape = TierShape(10 * DAY, 10_000, 2000, 10_000)
    history, samples = one_tiered(shape, steps)
    longest = max(wait for wait, _ in steps)
    ends = [one.end for one in samples]
    for offset in ends:
        above = bisect_right(ends, offset)
        if 0 < above < len(ends):
            left_at = history.tiers[0].left_at(offset, Point(history.at_ms, history.end))
            assert left_at is not None
            off_by = shape.interval_ms + shape.tolerance_ms + longest
            assert abs(left_at - samples[above - 1].at_ms) <= off_by
