import pytest

from benches import cases, goals
from benches.effort import METRICS
from benches.goals import Figures, Goal, verdict


def test_goals_include_their_bound() -> None:
    assert Goal("c", "m", ">=", 2.0, True).holds(2.0)
    assert not Goal("c", "m", ">=", 2.0, True).holds(1.99)
    assert Goal("c", "m", "<=", 80.0, False).holds(80.0)
    assert not Goal("c", "m", "<=", 80.0, False).holds(80.1)


def test_every_goal_belongs_to_a_figure_that_is_shown() -> None:
    for goal in goals.GOALS:
        assert goal.metric in cases.SHOWN[goal.case], goal


def test_no_figure_has_two_goals() -> None:
    judged = [(goal.case, goal.metric) for goal in goals.GOALS]
    assert len(judged) == len(set(judged))


@pytest.mark.parametrize(
    ("case", "metric", "figures", "expected"),
    [
        ("produce16k", "mb_per_s", Figures(700, 5.0), "reached (>= 5x)"),
        ("produce16k", "mb_per_s", Figures(690, 4.9), "missed (>= 5x)"),
        ("produce16k", "mb_per_s", Figures(690, 4.9, 811), "at the floor (>= 5x)"),
        ("produce16k", "mb_per_s", Figures(690, 4.9, 812), "missed (>= 5x)"),
        ("produce16k", "mb_per_s", Figures(690, 4.9, None, 99), "missed (>= 5x)"),
        ("produce1k", "mb_per_s", Figures(90, 3.9, None, 96), "reached: all cores full (>= 4x)"),
        ("produce1k", "mb_per_s", Figures(90, 3.9, None, 94), "missed (>= 4x)"),
        ("produce16k", "cpu_s_per_gb", Figures(1.15, 0.2, 1.0), "at the floor (<= 0.167x)"),
        ("produce16k", "cpu_s_per_gb", Figures(1.16, 0.2, 1.0), "missed (<= 0.167x)"),
        ("lag", "newest_read_mb", Figures(0.0, None), "reached (<= 0.5)"),
        ("produce16k", "mb_per_s", Figures(700, None), ""),
        ("produce16k", "p50_ms", Figures(1, 1.0), ""),
    ],
)
def test_verdict_compares_the_median_with_goal_and_floor(
    case: str, metric: str, figures: Figures, expected: str
) -> None:
    assert verdict(case, metric, figures) == expected


def test_names_and_metrics_are_known_once() -> None:
    names = [case.name for case in cases.ALL]
    assert len(names) == len(set(names))
    assert len(METRICS) == len(set(METRICS))
    for case in cases.ALL:
        assert set(case.shown) <= set(METRICS), case.name
