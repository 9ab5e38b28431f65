"""Up, down, flat: by the smallest lag of each window."""

import pytest

from pyrklog.lag.trends import WINDOW_SECONDS, Trends
from pyrklog.protocol.lag import Trend


def windows(*lags: list[int]) -> Trend:
    trends: Trends[str] = Trends()
    for number, some in enumerate(lags):
        trends.begin(number * WINDOW_SECONDS)
        for lag in some:
            trend = trends.take("p", lag)
    return trend


@pytest.mark.parametrize(
    ("lags", "trend"),
    [
        ([[100]], Trend.UNKNOWN),
        ([[100, 900], [105, 950]], Trend.FLAT),
        ([[100], [110]], Trend.FLAT),
        ([[100], [111]], Trend.UP),
        ([[100], [89]], Trend.DOWN),
        ([[100], [90]], Trend.FLAT),
        ([[0], [1]], Trend.UP),
        ([[1], [0]], Trend.DOWN),
        ([[0], [0]], Trend.FLAT),
        ([[100], [200], [201]], Trend.FLAT),
        ([[5000, 100], [4000, 120]], Trend.UP),
    ],
)
def test_trends(lags: list[list[int]], trend: Trend) -> None:
    assert windows(*lags) is trend


def test_what_is_not_seen_any_more_is_forgotten() -> None:
    trends: Trends[str] = Trends()
    for number in range(100):
        trends.begin(number * WINDOW_SECONDS)
        trends.take(f"p{number}", 1)
    assert len(trends) == 2
