import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from pyrklog.telemetry import otlp
from pyrklog.telemetry.otlp import (
    CONTAINERS_MAX,
    LABEL_CHARS_MAX,
    LABELS_MAX,
    NAME_CHARS_MAX,
    POINTS_MAX,
    TEXT_CHARS_MAX,
    InvalidMetricsError,
    Point,
    read_metrics,
)
from tests.unit.telemetry.pushed_metrics import (
    DELTA,
    gauge,
    histogram,
    label,
    message,
    total,
)


def test_gauges_and_sums_are_read_with_their_labels() -> None:
    read = read_metrics(
        message(
            gauge("org.apache.kafka.lag", 1.5, topic="t"),
            total("requests.total", 7),
            total("more.total", 2, DELTA),
            group_id="g",
        )
    )
    assert read.client == (("group_id", "g"),)
    assert read.points == [
        Point("org_apache_kafka_lag", (("topic", "t"),), False, False, 1.5),
        Point("requests_total", (), True, False, 7.0),
        Point("more_total", (), True, True, 2.0),
    ]
    assert read.left_out == 0


def test_a_sum_that_may_fall_is_a_gauge() -> None:
    metric = total("open.connections", 3)
    metric.sum.is_monotonic = False
    (point,) = read_metrics(message(metric)).points
    assert not point.is_counter


def test_points_without_a_number_are_left_out() -> None:
    unset = Metric(name="unset")
    unset.gauge.data_points.add()
    not_recorded = Metric(name="stale")
    not_recorded.gauge.data_points.add(as_double=1, flags=1)
    nameless = gauge("", 1)
    endless = Metric(name="endless")
    endless.sum.aggregation_temporality = DELTA
    endless.sum.data_points.add(as_double=math.inf)
    read = read_metrics(message(unset, not_recorded, nameless, endless, histogram("h")))
    assert (read.points, read.left_out) == ([], 5)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_counters_are_numbers_from_0_on(value: float) -> None:
    metric = Metric(name="c")
    metric.sum.is_monotonic = True
    metric.sum.data_points.add(as_double=value)
    read = read_metrics(message(metric, gauge("g", value)))
    assert ([point.name for point in read.points], read.left_out) == (["g"], 1)


@pytest.mark.parametrize(
    "data", [b"\xff", b"\x0a\x05abc", message(gauge("a", 1))[:-1]], ids=["tag", "length", "cut"]
)
def test_what_is_not_metrics_data_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidMetricsError):
        read_metrics(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        read = read_metrics(data)
    except InvalidMetricsError:
        return
    assert len(read.points) <= len(data)


@given(st.data())
def test_a_message_with_a_changed_byte_is_read_or_refused(data: Any) -> None:
    bytes_ = bytearray(message(gauge("a.b", 1, c="d"), total("e", 2), group_id="g"))
    bytes_[data.draw(st.integers(0, len(bytes_) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = read_metrics(bytes(bytes_))
    except InvalidMetricsError:
        return
    assert len(read.points) <= 2


def test_the_number_of_points_is_bounded() -> None:
    metric = Metric(name="many")
    for number in range(POINTS_MAX + 10):
        metric.gauge.data_points.add(as_int=number)
    read = read_metrics(message(gauge("first", 1), metric, gauge("last", 1)))
    assert len(read.points) == POINTS_MAX
    assert read.left_out == 12


def test_the_number_of_metrics_looked_at_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[Metric] = []
    number_points = otlp._number_points

    def note(metric: Metric) -> tuple[Any, int]:
        looked_at.append(metric)
        return number_points(metric)

    monkeypatch.setattr(otlp, "_number_points", note)
    read = read_metrics(message(*[Metric(name="empty")] * (2 * CONTAINERS_MAX)))
    assert len(looked_at) < CONTAINERS_MAX
    assert read.points == []
    data = MetricsData()
    for _ in range(2 * CONTAINERS_MAX):
        data.resource_metrics.add().scope_metrics.add()
    assert read_metrics(data.SerializeToString()).points == []


def test_names_become_prometheus_own() -> None:
    names = ["a.b-c/d", "9lives", "ä", "pyrklog_up", "x" * 1000, "..."]
    points = read_metrics(message(*(gauge(name, 1) for name in names))).points
    assert [point.name for point in points] == [
        "a_b_c_d",
        "_9lives",
        "_",
        "client_pyrklog_up",
        "x" * NAME_CHARS_MAX,
        "___",
    ]


def test_labels_are_short_printable_and_few() -> None:
    metric = Metric(name="m")
    point = metric.gauge.data_points.add(as_double=1)
    point.attributes.extend(
        [
            label("a\nb", 'x"\n\x00\u2028y'),
            label("__name__", "other"),
            label("long", "v" * 1000),
            label("flag", True),
            label("number", 5),
            label("share", 0.5),
            label("a.b", "second of the name"),
            label("___", "no name"),
        ]
    )
    ((_, labels, *_),) = read_metrics(message(metric)).points
    assert dict(labels) == {
        "a_b": 'x"\ufffd\ufffd\ufffdy',
        "name__": "other",
        "long": "v" * TEXT_CHARS_MAX,
        "flag": "true",
        "number": "5",
        "share": "0.5",
    }
    many = {f"l{number}": "v" for number in range(100)}
    ((_, labels, *_),) = read_metrics(message(gauge("m", 1, **many))).points
    assert len(labels) == LABELS_MAX


def test_values_of_labels_that_are_not_plain_are_left_out() -> None:
    metric = Metric(name="m")
    point = metric.gauge.data_points.add(as_double=1)
    nested = point.attributes.add(key="nested")
    nested.value.array_value.values.add(string_value="x")
    point.attributes.add(key="bytes").value.bytes_value = b"x"
    point.attributes.add(key="unset")
    assert read_metrics(message(metric)).points == [Point("m", (), False, False, 1.0)]


def test_a_point_with_too_much_text_is_left_out() -> None:
    labels = {f"label{number}": "v" * TEXT_CHARS_MAX for number in range(6)}
    read = read_metrics(message(gauge("m", 1, **labels), gauge("n", 1)))
    assert ([point.name for point in read.points], read.left_out) == (["n"], 1)


def test_what_a_client_says_of_itself_is_bounded_as_a_point_is() -> None:
    told = {f"label{number}": chr(0x1F600) * TEXT_CHARS_MAX for number in range(LABELS_MAX)}
    read = read_metrics(message(gauge("m", 1), **told))
    assert 0 < len(read.client) < LABELS_MAX
    assert sum(len(name) + len(value) for name, value in read.client) <= LABEL_CHARS_MAX
    assert len(read.points) == 1
