"""A line of the log each interval: the main metrics, counters as rates, quantiles of times."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from pyrklog.base.logs import get_logger
from pyrklog.observability.growth import Growth
from pyrklog.observability.latency_samples import quantile
from pyrklog.observability.latency_table import REQUEST_SECONDS
from pyrklog.observability.samples import Sample

VALUES: Mapping[str, str] = MappingProxyType(
    {
        "ready": "pyrklog_ready",
        "connections": "pyrklog_connections",
        "partitions": "kafka_server_replicamanager_partitioncount",
        "leaders": "kafka_server_replicamanager_leadercount",
        "under_replicated": "kafka_server_replicamanager_underreplicatedpartitions",
        "under_min_isr": "kafka_server_replicamanager_underminisrpartitioncount",
        "offline_replicas": "kafka_server_replicamanager_offlinereplicacount",
        "groups": "kafka_coordinator_group_groupmetadatamanager_numgroups",
        "control_requests": "pyrklog_control_requests",
        "unwritten_bytes": "pyrklog_log_dir_unwritten_bytes",
        "memory_bytes": "process_resident_memory_bytes",
    }
)
"""Field of the line: the gauge, summed over its labels."""
RATES: Mapping[str, str] = MappingProxyType(
    {
        "received_bytes_per_second": "pyrklog_received_bytes_total",
        "sent_bytes_per_second": "pyrklog_sent_bytes_total",
        "produced_bytes_per_second": "kafka_server_brokertopicmetrics_bytesin_total",
        "fetched_bytes_per_second": "pyrklog_fetched_bytes_total",
        "requests_per_second": "kafka_network_requestmetrics_requests_total",
        "cpu_cores": "process_cpu_seconds_total",
    }
)
"""Field of the line: the counter, summed over its labels."""

P99: Mapping[str, str] = MappingProxyType(
    {"produce_p99_seconds": "Produce", "fetch_p99_seconds": "FetchConsumer"}
)
"""Field of the line: the requests whose time it is, of the interval. Left out without any."""

log = get_logger("metrics")


class LogReporter:
    name = "log"

    def __init__(self, age_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``age_seconds``: of the broker; ``clock`` is one that nobody sets."""
        self._growth = Growth()
        self._clock = clock
        self._last = clock() - age_seconds

    def report(self, at: float, samples: Sequence[Sample]) -> None:
        now = self._clock()
        elapsed, self._last = max(now - self._last, 1e-3), now
        grown: dict[str, float] = {}
        buckets: dict[str, dict[str, float]] = {}
        for (name, labels), growth in self._growth.take(samples).items():
            grown[name] = grown.get(name, 0) + growth
            if name == REQUEST_SECONDS.bucket.name:
                request, bound = labels
                buckets.setdefault(request, {})[bound] = growth
        values: dict[str, float] = {}
        for metric, _, value in samples:
            values[metric.name] = values.get(metric.name, 0) + value
        fields = {field: values[name] for field, name in VALUES.items() if name in values}
        rates = {
            field: round(grown[name] / elapsed, 3) for field, name in RATES.items() if name in grown
        }
        longest = {
            field: round(found, 6)
            for field, request in P99.items()
            if (found := quantile(0.99, buckets.get(request, {}))) is not None
        }
        log.info("metrics", seconds=round(elapsed, 3), **fields, **rates, **longest)

    def close(self) -> None:
        """Nothing is open."""
