"""Names and units of metrics; the page's tables; every statistic of the data plane has a place."""

import re
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest

from ci import metric_reference
from pyrklog.observability import latency_table
from pyrklog.observability import metric_table as table
from pyrklog.observability.client_samples import CLIENT_METRICS
from pyrklog.observability.detail_table import DETAIL
from pyrklog.observability.latency_table import Histogram
from pyrklog.observability.metric import Metric
from pyrklog.observability.samples import Readings
from pyrklog.observability.tally import Tally

REPORT = Path(__file__).parents[3] / "rust" / "dataplane" / "src" / "report.rs"


def latency_metrics() -> list[Metric]:
    found = [one for one in vars(latency_table).values() if isinstance(one, Metric)]
    histograms = [one for one in vars(latency_table).values() if isinstance(one, Histogram)]
    return [*found, *(part for one in histograms for part in one)]


TAKEN = {**table.PLAIN, **table.LOG_DIR, **table.QUEUE}
METRICS: list[Metric] = [
    *latency_metrics(),
    *table.CLUSTER.values(),
    *table.BROKER.values(),
    *dict.fromkeys(taken.metric for taken in TAKEN.values()),
    *DETAIL.values(),
    *CLIENT_METRICS.values(),
    table.REQUESTS,
    table.BUILD,
    table.FINDINGS,
    table.LEFT_OUT_SERIES,
]


def test_the_page_is_up_to_date() -> None:
    assert metric_reference.page() == metric_reference.PAGE.read_text(), (
        "run: python ci/metric_reference.py"
    )


def test_no_two_metrics_have_the_same_name() -> None:
    names = Counter(metric.name for metric in METRICS)
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_prometheus(metric: Metric) -> None:
    assert re.fullmatch(r"(kafka|pyrklog|process)_[a-z0-9_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert not re.search(r"_(ms|ns|kb|mb|millis)(_|$)", metric.name), "base units only"
    assert metric.help.endswith(".")


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_texts_can_be_read_one_by_one(metric: Metric) -> None:
    """A scrape shows each without the line above it."""
    assert not re.match(r"(Their|Such|Its|Of it)\b", metric.help)
    assert not re.search(r"\b(they|them|among|there)\b", metric.help)


@pytest.mark.parametrize("name", [n for n in TAKEN if n.endswith(("_ms", "_ns"))])
def test_times_become_seconds(name: str) -> None:
    taken = TAKEN[name]
    assert "_seconds" in taken.metric.name
    assert taken.scale == {"_ms": 1e-3, "_ns": 1e-9}[name[-3:]]


def test_every_statistic_of_the_data_plane_is_a_metric_or_left_out_with_a_reason() -> None:
    """And no other one: its metric would be missing, in silence."""
    text = REPORT.read_text()
    found = set(re.findall(r'^ +(?:all\.push\()?\("([a-z_.]+)"(?:\.to_owned\(\))?, ', text, re.M))
    assert len(found) > 60, "the pattern finds the names"
    sides = {"leader", "follower"}
    told = (found - sides) | {f"throttled_replication_bytes.{one}" for one in found & sides}
    assert sorted(told) == sorted({*TAKEN, *table.LEFT_OUT})


def test_the_tables_name_the_fields_that_they_are_read_from() -> None:
    assert list(table.CLUSTER) == [one.name for one in fields(Tally)]
    assert list(table.BROKER) == [one.name for one in fields(Readings)]
