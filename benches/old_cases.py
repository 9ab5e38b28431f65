"""Reading fresh and old data: how much comes from the disk, and how fast.

Each scenario has a broker of its own that was just started. ``mb_per_s`` is the first reading,
``again_mb_per_s`` the second one of the same bytes; ``read_mb`` and ``again_read_mb`` are the
broker's storage reads meanwhile. With ``--all-memory`` the broker is in no memory cgroup.
"""

import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benches import loadgen, process, topics
from benches.brokers import BenchError, Broker
from benches.effort import Effort, Row, Scenario
from benches.lag_case import drop_from_page_cache
from benches.meter import Meter, latencies
from benches.produce_cases import IN_FLIGHT
from benches.stage import Stage

OLD_BYTES = 3_000_000_000
RESTARTED_BYTES = 2_000_000_000
_TOPIC = "old"
_BATCH_BYTES = 16_384
_DEVICE_BYTES = 1_000_000_000
_DEVICE_PIECE_BYTES = 1 << 20
_DEVICE_REQUESTS = 4
_ALL = {"seconds": 3_600, "bytes": 10**15}


def figures(first: loadgen.Load, again: loadgen.Load, rows: list[Row], read_mb: list[float]) -> Row:
    """Both readings as one row; latencies and memory are the first one's."""
    return {
        **latencies(first),
        **rows[0],
        "mb_per_s": first.mb_per_s,
        "client_cpu_s_per_gb": first.client_cpu_s_per_gb,
        "read_mb": read_mb[0],
        "again_mb_per_s": again.mb_per_s,
        "again_cpu_s_per_gb": rows[1]["cpu_s_per_gb"],
        "again_read_mb": read_mb[1],
    }


def _produce(broker: Broker, size_bytes: int) -> None:
    topics.create(broker, _TOPIC)
    sent = loadgen.run(
        *("produce", broker.bootstrap, _TOPIC),
        batch_bytes=_BATCH_BYTES,
        in_flight=IN_FLIGHT,
        bytes=size_bytes,
        seconds=600,
    )
    if sent.bytes < size_bytes // 2:
        raise BenchError(f"only {sent.bytes / 1e6:.0f} MB were produced in ten minutes")


def _read_twice(broker: Broker, connections: int) -> Row:
    loads, rows, read_mb = [], [], []
    for _ in range(2):
        before = process.usage(broker.pid).disk_read_bytes
        meter = Meter(broker)
        done = loadgen.run(
            *("fetch", broker.bootstrap, _TOPIC), **_ALL, connections=connections, in_flight=1
        )
        rows.append(meter.figures(done.seconds, done.bytes))
        read_mb.append((process.usage(broker.pid).disk_read_bytes - before) / 1e6)
        loads.append(done)
    return figures(loads[0], loads[1], rows, read_mb)


def just_produced(size_bytes: int, connections: int) -> Callable[[Stage, Effort], Row]:
    """Produces so much to a fresh broker, reads it at once, and again."""

    def measure(stage: Stage, _: Effort) -> Row:
        broker = stage.prepare()
        stage.start(broker)
        _produce(broker, size_bytes)
        row = _read_twice(broker, connections)
        broker.stop()
        return row

    return measure


def old(connections: int) -> Callable[[Stage, Effort], Row]:
    """Reads 3 GB that are in no memory, twice."""

    def measure(stage: Stage, _: Effort) -> Row:
        broker = stage.prepare()
        stage.start(broker)
        _produce(broker, OLD_BYTES)
        broker.stop()
        broker.forget_cache()
        stage.start(broker)
        topics.wait_until_led(broker, _TOPIC)
        drop_from_page_cache(broker, _TOPIC)
        device = device_mb_per_s(_largest(broker))
        drop_from_page_cache(broker, _TOPIC)
        row = _read_twice(broker, connections)
        broker.stop()
        return {**row, "device_mb_per_s": device, "of_device": row["mb_per_s"] / device}

    return measure


def restarted(stage: Stage, _: Effort) -> Row:
    """A clean restart, then a consumer of the last 2 GB. The page cache stays as it is."""
    broker = stage.prepare()
    stage.start(broker)
    _produce(broker, RESTARTED_BYTES)
    broker.stop()
    stage.start(broker)
    topics.wait_until_led(broker, _TOPIC)
    row = _read_twice(broker, 1)
    broker.stop()
    return row


def _largest(broker: Broker) -> Path:
    folders = (broker.partition_folder(_TOPIC, index) for index in range(topics.PARTITIONS))
    segments = (segment for folder in folders for segment in folder.glob("*.log"))
    return max(segments, key=lambda segment: segment.stat().st_size)


def device_mb_per_s(path: Path) -> float:
    """The device's own sequential speed: up to 1 GB of a file, around the page cache, four reads of
    1 MiB under way."""
    size = min(path.stat().st_size, _DEVICE_BYTES) // _DEVICE_PIECE_BYTES * _DEVICE_PIECE_BYTES
    pieces = iter(range(0, size, _DEVICE_PIECE_BYTES))
    lock = threading.Lock()
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def read() -> None:
        memory = mmap.mmap(-1, _DEVICE_PIECE_BYTES)
        while True:
            with lock:
                position = next(pieces, None)
            if position is None:
                return
            os.preadv(file, [memory], position)

    try:
        began = time.monotonic()
        threads = [threading.Thread(target=read) for _ in range(_DEVICE_REQUESTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return size / 1e6 / (time.monotonic() - began)
    finally:
        os.close(file)


_SHOWN = (
    *("mb_per_s", "cpu_s_per_gb", "read_mb"),
    *("again_mb_per_s", "again_cpu_s_per_gb", "again_read_mb", "p99_ms"),
)


def _scenario(
    name: str,
    title: str,
    measure: Callable[[Stage, Effort], Row],
    size_bytes: int = OLD_BYTES,
    shown: tuple[str, ...] = _SHOWN,
) -> Scenario:
    return Scenario(name, title, measure, False, shown, lambda _: round(1.1 * size_bytes))


SCENARIOS = (
    *(
        _scenario(
            f"just-produced-{count}",
            f"3 GB just produced, read at once and again, {count} connections",
            just_produced(OLD_BYTES, count),
        )
        for count in (1, 3)
    ),
    *(
        _scenario(
            f"started-{megabytes}mb",
            f"{megabytes} MB into a broker that has just started, read at once",
            just_produced(megabytes * 1_000_000, 1),
            megabytes * 1_000_000,
        )
        for megabytes in (300, 1_000)
    ),
    _scenario(
        "restarted-2gb",
        "an orderly restart, then the last 2 GB are read",
        restarted,
        RESTARTED_BYTES,
    ),
    *(
        _scenario(
            f"old-{count}",
            f"old data, nothing cached, and again, {count} connections",
            old(count),
            shown=(*_SHOWN, "device_mb_per_s", "of_device"),
        )
        for count in (1, 3)
    ),
)
