"""Both formats are read by prometheus-client's own parsers, whatever the labels are."""

from collections.abc import Callable, Iterable, Iterator
from math import inf, nan
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.exposition import generate_latest as as_text
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics.exposition import ALLOWUTF8, CONTENT_TYPE_LATEST
from prometheus_client.openmetrics.exposition import generate_latest as as_openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.registry import Collector

from pyrklog.observability.detail_table import DETAIL
from pyrklog.observability.exposition import render
from pyrklog.observability.latency_samples import all_of_times, of_times
from pyrklog.observability.metric_table import BUILD
from pyrklog.observability.samples import GroupReadings, Readings, Sample, of_broker, of_group
from pyrklog.observability.tally import Tally
from pyrklog.protocol.lag import PartitionLag
from tests.support.latencies import histogram, times

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
SAMPLES = of_broker(
    {"requests.Produce": 3, "requests.Fetch": 4, "fetched_bytes.copy": 5, "unwritten_bytes.0": 6},
    Tally(*range(14)),
    Readings(2, 1, 1, 3, 1.5, 4096, 1.7e9),
    ["/data"],
    times=of_times(times({"request.Produce.served": histogram(60_000, 10**9)}), {0: "/data"}),
)
Parse = Callable[[str], Iterable[Family]]


@pytest.mark.parametrize(
    ("accept", "content_type", "parse"),
    [
        ("*/*", "text/plain", parse_text),
        ("", "text/plain", parse_text),
        (OPENMETRICS, "application/openmetrics-text", parse_openmetrics),
        (f"{OPENMETRICS};q=0.5,text/plain;version=0.0.4;q=0.2", "application/", parse_openmetrics),
        ("application/openmetrics-text;version=x", "application/", parse_openmetrics),
        (f"a/b, {OPENMETRICS};escaping=values", "application/", parse_openmetrics),
        ("text/plain;version=x;escaping=dots", "text/plain", parse_text),
        (",;=,", "text/plain", parse_text),
    ],
)
def test_the_scraper_chooses_the_format(accept: str, content_type: str, parse: Parse) -> None:
    told = render(SAMPLES, accept, "1.2.3")
    assert told.content_type.startswith(content_type)
    found = {
        (one.name, *one.labels.values()): one.value
        for family in parse(told.body.decode())
        for one in family.samples
    }
    assert found["pyrklog_build_info", "1.2.3"] == 1
    assert found["kafka_network_requestmetrics_requests_total", "Fetch"] == 4
    assert found["pyrklog_fetched_bytes_total", "copy"] == 5
    assert found["pyrklog_log_dir_unwritten_bytes", "/data"] == 6
    assert found["process_cpu_seconds_total",] == 1.5
    assert len(found) == len(SAMPLES) + 1


@pytest.mark.parametrize("parse", [parse_text, parse_openmetrics])
@pytest.mark.parametrize("name", ['g"}\n# EOF\nevil 1', "\\", "\\n", "é😀", "a\r\nb", "{}"])
def test_hostile_names_stay_labels(name: str, parse: Parse) -> None:
    samples = of_group(GroupReadings(name, 1, [PartitionLag("t", 0, 7)]))
    accept = OPENMETRICS if parse is parse_openmetrics else ""
    families = list(parse(render(samples, accept).body.decode()))
    assert [family.name for family in families] == [
        "kafka_consumergroup_members",
        "kafka_consumergroup_current_offset",
    ]
    assert {one.labels["consumergroup"] for family in families for one in family.samples} == {name}


class _Theirs(Collector):
    """The same samples for prometheus-client."""

    def __init__(self, samples: Iterable[Sample], version: str) -> None:
        self._samples = samples
        self._version = version

    def collect(self) -> Iterator[Family]:
        yield InfoMetricFamily(
            BUILD.name.removesuffix("_info"), BUILD.help, {"version": self._version}
        )
        families: dict[str, Any] = {}
        makers: dict[str, Any] = {
            "counter": CounterMetricFamily,
            "gauge": GaugeMetricFamily,
            "histogram": HistogramMetricFamily,
        }
        for metric, labels, value in self._samples:
            if metric.family not in families:
                families[metric.family] = makers[metric.kind](metric.family, metric.help)
            named = dict(zip(metric.labels, labels, strict=True))
            families[metric.family].add_sample(metric.name, named, value)
        yield from families.values()


NUMBERS = [
    0,
    1,
    -1,
    0.1,
    1e-9,
    999_999,
    1e6,
    1_234_567,
    1_234_567.5,
    1.7e9,
    2**53,
    1e16,
    1e22,
    -1e8,
]


@pytest.mark.parametrize(
    "samples",
    [
        SAMPLES,
        all_of_times(times({"write.0": histogram(1, 10**7)}), {0: "/a"}),
        of_group(GroupReadings('g"\\\n', 1, [PartitionLag("t", 0, 7), PartitionLag("t", 1, 8)])),
        [Sample(DETAIL["members"], (f"g{one}",), one) for one in (*NUMBERS, inf, -inf, nan)],
        [],
    ],
)
def test_the_text_is_that_of_prometheus_client(samples: list[Sample]) -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Theirs(samples, "1.2.3"))
    plain, told = render(samples, "", "1.2.3"), render(samples, OPENMETRICS, "1.2.3")
    assert plain.body.decode() == as_text(registry, escaping=ALLOWUTF8).decode()
    theirs: bytes = as_openmetrics(registry, escaping=ALLOWUTF8)  # type: ignore[no-untyped-call]
    assert told.body.decode() == theirs.decode()
    assert (plain.content_type, told.content_type) == (
        CONTENT_TYPE_PLAIN_0_0_4,
        CONTENT_TYPE_LATEST,
    )
