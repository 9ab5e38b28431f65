"""The growth of a figure when something is added: alternating pairs, ratios, an interval."""

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
_RESAMPLES = 10_000
_SEED = 5


@dataclass(frozen=True)
class Growth:
    """Disturbed / quiet. ``low`` and ``high`` bound the median, at :data:`CONFIDENCE`."""

    median: float
    low: float
    high: float


def alternate(
    pairs: int, quiet: Callable[[], float], disturbed: Callable[[], float]
) -> list[tuple[float, float]]:
    """(quiet, disturbed) of each pair. Every second pair runs in reverse order, so that drift
    favours neither."""
    found = []
    for number in range(pairs):
        if number % 2 == 0:
            first, second = quiet(), disturbed()
        else:
            second, first = disturbed(), quiet()
        found.append((first, second))
    return found


def of(pairs: Sequence[tuple[float, float]]) -> Growth:
    """The median of the pairs' ratios, and its bootstrapped interval (percentile method).

    ValueError without a pair, or if a quiet figure is not above 0.
    """
    if not pairs or any(quiet <= 0 for quiet, _ in pairs):
        raise ValueError(f"no growth of {pairs}")
    ratios = [disturbed / quiet for quiet, disturbed in pairs]
    low, high = interval(ratios, random.Random(_SEED))
    return Growth(statistics.median(ratios), low, high)


def interval(values: Sequence[float], choices: random.Random) -> tuple[float, float]:
    """The interval of the values' median, by resampling."""
    medians = sorted(
        statistics.median(choices.choices(values, k=len(values))) for _ in range(_RESAMPLES)
    )
    beyond = int((1 - CONFIDENCE) / 2 * _RESAMPLES)
    return medians[beyond], medians[-1 - beyond]
