"""Memory: the first gigabytes of a fresh broker, all that was produced, and a neighbour.

These brokers are in no memory cgroup: the cases measure how they share the whole machine. The
neighbour case is only for our broker, the only one with memory to release.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benches import loadgen, process, topics
from benches.brokers import Broker, Unavailable
from benches.effort import Effort, Row, Scenario
from benches.meter import Meter, latencies
from benches.stage import Stage

TOPIC = "memory"
_BATCH_BYTES = 131_072
_CONNECTIONS = 4
# The cap of our broker's cache, by default.
_CAP_SHARE = 0.6
_NEIGHBOUR_SHARE = 0.5
_NEIGHBOUR_SECONDS = 5
# Cached before the neighbour comes, of all memory: 10 of 24 GB.
_CACHED_SHARE = 10 / 24
# A virtual machine returns free memory to its host within this time. Then the neighbour touches all
# of its memory for the first time, with and without a broker.
_GIVEN_BACK_SECONDS = 60
# The rate of produce beside the neighbour leaves the neighbour a processor.
_BESIDE_BYTES_PER_S = 40_000_000
_BESIDE_BATCH_BYTES = 16_384

# Takes ARGV[1] bytes in steps within ARGV[2] seconds, touching every page; prints the time of all
# and of the slowest step.
_NEIGHBOUR = """
import mmap, sys, time
total, seconds, steps = int(sys.argv[1]), float(sys.argv[2]), 100
step = total // steps // mmap.PAGESIZE * mmap.PAGESIZE
held, began, slowest = [], time.monotonic(), 0.0
for number in range(steps):
    time.sleep(max(0.0, began + seconds * number / steps - time.monotonic()))
    step_began = time.monotonic()
    memory = mmap.mmap(-1, step)
    for at in range(0, step, mmap.PAGESIZE):
        memory[at] = 1
    held.append(memory)
    slowest = max(slowest, time.monotonic() - step_began)
print(time.monotonic() - began, slowest, flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Taken:
    seconds: float
    slowest_step_s: float


def fresh(stage: Stage, effort: Effort) -> Row:
    """128 KB batches on four connections: the first gigabytes of a broker that has just started.

    ``warm_mb_per_s`` is the same work afterwards, when the cache is at its cap and all its pages
    were touched; ``fresh_per_warm`` is the ratio of both.
    """
    broker = _started(stage)
    topics.create(broker, TOPIC)
    meter = Meter(broker)
    first = _produce(broker, effort.memory_bytes // 2)
    row = {**latencies(first), **meter.figures(first.seconds, first.bytes)}
    cap_bytes = round(_memory_bytes() * _CAP_SHARE)
    _produce(broker, max(0, cap_bytes - first.bytes))
    warm = _produce(broker, effort.memory_bytes // 2)
    broker.stop()
    row |= {"mb_per_s": first.mb_per_s, "warm_mb_per_s": warm.mb_per_s}
    return row | {"fresh_per_warm": first.mb_per_s / warm.mb_per_s}


def held(stage: Stage, effort: Effort) -> Row:
    """Produces 8 GB at full speed, then reads all: the disk's part of it, and the block cache's
    memory for it (``populated_per_held``; 0 without a block cache)."""
    broker = _started(stage)
    topics.create(broker, TOPIC)
    sent = _produce(broker, effort.memory_bytes)
    topics.wait_for_files(broker, TOPIC, sent.bytes)
    before = process.usage(broker.pid).disk_read_bytes
    meter = Meter(broker)
    read = loadgen.run(
        *("fetch", broker.bootstrap, TOPIC),
        connections=3,
        last_records=sent.records,
        seconds=600,
        bytes=2 * sent.bytes,
    )
    figures = meter.figures(read.seconds, read.bytes)
    from_disk = process.usage(broker.pid).disk_read_bytes - before
    row = {
        **latencies(read),
        **figures,
        "mb_per_s": read.mb_per_s,
        "read_disk_mb": from_disk / 1e6,
        "populated_per_held": _arena_bytes(broker) / sent.bytes,
    }
    broker.stop()
    return row


def neighbour(stage: Stage, _: Effort) -> Row:
    """A process takes half of the machine's memory within five seconds, while the cache holds 10 of
    24 GB during produce. Figures: its time compared with that on an empty machine, the producer's
    p99.9, and the cache's memory afterwards. No process may be killed."""
    if stage.name != "pyrklog":
        raise Unavailable("its page cache is the kernel's")
    wanted = round(_memory_bytes() * _NEIGHBOUR_SHARE)
    time.sleep(_GIVEN_BACK_SECONDS)
    empty = _take(wanted, lambda: None)
    broker = _started(stage)
    topics.create(broker, TOPIC)
    sent = _produce(broker, round(_memory_bytes() * _CACHED_SHARE))
    cached = _arena_bytes(broker)
    time.sleep(_GIVEN_BACK_SECONDS)
    left: list[int] = []
    with loadgen.Running(
        *("produce", broker.bootstrap, TOPIC),
        batch_bytes=_BESIDE_BATCH_BYTES,
        rate=_BESIDE_BYTES_PER_S * sent.records / sent.bytes,
        seconds=_NEIGHBOUR_SECONDS + 3,
        bytes=10**15,
        announce=True,
    ) as producer:
        producer.wait_until_started()
        taken = _take(wanted, lambda: left.append(_arena_bytes(broker)))
        done = producer.result()
    row = {
        **{f"producer_{name}": value for name, value in latencies(done).items()},
        "neighbour_s": taken.seconds,
        "neighbour_growth": taken.seconds / empty.seconds,
        "neighbour_slowest_s": taken.slowest_step_s,
        "cached_gb": cached / 1e9,
        "cached_after_gb": left[0] / 1e9,
    }
    broker.stop()
    return row


def _started(stage: Stage) -> Broker:
    broker = stage.prepare()
    broker.start(None)
    return broker


def _produce(broker: Broker, count: int) -> loadgen.Load:
    return loadgen.run(
        *("produce", broker.bootstrap, TOPIC),
        connections=_CONNECTIONS,
        batch_bytes=_BATCH_BYTES,
        bytes=max(count, _BATCH_BYTES),
        seconds=3_600,
    )


def _take(count: int, at_end: Callable[[], None]) -> Taken:
    """Runs a neighbour with ``count`` bytes. Raises BenchError if it was killed."""
    command = [sys.executable, "-c", _NEIGHBOUR, str(count), str(_NEIGHBOUR_SECONDS)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        words = child.stdout.readline().split()
        at_end()
        child.communicate()
    if child.returncode or len(words) != 2:
        raise Unavailable(f"the neighbour ended with {child.returncode}")
    return Taken(float(words[0]), float(words[1]))


def _memory_bytes() -> int:
    meminfo = Path("/proc/meminfo").read_text().split()
    return int(meminfo[meminfo.index("MemTotal:") + 1]) * 1024


def _arena_bytes(broker: Broker) -> int:
    count = 0
    for marker in (log_dir / ".pyrklog-arena" for log_dir in broker.log_dirs):
        if marker.exists():
            lines = [line.partition("=") for line in marker.read_text().splitlines()]
            paths = [Path(value) for name, _, value in lines if name == "path"]
            count += sum(path.stat().st_blocks * 512 for path in paths)
    return count


SCENARIOS = (
    Scenario(
        name="memory-fresh",
        title="128 KB, 4 connections, first GB of a fresh broker",
        measure=fresh,
        quick=False,
        shown=("mb_per_s", "warm_mb_per_s", "fresh_per_warm", "p99_ms", "cpu_s_per_gb"),
        disk_bytes=lambda effort: effort.memory_bytes + round(_memory_bytes() * _CAP_SHARE),
    ),
    Scenario(
        name="memory-held",
        title="8 GB at full speed, then all of it is read",
        measure=held,
        quick=False,
        shown=("read_disk_mb", "populated_per_held", "mb_per_s", "cpu_s_per_gb"),
        disk_bytes=lambda effort: effort.memory_bytes,
    ),
    Scenario(
        name="memory-neighbour",
        title="a neighbour takes half of the memory within 5 s",
        measure=neighbour,
        quick=False,
        shown=(
            *("neighbour_s", "neighbour_growth", "neighbour_slowest_s"),
            *("producer_p99.9_ms", "cached_gb", "cached_after_gb"),
        ),
        disk_bytes=lambda _: round(_memory_bytes() * _CACHED_SHARE) + 1_000_000_000,
    ),
)
