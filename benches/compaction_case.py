"""Compaction of a log of which a tenth is live, and a producer beside it.

A topic of one partition is filled while it keeps everything, then its policy becomes compact. A
producer of another topic sends 20 MB/s at fixed times, before that and meanwhile. What it costs
alone is subtracted from the broker's CPU time.
"""

import time
from collections.abc import Callable
from pathlib import Path

from benches import loadgen, topics
from benches.brokers import BenchError, Broker
from benches.effort import Effort, Row, Scenario
from benches.meter import Meter
from benches.stage import Stage

TOPIC, BESIDE = "compacted", "beside"
BATCH_BYTES = 16_384
LIVE_PART = 0.1
SEGMENT_BYTES = 100_000_000
_RATE_BYTES_PER_S = 20_000_000
_RECORD_BYTES = 100
_PATIENCE_S = 3_600.0
_LOOK_S = 0.1
_CONFIG = {"cleanup.policy": "delete", "segment.bytes": str(SEGMENT_BYTES)}
_COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}


def cleaned_to(log_dir: Path, topic: str) -> int:
    """The end of what is compacted of partition 0, from ``cleaner-offset-checkpoint``; 0 without.

    Kafka's form: a version, the number of lines, then topic, partition and offset.
    """
    path = log_dir / "cleaner-offset-checkpoint"
    if not path.exists():
        return 0
    for line in path.read_text().splitlines()[2:]:
        name, index, offset = line.rsplit(" ", 2)
        if (name, index) == (topic, "0"):
            return int(offset)
    return 0


def closed_segments(folder: Path) -> tuple[int, int]:
    """Bytes of all segments but the last, which is never compacted, and its first offset."""
    segments = sorted(folder.glob("*.log"))
    return sum(one.stat().st_size for one in segments[:-1]), int(segments[-1].stem)


def compaction(record_bytes: int) -> Callable[[Stage, Effort], Row]:
    def measure(stage: Stage, effort: Effort) -> Row:
        broker = stage.prepare()
        stage.start(broker)
        topics.create(broker, TOPIC, 1, _CONFIG)
        topics.create(broker, BESIDE)
        _fill(broker, effort.compaction_bytes, record_bytes)
        folder = broker.partition_folder(TOPIC, 0)
        size, end = closed_segments(folder)
        with _producer(broker, effort.warm_seconds) as warm:
            warm.result()
        with _producer(broker, effort.compaction_quiet_seconds) as quiet:
            quiet.wait_until_started()
            meter = Meter(broker)
            undisturbed = quiet.result()
            cpu_per_s = meter.cpu_s() / undisturbed.seconds
        with _producer(broker, _PATIENCE_S, until_eof=True) as beside:
            beside.wait_until_started()
            meter = Meter(broker)
            began = time.monotonic()
            topics.alter(broker, TOPIC, _COMPACT)
            _wait_until_compacted(folder, end)
            seconds = time.monotonic() - began
            figures = meter.figures(seconds, size)
            disturbed = beside.result()
        left, _ = closed_segments(folder)
        broker.stop()
        cpu_s = figures["cpu_s"] - cpu_per_s * seconds
        quiet_ms, beside_ms = (one.latency_ms["p99.9"] for one in (undisturbed, disturbed))
        return {
            **figures,
            "mb_per_s": size / 1e6 / seconds,
            "mb_per_cpu_s": size / 1e6 / cpu_s,
            "cpu_s_per_gb": cpu_s / (size / 1e9),
            "left_percent": 100 * left / size,
            "quiet_p99.9_ms": quiet_ms,
            "beside_p99.9_ms": beside_ms,
            "producer_p99.9_growth": beside_ms / quiet_ms,
        }

    return measure


def _fill(broker: Broker, size_bytes: int, record_bytes: int) -> None:
    # About: keys, lengths and headers of batches take some bytes of each record, too.
    records = size_bytes // record_bytes
    sent = loadgen.run(
        *("produce", broker.bootstrap, TOPIC),
        keys=round(LIVE_PART * records),
        record_bytes=record_bytes,
        batch_bytes=BATCH_BYTES,
        bytes=size_bytes,
        seconds=_PATIENCE_S,
    )
    if sent.bytes < size_bytes:
        raise BenchError(f"only {sent.bytes / 1e6:.0f} MB were produced")
    topics.wait_for_files(broker, TOPIC, sent.bytes, 1)


def _producer(broker: Broker, seconds: float, *, until_eof: bool = False) -> loadgen.Running:
    return loadgen.Running(
        *("produce", broker.bootstrap, BESIDE),
        batch_bytes=BATCH_BYTES,
        record_bytes=_RECORD_BYTES,
        rate=_RATE_BYTES_PER_S // _RECORD_BYTES,
        seconds=seconds,
        bytes=10**15,
        until_eof=until_eof,
        announce=True,
    )


def _wait_until_compacted(folder: Path, end: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while cleaned_to(folder.parent, TOPIC) < end:
        if time.monotonic() > deadline:
            raise BenchError(f"{folder} is not compacted after {_PATIENCE_S:.0f} s")
        time.sleep(_LOOK_S)


_SHOWN = (
    *("mb_per_cpu_s", "mb_per_s", "left_percent"),
    *("quiet_p99.9_ms", "beside_p99.9_ms", "producer_p99.9_growth", "rss_mb"),
)

SCENARIOS = tuple(
    Scenario(
        name=f"compaction-{size}",
        title=f"compaction of records of {said}, a tenth live",
        measure=compaction(size),
        quick=False,
        shown=_SHOWN,
        disk_bytes=lambda effort: round(1.5 * effort.compaction_bytes),
    )
    for size, said in ((100, "100 B"), (1_000, "1 KB"))
)
