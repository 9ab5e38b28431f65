"""OpenTelemetry: what a collector gets, and one that is away or refuses."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from pyrklog.observability.latency_samples import of_times
from pyrklog.observability.metric import Metric
from pyrklog.observability.report_otlp import NS, OtlpReporter
from pyrklog.observability.samples import Sample
from pyrklog.observability.sources import Origin
from tests.support.latencies import histogram, times

COUNTER = Metric("pyrklog_sent_bytes_total", "counter", "Bytes sent.")
GAUGE = Metric("pyrklog_queue_waiting", "gauge", "Waiting.", ("queue",))
SAMPLES = [Sample(COUNTER, (), 7), Sample(GAUGE, ("a",), 1.5), Sample(GAUGE, ("b",), 2)]
ORIGIN = Origin("the-cluster", 3, 1_700_000_000.5)
AT = 1_700_000_060.0
CUMULATIVE = 2


class Collector(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.status = 200
        self.got: list[tuple[str, ExportMetricsServiceRequest]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/metrics"


class Answer(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        request: Any = ExportMetricsServiceRequest()
        request.ParseFromString(body)
        self.server.got.append((self.path, request))
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def attributes(found: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in found}


def test_a_collector_gets_sums_and_gauges(collector: Collector) -> None:
    OtlpReporter(collector.url, ORIGIN).report(AT, SAMPLES)
    ((path, request),) = collector.got
    assert path == "/v1/metrics"
    (resource,) = request.resource_metrics
    told = attributes(resource.resource.attributes)
    assert (told["service.name"], told["service.namespace"]) == ("pyrklog", "the-cluster")
    assert told["service.instance.id"] == "3"
    (scope,) = resource.scope_metrics
    counter, gauge = scope.metrics
    assert (counter.name, counter.description) == (COUNTER.name, COUNTER.help)
    assert counter.sum.is_monotonic
    (point,) = counter.sum.data_points
    assert (point.as_int or point.as_double) == 7
    assert point.start_time_unix_nano == 1_700_000_000_500_000_000
    assert point.time_unix_nano == int(AT * NS)
    assert {
        attributes(one.attributes)["queue"]: one.as_double or one.as_int
        for one in gauge.gauge.data_points
    } == {"a": 1.5, "b": 2}


def test_a_collector_gets_histograms(collector: Collector) -> None:
    found = of_times(times({"request.Produce.served": histogram(60_000, 150_000, 10**11)}), {})
    OtlpReporter(collector.url, ORIGIN).report(AT, found)
    ((_, request),) = collector.got
    ((scope,),) = ([*one.scope_metrics] for one in request.resource_metrics)
    told = {one.name: one for one in scope.metrics}
    assert set(told) == {"pyrklog_request_seconds", "pyrklog_request_time_seconds_total"}
    seconds = told["pyrklog_request_seconds"]
    assert seconds.unit == "s"
    assert seconds.histogram.aggregation_temporality == CUMULATIVE
    points = {attributes(one.attributes)["request"]: one for one in seconds.histogram.data_points}
    point = points["Produce"]
    assert attributes(point.attributes) == {"request": "Produce"}
    assert (point.count, point.sum) == (3, pytest.approx(100.00021))
    assert len(point.explicit_bounds) == len(point.bucket_counts) - 1
    assert list(point.explicit_bounds[:2]) == [0.0001, 0.0002]
    assert list(point.bucket_counts) == [1, 1, *[0] * 10, 1]
    assert not point.HasField("min")
    assert not point.HasField("max")
    assert points["Control"].count == 0


def test_a_collector_that_refuses_is_an_error(collector: Collector) -> None:
    collector.status = 400
    reporter = OtlpReporter(collector.url, ORIGIN)
    with pytest.raises(OSError, match="did not take the metrics"):
        reporter.report(AT, SAMPLES)
    collector.status = 200
    reporter.report(AT, SAMPLES)
    assert len(collector.got) == 2


def test_nothing_is_sent_once_it_is_closed(collector: Collector) -> None:
    reporter = OtlpReporter(collector.url, ORIGIN)
    reporter.report(AT, SAMPLES)
    reporter.close()
    with pytest.raises(OSError, match="did not take the metrics"):
        reporter.report(AT, SAMPLES)
    assert len(collector.got) == 1


def test_a_collector_that_is_away_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "1")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/v1/metrics"
        with pytest.raises(OSError, match="did not take the metrics"):
            OtlpReporter(url, ORIGIN).report(AT, SAMPLES)
