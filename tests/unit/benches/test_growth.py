import random

import pytest

from benches import growth


def test_the_order_of_a_pair_alternates() -> None:
    ran = []

    def run(name: str, figure: float) -> float:
        ran.append(name)
        return figure

    pairs = growth.alternate(3, lambda: run("quiet", 1.0), lambda: run("disturbed", 2.0))
    assert pairs == [(1.0, 2.0)] * 3
    assert ran == ["quiet", "disturbed", "disturbed", "quiet", "quiet", "disturbed"]


def test_growth_is_the_median_of_the_pairs_ratios() -> None:
    found = growth.of([(1.0, 2.0), (10.0, 11.0), (2.0, 2.4)])
    assert found.median == pytest.approx(1.2)
    assert found.low == pytest.approx(1.1)
    assert found.high == pytest.approx(2.0)


def test_one_pair_has_no_spread() -> None:
    assert growth.of([(2.0, 3.0)]) == growth.Growth(1.5, 1.5, 1.5)


@pytest.mark.parametrize("pairs", [[], [(0.0, 1.0)]])
def test_growth_without_a_base_is_undefined(pairs: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="no growth"):
        growth.of(pairs)


def test_confidence_interval_covers_the_median_at_its_level() -> None:
    """About 95 % of 200 samples of a known distribution must; 85 % would be a bug, 100 % luck."""
    choices = random.Random(1)
    growth_resamples, growth._RESAMPLES = growth._RESAMPLES, 500
    try:
        held = 0
        for _ in range(200):
            sample = [choices.lognormvariate(0, 0.3) for _ in range(10)]
            low, high = growth.interval(sample, choices)
            held += low <= 1.0 <= high
    finally:
        growth._RESAMPLES = growth_resamples
    assert 0.88 <= held / 200 < 1.0


def test_interval_contains_one_only_without_real_growth() -> None:
    choices = random.Random(2)
    quiet = [choices.uniform(1, 1.3) for _ in range(10)]
    same = growth.of([(one, choices.uniform(1, 1.3)) for one in quiet])
    assert same.low <= 1.0 <= same.high
    grown = growth.of([(one, 2 * choices.uniform(1, 1.3)) for one in quiet])
    assert grown.low > 1.0
