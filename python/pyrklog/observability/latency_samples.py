"""Samples of the data plane's histograms of times. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyrklog.observability.latency_table import (
    BOUNDS_NS,
    COARSE_BOUNDS_NS,
    PHASE_SECONDS,
    PHASES,
    READ_SECONDS,
    READ_TIME,
    READS,
    REQUEST_SECONDS,
    REQUEST_TIME,
    REQUESTS,
    WRITE_SECONDS,
    WRITE_TIME,
    WRITES,
    Histogram,
)
from pyrklog.observability.metric_table import NS
from pyrklog.observability.samples import Sample

Times = Mapping[str, Sequence[int]]
"""By name: the counts of buckets, and the sum in nanoseconds."""
INFINITE = "+Inf"
_FINE = frozenset(BOUNDS_NS)
_TEXTS = {bound: str(bound / 1e9) for bound in BOUNDS_NS}


def of_times(times: Times, log_dirs: Mapping[int, str]) -> list[Sample]:
    """Those of ``/metrics``. ``log_dirs``: the label of each directory."""
    if not times:
        return []
    found: list[Sample] = []
    for request in REQUESTS:
        served = times[f"request.{request}.served"]
        found += _histogram(REQUEST_SECONDS, (request,), served, COARSE_BOUNDS_NS)
    for request in REQUESTS:
        for phase in PHASES:
            spent = times[f"request.{request}.{phase}"][-1]
            found.append(Sample(REQUEST_TIME, (request, phase), spent * NS))
    for name, time, count in (("write", WRITE_TIME, WRITES), ("read", READ_TIME, READS)):
        merged = _by_label(times, name, log_dirs)
        found += [Sample(time, (label,), one[-1] * NS) for label, one in merged.items()]
        found += [Sample(count, (label,), sum(one[:-1])) for label, one in merged.items()]
    return found


def all_of_times(times: Times, log_dirs: Mapping[int, str]) -> list[Sample]:
    """Those of ``/metrics/latencies``."""
    found: list[Sample] = []
    for name, one in times.items():
        kind, _, rest = name.partition(".")
        if kind == "request":
            request, _, phase = rest.partition(".")
            found += _histogram(PHASE_SECONDS, (request, phase), one, _FINE)
    for name, histogram in (("write", WRITE_SECONDS), ("read", READ_SECONDS)):
        for label, values in _by_label(times, name, log_dirs).items():
            found += _histogram(histogram, (label,), values, _FINE)
    return found


def _by_label(times: Times, name: str, log_dirs: Mapping[int, str]) -> dict[str, Sequence[int]]:
    """Directories with the same label are added."""
    found: dict[str, Sequence[int]] = {}
    for number, label in log_dirs.items():
        values = times.get(f"{name}.{number}")
        if values is not None:
            before = found.get(label)
            found[label] = values if before is None else added(before, values)
    return found


def added(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Two histograms together."""
    return [mine + theirs for mine, theirs in zip(one, other, strict=True)]


def _histogram(
    histogram: Histogram, labels: tuple[str, ...], values: Sequence[int], bounds: frozenset[int]
) -> Iterator[Sample]:
    below = 0
    for bound, count in zip(BOUNDS_NS, values, strict=False):
        below += count
        if bound in bounds:
            yield Sample(histogram.bucket, (*labels, _TEXTS[bound]), below)
    below += values[len(BOUNDS_NS)]
    yield Sample(histogram.bucket, (*labels, INFINITE), below)
    yield Sample(histogram.number, labels, below)
    yield Sample(histogram.sum, labels, values[-1] * NS)


def quantile(wanted: float, buckets: Mapping[str, float]) -> float | None:
    """As Prometheus' ``histogram_quantile``; ``buckets``: by the label ``le``, cumulative. None
    without any."""
    found = sorted((float(bound), count) for bound, count in buckets.items())
    if not found or found[-1][1] <= 0:
        return None
    rank = wanted * found[-1][1]
    low, below = 0.0, 0.0
    for bound, count in found:
        if count >= rank and count > below:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (rank - below) / (count - below)
        low, below = bound, count
    return low
