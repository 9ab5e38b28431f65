"""OpenTelemetry: OTLP over HTTP, by OpenTelemetry's own exporter, which only this module knows.

Its variables of the environment hold (``OTEL_EXPORTER_OTLP_METRICS_HEADERS``, ``..._CERTIFICATE``,
``..._COMPRESSION``, ``..._TIMEOUT``). Names are those of ``/metrics``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
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
from pyrklog.observability.metric_table import Metric
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
        for metric, labels, value in samples:
            attributes = dict(zip(metric.labels, labels, strict=True))
            start = int(self._started_at * NS) if metric.kind == "counter" else 0
            points.setdefault(metric, []).append(
                NumberDataPoint(attributes, start, int(at * NS), value)
            )
        found = [_metric(metric, of_metric) for metric, of_metric in points.items()]
        scope = ScopeMetrics(InstrumentationScope("pyrklog", __version__), found, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])


def _metric(metric: Metric, points: Sequence[NumberDataPoint]) -> OtlpMetric:
    if metric.kind == "counter":
        total = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        return OtlpMetric(metric.name, metric.help, "", total)
    return OtlpMetric(metric.name, metric.help, "", Gauge(points))
