"""What brokers' processes, their disk and the new broker's replicas are like, each half second."""

import csv
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benches import process
from benches.cluster_probe import Probe
from benches.expansion_load import Request
from benches.expansion_side import HISTORY, NEW, Side

INTERVAL_S = 0.5
_NEAR_S = 2.0
"""A replica whose end is no further behind than what was written in this time follows."""
_NEAR_LEAST = 8
_MS = 1e3
_MB = 1e6


@dataclass(frozen=True)
class Sample:
    """Bytes and seconds since the start of the processes, or of the system; ``at_s`` by
    CLOCK_MONOTONIC."""

    at_s: float
    read_bytes: tuple[int, ...]
    """Of each broker."""
    new_written_bytes: int
    cpu_s: float
    """Of all brokers."""
    device_read_bytes: int
    device_busy_s: float
    following: int
    """Partitions of which the new broker has the end."""
    in_sync: int

    @property
    def old_read_bytes(self) -> int:
        return sum(self.read_bytes[: NEW - 1])


class Replicas:
    """What brokers tell of the history's partitions."""

    def __init__(self, side: Side) -> None:
        self._indexes = list(range(side.size.partitions))
        self._near = near(side.size.per_s / side.size.partitions)
        self._old = [Probe(broker.port) for broker in side.old]
        self._new = Probe(side.new.port)

    def following(self) -> int:
        ends: dict[int, int] = {}
        for probe in self._old:
            for index, end in probe.ends(HISTORY, self._indexes).items():
                ends[index] = max(end, ends.get(index, 0))
        new = self._new.ends(HISTORY, self._indexes)
        return sum(index in ends and end >= ends[index] - self._near for index, end in new.items())

    def in_sync(self) -> dict[int, frozenset[int]]:
        told = self._old[1].partitions(HISTORY)
        return {index: frozenset(one.isr) for index, one in told.items()}

    def close(self) -> None:
        for probe in (*self._old, self._new):
            probe.close()


def near(records_per_s: float) -> int:
    """How many records behind a replica may be that follows."""
    return max(_NEAR_LEAST, round(_NEAR_S * records_per_s))


class Sampler:
    """Runs from its creation to the end of the ``with`` block."""

    def __init__(self, side: Side) -> None:
        self.samples: list[Sample] = []
        self.isr: dict[int, frozenset[int]] = {}
        self._side = side
        self._is_over = threading.Event()
        self._replicas = Replicas(side) if len(side.brokers) == NEW else None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Sampler":
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        if self._replicas is not None:
            self._replicas.close()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._is_over.wait(max(0.0, due - time.monotonic())):
            due = max(due + INTERVAL_S, time.monotonic())
            self.samples.append(self._sample())

    def _sample(self) -> Sample:
        found = [process.usage(broker.pid) for broker in self._side.brokers]
        following = 0
        if self._replicas is not None:
            following = self._replicas.following()
            self.isr = self._replicas.in_sync()
        return Sample(
            time.monotonic(),
            tuple(one.disk_read_bytes for one in found),
            found[-1].disk_written_bytes,
            sum(one.cpu_s for one in found),
            process.device_read_bytes(self._side.folder),
            process.device_busy_s(self._side.folder),
            following,
            sum(NEW in isr for isr in self.isr.values()),
        )


@dataclass(frozen=True)
class Second:
    """One second of a trial; ``second`` 0 is the first one of the expansion."""

    second: int
    requests: int
    p50_ms: float
    p999_ms: float
    max_ms: float
    read_mb: tuple[float, ...]
    device_read_mb: float
    device_busy_percent: float
    new_written_mb: float
    cpu_s: float
    following: int
    in_sync: int


def percentile(values: Sequence[float], share: float) -> float:
    """0 without a value."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def at(samples: Sequence[Sample], when_s: float) -> Sample:
    """The last sample up to that time, or the first of all."""
    found = samples[0]
    for one in samples:
        if one.at_s > when_s:
            break
        found = one
    return found


def seconds(samples: Sequence[Sample], requests: Sequence[Request], begin_s: float) -> list[Second]:
    """Requests belong to the second in which they were due."""
    latencies: dict[int, list[float]] = {}
    for one in requests:
        latencies.setdefault(int((one.due_s - begin_s) // 1), []).append(one.latency_s * _MS)
    first, last = (int((samples[place].at_s - begin_s) // 1) for place in (0, -1))
    found = []
    for second in range(first + 1, last):
        before, after = (at(samples, begin_s + second + more) for more in (0, 1))
        values = latencies.get(second, [])
        elapsed = after.at_s - before.at_s
        per_s = 1 / elapsed if elapsed > 0 else 0.0
        busy = (after.device_busy_s - before.device_busy_s) * per_s
        found.append(
            Second(
                second,
                len(values),
                percentile(values, 0.5),
                percentile(values, 0.999),
                max(values, default=0.0),
                tuple(
                    (more - less) * per_s / _MB
                    for less, more in zip(before.read_bytes, after.read_bytes, strict=True)
                ),
                (after.device_read_bytes - before.device_read_bytes) * per_s / _MB,
                min(100.0, 100 * busy),
                (after.new_written_bytes - before.new_written_bytes) * per_s / _MB,
                (after.cpu_s - before.cpu_s) * per_s,
                after.following,
                after.in_sync,
            )
        )
    return found


_COLUMNS = (
    *("second", "requests", "p50_ms", "p99.9_ms", "max_ms"),
    *(f"read_mb_per_s_{number}" for number in range(1, NEW + 1)),
    *("device_read_mb_per_s", "device_busy_percent", "new_written_mb_per_s", "cpu_s_per_s"),
    *("following", "in_sync"),
)


def write(path: Path, found: Sequence[Second]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        for one in found:
            reads = [*one.read_mb, *[0.0] * (NEW - len(one.read_mb))]
            cells = [
                *(one.p50_ms, one.p999_ms, one.max_ms, *reads, one.device_read_mb),
                *(one.device_busy_percent, one.new_written_mb, one.cpu_s),
            ]
            rounded = [f"{cell:.4g}" for cell in cells]
            writer.writerow([one.second, one.requests, *rounded, one.following, one.in_sync])


def read(path: Path) -> list[Second]:
    """What :func:`write` has written."""
    found = []
    with path.open(newline="") as file:
        for cells in list(csv.reader(file))[1:]:
            p50, p999, most, *rest = (float(cell) for cell in cells[2 : 9 + NEW])
            device_read, busy, written, cpu = rest[NEW:]
            found.append(
                Second(
                    *(int(cells[0]), int(cells[1]), p50, p999, most),
                    tuple(rest[:NEW]),
                    *(device_read, busy, written, cpu),
                    *(int(cells[9 + NEW]), int(cells[10 + NEW])),
                )
            )
    return found
