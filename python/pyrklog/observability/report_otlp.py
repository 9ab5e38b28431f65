"""OpenTelemetry: OTLP over HTTP, by OpenTelemetry's own exporter, which only this module knows.

Its variables of the environment hold (``OTEL_EXPORTER_OTLP_METRICS_HEADERS``, ``..._CERTIFICATE``,
``..._COMPRESSION``, ``..._TIMEOUT``). Names are those of ``/metrics``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import pairwise

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as OtlpMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from pyrklog import __version__
from pyrklog.observability.metric import Metric
from pyrklog.observability.samples import Sample
from pyrklog.observability.sources import Origin

NS = 1_000_000_000

# Its own words about a failure would go to the broker's standard error.
logging.getLogger("opentelemetry").addHandler(logging.NullHandler())


class OtlpReporter:
    name = "otlp"

    def __init__(self, url: str, origin: Origin) -> None:
        self._exporter = OTLPMetricExporter(endpoint=url)
        self._url = url
        self._started_at = origin.started_at
        self._resource = Resource(
            {
                "service.name": "pyrklog",
                "service.version": __version__,
                "service.namespace": origin.cluster_id,
                "service.instance.id": str(origin.broker),
            }
        )

    def report(self, at: float, samples: Sequence[Sample]) -> None:
        told = self._exporter.export(self._data(at, samples))
        if told is not MetricExportResult.SUCCESS:
            raise OSError(f"{self._url} did not take the metrics")

    def close(self) -> None:
        self._exporter.shutdown()

    def _data(self, at: float, samples: Sequence[Sample]) -> MetricsData:
        points: dict[Metric, list[NumberDataPoint]] = {}
        started_ns, at_ns = int(self._started_at * NS), int(at * NS)
        for metric, labels, value in samples:
            if metric.kind == "histogram":
                continue
            attributes = dict(zip(metric.labels, labels, strict=True))
            start_ns = started_ns if metric.kind == "counter" else 0
            points.setdefault(metric, []).append(
                NumberDataPoint(attributes, start_ns, at_ns, value)
            )
        found = [_metric(metric, of_metric) for metric, of_metric in points.items()]
        found += _histograms(samples, started_ns, at_ns)
        scope = ScopeMetrics(InstrumentationScope("pyrklog", __version__), found, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])


def _metric(metric: Metric, points: Sequence[NumberDataPoint]) -> OtlpMetric:
    if metric.kind == "counter":
        total = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        return OtlpMetric(metric.name, metric.help, "", total)
    return OtlpMetric(metric.name, metric.help, "", Gauge(points))


class _Parts:
    """Of one series of a histogram."""

    def __init__(self) -> None:
        self.buckets: list[tuple[float, int]] = []
        """Bound, and how many times are not above it."""
        self.sum = 0.0
        self.attributes: dict[str, str] = {}

    def point(self, started_ns: int, at_ns: int) -> HistogramDataPoint:
        bounds = [bound for bound, _ in self.buckets]
        below = [0, *(count for _, count in self.buckets)]
        return HistogramDataPoint(
            self.attributes,
            started_ns,
            at_ns,
            count=below[-1],
            sum=self.sum,
            bucket_counts=[count - before for before, count in pairwise(below)],
            explicit_bounds=bounds[:-1],
            min=None,  # type: ignore[arg-type] # not told
            max=None,  # type: ignore[arg-type]
        )


def _histograms(samples: Sequence[Sample], started_ns: int, at_ns: int) -> Iterator[OtlpMetric]:
    found: dict[tuple[str, str], dict[tuple[str, ...], _Parts]] = {}
    for metric, labels, value in samples:
        if metric.kind != "histogram":
            continue
        is_bucket = metric.labels[-1:] == ("le",)
        key = labels[:-1] if is_bucket else labels
        parts = found.setdefault((metric.family, metric.help), {}).setdefault(key, _Parts())
        if is_bucket:
            parts.buckets.append((float(labels[-1]), int(value)))
        elif metric.name.endswith("_sum"):
            parts.sum = value
            parts.attributes = dict(zip(metric.labels, labels, strict=True))
    for (name, help_), series in found.items():
        points = [parts.point(started_ns, at_ns) for parts in series.values()]
        yield OtlpMetric(name, help_, "s", Histogram(points, AggregationTemporality.CUMULATIVE))
