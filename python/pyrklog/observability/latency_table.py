"""Metrics of times: histograms, and what ``/metrics`` has of them. Pure.

The data plane counts times in buckets that are the same in all brokers, so histograms of several
brokers can be added. ``/metrics`` has few of them, and not each bucket; ``/metrics/latencies`` has
all.
"""

from __future__ import annotations

from typing import NamedTuple

from pyrklog.observability.metric import Metric

BOUNDS_NS = (
    *(50_000, 100_000, 200_000, 500_000),
    *(1_000_000, 2_000_000, 5_000_000),
    *(10_000_000, 20_000_000, 50_000_000),
    *(100_000_000, 200_000_000, 500_000_000),
    *(1_000_000_000, 2_000_000_000, 5_000_000_000),
    *(10_000_000_000, 20_000_000_000),
)
"""Upper bounds of the data plane's buckets; one more has what is longer."""
COARSE_BOUNDS_NS = frozenset(
    {
        *(100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000),
        *(50_000_000, 200_000_000, 1_000_000_000, 5_000_000_000, 20_000_000_000),
    }
)
"""Those that ``/metrics`` shows."""
REQUESTS = ("Produce", "FetchConsumer", "FetchFollower", "Control")
"""Groups of requests in ``/metrics``."""
PHASES = ("queue", "local", "read", "remote", "send")
"""Parts of a request's time; together they are ``total``."""


class Histogram(NamedTuple):
    bucket: Metric
    sum: Metric
    number: Metric


def _histogram(name: str, help_: str, *labels: str) -> Histogram:
    return Histogram(
        Metric(f"{name}_bucket", "histogram", help_, (*labels, "le")),
        Metric(f"{name}_sum", "histogram", help_, labels),
        Metric(f"{name}_count", "histogram", help_, labels),
    )


REQUEST_SECONDS = _histogram(
    "pyrklog_request_seconds",
    "Time from the arrival of requests until the reply was sent; of fetches without the wait for "
    "records.",
    "request",
)
REQUEST_TIME = Metric(
    "pyrklog_request_time_seconds_total", "counter", "Time of requests.", ("request", "phase")
)
WRITE_TIME = Metric(
    "pyrklog_log_dir_write_time_seconds_total",
    "counter",
    "Time of writes of records to files.",
    ("log_dir",),
)
WRITES = Metric(
    "pyrklog_log_dir_writes_total", "counter", "Writes of records to files.", ("log_dir",)
)
READ_TIME = Metric(
    "pyrklog_log_dir_read_time_seconds_total",
    "counter",
    "Time of reads by reader threads.",
    ("log_dir",),
)
READS = Metric("pyrklog_log_dir_reads_total", "counter", "Reads by reader threads.", ("log_dir",))

PHASE_SECONDS = _histogram(
    "pyrklog_request_phase_seconds", "Time of requests in a phase.", "request", "phase"
)
WRITE_SECONDS = _histogram(
    "pyrklog_log_dir_write_seconds", "Time of a write of records to files.", "log_dir"
)
READ_SECONDS = _histogram(
    "pyrklog_log_dir_read_seconds", "Time of a read by a reader thread.", "log_dir"
)
