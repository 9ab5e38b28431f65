"""Samples as text, in the format that the scraper asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.exposition import generate_latest as as_text
from prometheus_client.openmetrics.exposition import ALLOWUTF8, CONTENT_TYPE_LATEST
from prometheus_client.openmetrics.exposition import generate_latest as as_openmetrics
from prometheus_client.registry import Collector

from pyrklog.observability.client_samples import ClientFamily
from pyrklog.observability.metric_table import BUILD, Metric
from pyrklog.observability.samples import Sample

OPENMETRICS = "application/openmetrics-text"


class Exposition(NamedTuple):
    body: bytes
    content_type: str


class _Samples(Collector):
    def __init__(self, samples: Iterable[Sample], version: str | None) -> None:
        self._samples = samples
        self._version = version

    def collect(self) -> Iterator[Family]:
        """A family's samples come together, as both formats demand."""
        if self._version is not None:
            name = BUILD.name.removesuffix("_info")
            yield InfoMetricFamily(name, BUILD.help, {"version": self._version})
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for metric, labels, value in self._samples:
            family = families.get(metric.name)
            if family is None:
                family = families[metric.name] = _family(metric)
            family.add_metric(labels, value)
        yield from families.values()


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
    if metric.kind == "counter":
        return CounterMetricFamily(metric.family, metric.help, labels=metric.labels)
    return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)


class _Clients(Collector):
    def __init__(self, families: Iterable[ClientFamily]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        for name, kind, help_, samples in self._families:
            family = Family(name.removesuffix("_total") if kind == "counter" else name, help_, kind)
            for one in samples:
                family.add_sample(name, one.labels, one.value)
            yield family


def render(
    samples: Sequence[Sample],
    accept: str,
    version: str | None = None,
    clients: Iterable[ClientFamily] = (),
) -> Exposition:
    """``accept`` is the header of the request; ``version`` adds the metric of the build, and
    ``clients`` come last."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(samples, version))
    registry.register(_Clients(clients))
    # Names are plain, so all ways to escape them are the same: this one costs least.
    if wants_openmetrics(accept):
        body: bytes = as_openmetrics(registry, escaping=ALLOWUTF8)  # type: ignore[no-untyped-call]
        return Exposition(body, CONTENT_TYPE_LATEST)
    return Exposition(as_text(registry, escaping=ALLOWUTF8), CONTENT_TYPE_PLAIN_0_0_4)


def wants_openmetrics(accept: str) -> bool:
    return any(one.partition(";")[0].strip() == OPENMETRICS for one in accept.split(","))
