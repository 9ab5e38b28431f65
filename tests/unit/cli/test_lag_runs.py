"""Past lag as rows: gaps, several brokers, steps, bars."""

import pytest

from pyrklog.cli.lag_runs import (
    Point,
    Run,
    at_steps,
    fitting_step_s,
    joined,
    points,
    runs_of,
    sparkline,
)
from pyrklog.protocol.lag import PastLag

NOW = 1_700_000_000.0
"""A multiple of ten seconds."""


def run(*lags: tuple[float, float]) -> Run:
    """Points at so many seconds before now; as many seconds of lag as records."""
    return [Point(NOW - ago, lag, lag) for ago, lag in lags]


def test_ages_become_times_and_what_is_unknown_a_gap() -> None:
    told = PastLag([90_000, 60_000, 50_000, 20_000, 0], [5, 7, -1, 9, 9], [1000, -1, -1, 2500, 0])
    assert runs_of(told, NOW) == [
        [Point(NOW - 90, 5, 1.0), Point(NOW - 60, 7, None), Point(NOW - 50, 7, None)],
        [Point(NOW - 20, 9, 2.5), Point(NOW, 9, 0.0)],
    ]
    assert runs_of(PastLag(), NOW) == []
    assert runs_of(PastLag([10], [-1], [-1]), NOW) == []


def test_brokers_that_coordinated_one_after_another_are_joined() -> None:
    first, second, third = run((90, 1), (60, 4)), run((40, 5), (30, 5)), run((20, 6), (0, 6))
    assert joined([[first, third], [second], []], NOW - 100) == [first, second, third]


def test_what_two_tell_at_once_is_told_once() -> None:
    first, second = run((90, 1), (50, 1)), run((60, 2), (40, 2))
    found = joined([[first], [second]], NOW - 100)
    assert found == [first, run((50, 2), (40, 2))]
    assert joined([[run((90, 1), (10, 1))], [run((60, 2), (40, 2))]], NOW - 100) == [
        run((90, 1), (10, 1))
    ]


def test_only_the_time_that_was_asked_for_is_told() -> None:
    assert joined([[run((100, 0), (50, 50), (0, 50))]], NOW - 75) == [
        run((75, 25), (50, 50), (0, 50))
    ]
    assert joined([[run((100, 0), (90, 0))]], NOW - 75) == []


def test_a_gap_is_a_point_without_a_lag() -> None:
    found = points([run((90, 1), (60, 4)), run((40, 5))])
    assert found == [*run((90, 1), (60, 4)), Point(NOW - 60, None, None), *run((40, 5))]


def test_a_step_has_the_most_of_it() -> None:
    """The spike within a step, the line through one, the gap between two runs."""
    runs = [run((100, 0), (96, 70), (95, 0), (80, 0), (60, 20)), run((30, 3), (0, 3))]
    found = at_steps(runs, 10, NOW)
    assert [(NOW - one.at_s, one.lag) for one in found] == [
        (100, 70),
        (90, 0),
        (80, 10),
        (70, 20),
        (60, 20),
        (50, None),
        (40, None),
        (30, 3),
        (20, 3),
        (10, 3),
        (0, 3),
    ]
    assert [one.lag_s for one in found] == [one.lag for one in found]


def test_the_first_step_begins_where_the_history_does() -> None:
    """Nothing is known of the step's part before it."""
    runs = [run((97, 5), (95, 60), (75, 0))]
    found = at_steps(runs, 10, NOW - 75, NOW - 97)
    assert [(NOW - one.at_s, one.lag) for one in found] == [(97, 60), (90, 45), (80, 15)]
    assert NOW - at_steps(runs, 10, NOW - 75)[0].at_s == 100


def test_seconds_that_are_unknown_stay_so() -> None:
    [found] = at_steps([[Point(NOW, 5, None)]], 10, NOW)
    assert found == Point(NOW, 5, None)
    assert at_steps([], 10, NOW) == []


@pytest.mark.parametrize(
    ("span_s", "step_s"),
    [(40, 1), (41, 2), (900, 30), (3600, 120), (21_600, 600), (14 * 86_400, 43_200), (1e9, 86_400)],
)
def test_the_step_that_fits(span_s: float, step_s: float) -> None:
    assert fitting_step_s(span_s, 40) == step_s


def test_bars() -> None:
    assert sparkline([0, 1, None, 7, 3.5]) == "▁▂ █▅"
    assert sparkline([0, 0, None]) == "▁▁ "
    assert sparkline([]) == ""
