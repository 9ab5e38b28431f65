"""The lag story: a consumer reads old data from the disk, and others may notice.

A producer of 40 MB/s and a tail of 500 records/s, alternately alone and while another consumer
reads 8 GB that were dropped from the page cache. After each phase a consumer 1 GB behind the
producer reads the newest 1 GB: the figure is how much of it comes from the disk.
"""

import os
import statistics
import time
from dataclasses import dataclass

from benches import growth, loadgen, process, topics
from benches.brokers import Broker, Floor
from benches.effort import Effort, Row, Scenario
from benches.loadgen import Load, Running
from benches.meter import Meter
from benches.produce_cases import IN_FLIGHT
from benches.stage import Stage

PRODUCER_BYTES_PER_S = 40_000_000
PRODUCER_BATCH_BYTES = 16_384
TAIL_RECORDS_PER_S = 500
OLD, NEW, TAIL = "lag-old", "lag-new", "lag-tail"
_WARM_S = 2.0
# The quiet phases are about as long as the others: a modern disk reads the old data this fast.
_QUIET_BYTES_PER_S = 800_000_000
# As much as pyrklog's block cache takes of the memory cgroup.
_FLOOR_MEMORY_BYTES = 1_500_000_000
_PERCENTILES = (("producer", "p99"), ("producer", "p99.9"), ("tail", "p99"), ("tail", "p99.9"))
_LONG = {"seconds": 3_600, "bytes": 10**15}


@dataclass(frozen=True)
class Phase:
    """Measured with or without the lagging consumer."""

    producer: Load
    tail: Load
    newest: "Newest"
    old_mb_per_s: float = 0.0


@dataclass(frozen=True)
class Newest:
    """The reading of the newest bytes. ``broker_mb``: storage reads of the broker's processes;
    ``device_mb``: all reads of the device, for comparison."""

    mb_per_s: float
    broker_mb: float
    device_mb: float


def measure(stage: Stage, effort: Effort) -> Row:
    broker = stage.prepare()
    if isinstance(broker, Floor):
        broker.reads_files_beyond_bytes = _FLOOR_MEMORY_BYTES
    stage.start(broker)
    for topic in (OLD, NEW, TAIL):
        topics.create(broker, topic)
    topics.fill(broker, effort.old_bytes, OLD)
    # As much new data as the consumer's lag; also shows the size of the generator's batches.
    sent = loadgen.run(
        *("produce", broker.bootstrap, NEW),
        batch_bytes=PRODUCER_BATCH_BYTES,
        in_flight=IN_FLIGHT,
        bytes=effort.newest_bytes,
        seconds=120,
    )
    rate = PRODUCER_BYTES_PER_S * sent.records / sent.bytes
    newest = round(effort.newest_bytes * sent.records / sent.bytes)
    # Not measured: lets both brokers decide what to cache.
    _read_newest(broker, newest)
    phases = _Phases(broker, rate, newest)
    meter = Meter(broker)
    quiet, lag = [], []
    for _ in range(effort.phases):
        quiet.append(phases.quiet(max(2.0, effort.old_bytes / _QUIET_BYTES_PER_S)))
        lag.append(phases.lagging())
    row = {
        **meter.figures(sum(phase.producer.seconds for phase in (*quiet, *lag)), 0),
        **figures(quiet, lag),
    }
    broker.stop()
    return row


def figures(quiet: list[Phase], lag: list[Phase]) -> Row:
    """Medians over the phases and the growth within each pair; for disk reads the worst phase."""

    def percentiles(phases: list[Phase], whose: str, name: str) -> list[float]:
        loads: list[Load] = [getattr(phase, whose) for phase in phases]
        return [load.latency_ms[name] for load in loads]

    row: Row = {"phases": len(lag)}
    for whose, name in _PERCENTILES:
        without = percentiles(quiet, whose, name)
        during = percentiles(lag, whose, name)
        row[f"{whose}_{name}_ms"] = statistics.median(without)
        row[f"{whose}_lag_{name}_ms"] = statistics.median(during)
        pairs = list(zip(without, during, strict=True))
        row[f"{whose}_{name}_growth"] = growth.of(pairs).median
    row["old_mb_per_s"] = statistics.median(phase.old_mb_per_s for phase in lag)
    row["newest_mb_per_s"] = statistics.median(phase.newest.mb_per_s for phase in lag)
    row["newest_read_mb"] = max(phase.newest.broker_mb for phase in lag)
    row["newest_device_read_mb"] = max(phase.newest.device_mb for phase in lag)
    return row


class _Phases:
    def __init__(self, broker: Broker, records_per_s: float, newest_records: int) -> None:
        self._broker = broker
        self._records_per_s = records_per_s
        self._newest_records = newest_records

    def _producer(self, **bounds: float) -> Running:
        return Running(
            *("produce", self._broker.bootstrap, NEW),
            batch_bytes=PRODUCER_BATCH_BYTES,
            in_flight=IN_FLIGHT,
            rate=self._records_per_s,
            warmup_seconds=_WARM_S,
            **bounds,
        )

    def _tail(self, **bounds: float) -> Running:
        return Running(
            *("end-to-end", self._broker.bootstrap, TAIL),
            rate=TAIL_RECORDS_PER_S,
            warmup_seconds=_WARM_S,
            **bounds,
        )

    def quiet(self, seconds: float) -> Phase:
        bounds = {"seconds": seconds, "bytes": 10**15}
        with self._producer(**bounds) as producer, self._tail(**bounds) as tail:
            loads = producer.result(), tail.result()
        return Phase(*loads, self._newest())

    def lagging(self) -> Phase:
        """Until the lagging consumer has read all old data."""
        drop_from_page_cache(self._broker, OLD)
        bounds = {**_LONG, "until_eof": True}
        with self._producer(**bounds) as producer, self._tail(**bounds) as tail:
            time.sleep(_WARM_S)
            old = loadgen.run(*("fetch", self._broker.bootstrap, OLD), **_LONG, in_flight=1)
            loads = producer.result(), tail.result()
        return Phase(*loads, self._newest(), old.mb_per_s)

    def _newest(self) -> Newest:
        return _read_newest(self._broker, self._newest_records)


def _read_newest(broker: Broker, records: int) -> Newest:
    before = process.usage(broker.pid).disk_read_bytes
    device_before = process.device_read_bytes(broker.folder)
    done = loadgen.run(*("fetch", broker.bootstrap, NEW), **_LONG, last_records=records)
    read = process.usage(broker.pid).disk_read_bytes - before
    device_read = process.device_read_bytes(broker.folder) - device_before
    return Newest(done.mb_per_s, read / 1e6, device_read / 1e6)


def drop_from_page_cache(broker: Broker, topic: str) -> None:
    """Drops the topic's written pages: a real broker's old data is not cached either."""
    for index in range(topics.PARTITIONS):
        for segment in broker.partition_folder(topic, index).glob("*.log"):
            with segment.open("rb") as file:
                os.fdatasync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


SCENARIO = Scenario(
    name="lag",
    title="a consumer reads old data",
    measure=measure,
    quick=True,
    shown=(
        "producer_p99_ms",
        "producer_lag_p99_ms",
        "producer_p99_growth",
        "producer_p99.9_ms",
        "producer_lag_p99.9_ms",
        "producer_p99.9_growth",
        "tail_p99_ms",
        "tail_lag_p99_ms",
        "tail_p99_growth",
        "tail_p99.9_growth",
        "old_mb_per_s",
        "newest_read_mb",
        "newest_mb_per_s",
    ),
    disk_bytes=lambda effort: (
        effort.old_bytes + effort.newest_bytes + effort.phases * 40 * PRODUCER_BYTES_PER_S
    ),
    floor=True,
)
