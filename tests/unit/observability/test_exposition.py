"""Both formats are read by prometheus-client's own parsers, whatever the labels are."""

from collections.abc import Callable, Iterable

import pytest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from pyrklog.observability.exposition import render
from pyrklog.observability.samples import GroupReadings, Readings, of_broker, of_group
from pyrklog.observability.tally import Tally
from pyrklog.protocol.lag import PartitionLag

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
SAMPLES = of_broker(
    {"requests.Produce": 3, "requests.Fetch": 4, "fetched_bytes.copy": 5, "unwritten_bytes.0": 6},
    Tally(*range(11)),
    Readings(2, 1, 1, 3, 1.5, 4096, 1.7e9),
    ["/data"],
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
