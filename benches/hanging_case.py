"""A hanging disk: one of two log directories stops answering, and others may notice.

Producers send to topics in both directories, at fixed times. In every second phase one directory's
file system is frozen, and all its producers hang. The figure is the other producer's p99 with and
without, in alternating pairs. The hanging topic has more connections than Kafka has I/O threads
(num.io.threads=8), as a real topic has, and gets 100 MB/s: in five seconds more than a broker can
hold back in memory.
"""

import statistics
import time
from pathlib import Path

from benches import frozen_disk, growth, topics
from benches.brokers import BenchError, Broker
from benches.effort import Effort, Row, Scenario
from benches.frozen_disk import FrozenDisk
from benches.loadgen import Running
from benches.meter import Meter
from benches.stage import Stage

# One record a request.
STEADY_REQUESTS_PER_S = 1_000
STEADY_RECORD = {"record_bytes": 1_000, "batch_bytes": 1_200}
HANGING_REQUESTS_PER_S = 1_500
HANGING_RECORD = {"record_bytes": 65_000, "batch_bytes": 65_200}
HANGING_CONNECTIONS = 10
_WARM_S = 1.0
_SETTLE_S = 0.5
_TOPICS_MAX = 20


def measure(stage: Stage, effort: Effort) -> Row:
    with frozen_disk.mounted(stage.folder) as disk:
        steady_dir, hanging_dir = stage.folder / "steady", disk.path / "logs"
        for log_dir in (steady_dir, hanging_dir):
            log_dir.mkdir()
        broker = stage.prepare((steady_dir, hanging_dir))
        try:
            stage.start(broker)
            return _measure(broker, disk, effort)
        finally:
            broker.remove()  # before its file system goes


def _measure(broker: Broker, disk: FrozenDisk, effort: Effort) -> Row:
    steady, hanging = _topics_in(broker, *broker.log_dirs)
    topics.fill(broker, effort.fill_bytes // 2, steady)
    run = _Phase(broker, disk, steady, hanging, effort.hang_seconds)
    run.measure(frozen=False)  # not counted: JIT warm-up
    meter = Meter(broker)
    pairs = growth.alternate(
        effort.hang_pairs, lambda: run.measure(frozen=False), lambda: run.measure(frozen=True)
    )
    grown = growth.of(pairs)
    return {
        **meter.figures(2 * effort.hang_pairs * effort.hang_seconds, 0),
        "phases": effort.hang_pairs,
        "quiet_p99_ms": statistics.median(quiet for quiet, _ in pairs),
        "frozen_p99_ms": statistics.median(frozen for _, frozen in pairs),
        "p99_growth": grown.median,
        "p99_growth_low": grown.low,
        "p99_growth_high": grown.high,
    }


def _topics_in(broker: Broker, *log_dirs: Path) -> list[str]:
    """A topic of one partition in each directory: brokers put a new one into the emptiest."""
    found: dict[Path, str] = {}
    for number in range(_TOPICS_MAX):
        topic = f"disk-{number}"
        topics.create(broker, topic, 1)
        found.setdefault(_wait_for_folder(broker, topic).parent, topic)
        if len(found) == len(log_dirs):
            return [found[log_dir] for log_dir in log_dirs]
    raise BenchError(f"{broker.name} puts all of {_TOPICS_MAX} topics into {list(found)}")


def _wait_for_folder(broker: Broker, topic: str) -> Path:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        folder = broker.partition_folder(topic, 0)
        if folder.exists():
            return folder
        time.sleep(0.01)
    raise BenchError(f"{broker.name} made no folder for {topic}")


class _Phase:
    def __init__(
        self, broker: Broker, disk: FrozenDisk, steady: str, hanging: str, seconds: float
    ) -> None:
        self._broker = broker
        self._disk = disk
        self._steady = steady
        self._hanging = hanging
        self._seconds = seconds

    def measure(self, *, frozen: bool) -> float:
        """The p99 of the producer to the steady directory, in milliseconds."""
        window = {"warmup_seconds": _WARM_S, "seconds": self._seconds, "timeout_seconds": 60}
        place = self._broker.bootstrap
        hanging = Running(
            *("produce", place, self._hanging),
            connections=HANGING_CONNECTIONS,
            rate=HANGING_REQUESTS_PER_S,
            bytes=10**12,
            **HANGING_RECORD,
            **window,
        )
        steady = Running(
            *("produce", place, self._steady),
            rate=STEADY_REQUESTS_PER_S,
            **STEADY_RECORD,
            **window,
        )
        with hanging, steady:
            time.sleep(_WARM_S / 2)
            if frozen:
                with self._disk.frozen():
                    time.sleep(_WARM_S / 2 + self._seconds)
            else:
                self._disk.sync()
                time.sleep(_WARM_S / 2 + self._seconds)
            found = steady.result().latency_ms["p99"]
            # Refusals of the others do not matter for this figure.
            hanging.output()
        time.sleep(_SETTLE_S)
        return found


SCENARIO = Scenario(
    name="hanging-disk",
    title="the disk of another topic hangs",
    measure=measure,
    quick=False,
    shown=("quiet_p99_ms", "frozen_p99_ms", "p99_growth", "p99_growth_low", "p99_growth_high"),
    disk_bytes=lambda effort: (
        effort.fill_bytes
        + round((2 * effort.hang_pairs + 1) * (effort.hang_seconds + _WARM_S) * 100_000_000)
    ),
)
