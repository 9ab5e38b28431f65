"""Histograms of times: bounds, merging, quantiles, and how each reporter tells them."""

import math

import pytest

from pyrklog import _core
from pyrklog.observability.latency_samples import (
    INFINITE,
    added,
    all_of_times,
    of_times,
    quantile,
)
from pyrklog.observability.latency_table import (
    BOUNDS_NS,
    COARSE_BOUNDS_NS,
    PHASE_SECONDS,
    PHASES,
    READS,
    REQUEST_SECONDS,
    REQUEST_TIME,
    REQUESTS,
    WRITE_SECONDS,
    WRITES,
    Histogram,
)
from pyrklog.observability.report_statsd import lines
from pyrklog.observability.samples import Sample, log_dir_labels
from tests.support.latencies import histogram, times


def values(samples: list[Sample], of: Histogram) -> dict[tuple[str, ...], float]:
    return {(one.metric.name, *one.labels): one.value for one in samples if one.metric in of}


def test_the_data_plane_has_the_same_bounds() -> None:
    assert tuple(_core.time_bounds_ns()) == BOUNDS_NS
    assert set(BOUNDS_NS) >= COARSE_BOUNDS_NS


def test_buckets_have_what_is_below_them() -> None:
    served = histogram(60_000, 150_000, 150_000, 3_000_000, 60_000_000_000)
    found = of_times(times({"request.Produce.served": served}), {})
    told = values(found, REQUEST_SECONDS)
    name = REQUEST_SECONDS.bucket.name
    below = {labels[2]: count for labels, count in told.items() if labels[:2] == (name, "Produce")}
    assert (below["0.0001"], below["0.0002"], below["0.002"], below["0.005"]) == (1, 3, 3, 4)
    assert (below["20.0"], below[INFINITE]) == (4, 5)
    assert len(below) == len(COARSE_BOUNDS_NS) + 1
    assert told[REQUEST_SECONDS.number.name, "Produce"] == 5
    assert told[REQUEST_SECONDS.sum.name, "Produce"] == pytest.approx(60.00336)
    assert told[REQUEST_SECONDS.number.name, "Control"] == 0


def test_counts_grow_from_bucket_to_bucket_up_to_the_count() -> None:
    found = all_of_times(times({"request.Other.total": histogram(1, 10**6, 10**9, 10**12)}), {})
    told = [
        one.value
        for one in found
        if one.metric is PHASE_SECONDS.bucket and one.labels[:2] == ("Other", "total")
    ]
    assert told == sorted(told)
    assert len(told) == len(BOUNDS_NS) + 1
    assert (
        values(found, PHASE_SECONDS)[PHASE_SECONDS.number.name, "Other", "total"] == told[-1] == 4
    )


def test_histograms_of_brokers_can_be_added() -> None:
    one, other = histogram(60_000, 10**9), histogram(60_000, 10**6, 10**13)
    assert added(one, other) == histogram(60_000, 10**9, 60_000, 10**6, 10**13)


def test_each_phase_of_a_request_has_a_sum() -> None:
    spent = {
        f"request.Produce.{phase}": histogram(10**9 * (n + 1)) for n, phase in enumerate(PHASES)
    }
    found = of_times(times(spent), {})
    told = {one.labels: one.value for one in found if one.metric is REQUEST_TIME}
    assert told["Produce", "queue"] == 1
    assert told["Produce", "send"] == 5
    assert set(told) == {(request, phase) for request in REQUESTS for phase in PHASES}


def test_directories_that_share_a_label_are_added() -> None:
    many = {f"write.{number}": histogram(10**6 * (number + 1)) for number in range(6)}
    labels = log_dir_labels([f"/{number}" for number in range(6)])
    found = of_times(times(many), labels)
    assert [one.labels for one in found if one.metric is WRITES] == [("all",)]
    assert [one.value for one in found if one.metric is WRITES] == [6]
    assert [one.value for one in found if one.metric is READS] == []
    detail = values(all_of_times(times(many), labels), WRITE_SECONDS)
    assert detail[WRITE_SECONDS.sum.name, "all"] == pytest.approx(0.021)


def test_without_histograms_there_are_no_samples() -> None:
    assert of_times({}, {0: "/data"}) == []


@pytest.mark.parametrize(
    ("wanted", "buckets", "expected"),
    [
        (0.5, {}, None),
        (0.5, {"0.1": 0, INFINITE: 0}, None),
        (0.5, {"0.1": 4, INFINITE: 4}, 0.05),
        (0.99, {"0.1": 0, "0.2": 100, INFINITE: 100}, 0.199),
        (0.99, {"0.1": 0, "0.2": 10, INFINITE: 100}, 0.2),
        (0.5, {"0.2": 10, "0.1": 5, "0.4": 10, INFINITE: 10}, 0.1),
        (1.0, {"0.1": 5, "0.2": 10, "0.4": 10, INFINITE: 10}, 0.2),
    ],
)
def test_quantiles_are_between_bounds(
    wanted: float, buckets: dict[str, float], expected: float | None
) -> None:
    found = quantile(wanted, buckets)
    assert found == expected or (
        found is not None and expected is not None and math.isclose(found, expected)
    )


def test_statsd_gets_count_and_sum() -> None:
    labels = ("Produce",)
    found = [
        Sample(REQUEST_SECONDS.bucket, (*labels, "0.1"), 4),
        Sample(REQUEST_SECONDS.bucket, (*labels, INFINITE), 5),
        Sample(REQUEST_SECONDS.number, labels, 5),
        Sample(REQUEST_SECONDS.sum, labels, 0.75),
    ]
    grown = {(one.metric.name, one.labels): one.value for one in found}
    assert list(lines(found, grown, 1, tags=False)) == [
        b"broker.1.pyrklog_request_seconds_count.Produce:5|c",
        b"broker.1.pyrklog_request_seconds_sum.Produce:0.75|c",
    ]
