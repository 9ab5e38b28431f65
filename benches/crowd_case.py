"""10,000 partitions: throughput beside that of 6 on the same broker, memory, time to start."""

import subprocess
import time
from dataclasses import replace
from pathlib import Path

from benches import brokers, loadgen, process, topics
from benches.brokers import BenchError, Broker
from benches.effort import Effort, Row, Scenario
from benches.meter import memory
from benches.produce_cases import Work
from benches.stage import MEMORY_BYTES, Stage

BATCH_BYTES = 16_384
CONNECTIONS = 2
_START_TIMEOUT_S = 900.0
# pyrklog's memory for pieces in the benchmark's cgroup: the block cache has 60 %, half of that may
# be unwritten, and an eighth is kept free for new records. Pieces are written in turn, so on
# average half of them is there.
_PIECES_BYTES = 2 * 7 * MEMORY_BYTES * 6 // 10 // 2 // 8
_PIECE_MAX_BYTES = 1 << 20
_WRITERS = 8


def work(partitions: int) -> Work:
    return Work(BATCH_BYTES, CONNECTIONS, partitions=partitions)


def measure(stage: Stage, effort: Effort) -> Row:
    """16 KB batches, two connections: to 6 partitions, then to many; then a restart.

    ``of_six`` compares fresh topics, whose files are created during the work; ``of_six_again``
    repeats it on topics with files. ``own_kb_per_partition`` is the growth of the broker's resident
    memory, without shared memory, from the end of the work with 6 partitions to that with many.
    """
    if stage.name == "floor":
        return _floor(stage.folder, effort)
    broker = stage.prepare()
    stage.start(broker)
    topics.fill(broker, effort.fill_bytes)
    long = replace(effort, measure_bytes=effort.crowd_bytes)
    _, six, six_again = _twice(broker, topics.PARTITIONS, long)
    topics.remove_all(broker)
    before = process.usage(broker.pid)
    many = effort.many_partitions
    create_s, row, again = _twice(broker, many, long)
    after = process.usage(broker.pid)
    broker.stop()
    began = time.monotonic()
    startup_s = stage.start(broker, _START_TIMEOUT_S)
    patience = {"timeout_seconds": _START_TIMEOUT_S}
    with loadgen.Running("probe", broker.bootstrap, work(many).topic, **patience) as probe:
        led = loadgen.parse_served(probe.output())
    row |= {
        **memory(after),
        "create_s": create_s,
        "of_six": row["mb_per_s"] / six["mb_per_s"],
        "of_six_again": again["mb_per_s"] / six_again["mb_per_s"],
        "own_kb_per_partition": (after.own_rss_bytes - before.own_rss_bytes) / 1e3 / many,
        "startup_s": startup_s,
        "led_s": led.led_ns / 1e9 - began,
    }
    broker.stop()
    return row


def _floor(folder: Path, effort: Effort) -> Row:
    """The disk alone: pieces as large as that memory allows, to 6 files, and to many.

    Raises BenchError when the program fails.
    """
    program = str(brokers.floors())

    def mb_per_s(files: int) -> float:
        piece_bytes = min(_PIECES_BYTES // files, _PIECE_MAX_BYTES)
        numbers = (files, piece_bytes, effort.crowd_bytes, _WRITERS)
        command = [program, "pieces", str(folder / f"of-{files}"), *map(str, numbers)]
        ran = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=brokers.raise_open_files,
        )
        if ran.returncode != 0:
            raise BenchError(f"floor: {ran.stderr.strip()}")
        return float(ran.stdout)

    six = mb_per_s(topics.PARTITIONS)
    many = mb_per_s(effort.many_partitions)
    return {"mb_per_s": many, "of_six": many / six, "partitions": effort.many_partitions}


def _twice(broker: Broker, partitions: int, effort: Effort) -> tuple[float, Row, Row]:
    """Seconds to create the topic; the work on it while fresh, and again."""
    some = work(partitions)
    create_s = some.create(broker)
    fresh = some.measure(broker, effort, 0)
    return create_s, fresh, some.measure(broker, effort, round(fresh["bytes"]))


SCENARIO = Scenario(
    name="partitions10000",
    title="produce 16 KB, 10,000 partitions",
    measure=measure,
    quick=False,
    shown=(
        "mb_per_s",
        "cpu_s_per_gb",
        "p99_ms",
        "of_six",
        "of_six_again",
        "create_s",
        "startup_s",
        "led_s",
        "own_kb_per_partition",
        "partitions",
    ),
    disk_bytes=lambda effort: effort.fill_bytes + 2 * effort.crowd_bytes,
    floor=True,
)
