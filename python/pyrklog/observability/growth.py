"""How counters and histograms grow from one report to the next. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyrklog.observability.samples import Sample

SeriesKey = tuple[str, tuple[str, ...]]
"""Name of the metric, and values of its labels."""


class Growth:
    """By how much counters and parts of histograms have grown from one report to the next."""

    def __init__(self) -> None:
        self._last: Mapping[SeriesKey, float] = {}

    def take(self, samples: Sequence[Sample]) -> dict[SeriesKey, float]:
        """Since the last call; the first time since the start of the broker."""
        now = {
            (one.metric.name, one.labels): one.value
            for one in samples
            if one.metric.kind != "gauge"
        }
        grown = {key: value - self._last.get(key, 0.0) for key, value in now.items()}
        self._last = now
        return grown
