import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.brokers import ROOT, BenchError

PROGRAM = ROOT / "target" / "release" / "pyrklog-loadgen"


@dataclass(frozen=True)
class Load:
    """One run's counts. Times are seconds unless the name says otherwise."""

    bytes: int
    records: int
    requests: int
    mb_per_s: float
    records_per_s: float
    requests_per_s: float
    latency_ms: dict[str, float]
    client_cpu_s_per_gb: float
    started_ns: int
    finished_ns: int

    @property
    def seconds(self) -> float:
        """From the start to the last answer."""
        return (self.finished_ns - self.started_ns) / 1e9


@dataclass(frozen=True)
class Served:
    """When a probe saw what of a topic with so many partitions; CLOCK_MONOTONIC."""

    partitions: int
    produced_ns: int
    led_ns: int
    read_ns: int


def parse(text: str) -> Load:
    """Parses the generator's line of JSON. Raises BenchError if replies had errors or records were
    lost: the run did not measure what its name says."""
    result: dict[str, Any] = json.loads(text)
    if result["errors"]:
        raise BenchError(f"{result['mode']} on {result['topic']}: errors {result['errors']}")
    if result["lost"]:
        raise BenchError(f"{result['mode']} on {result['topic']}: {result['lost']} records lost")
    return Load(**{name: result[name] for name in Load.__dataclass_fields__})


def parse_served(text: str) -> Served:
    result: dict[str, Any] = json.loads(text)
    return Served(**{name: result[name] for name in Served.__dataclass_fields__})


def _command(mode: str, bootstrap: str, topic: str, options: dict[str, Any]) -> list[str]:
    if not PROGRAM.exists():
        raise BenchError(f"{PROGRAM} is missing: run `cargo build --release -p pyrklog-loadgen`")
    command = [str(PROGRAM), mode, "--bootstrap", bootstrap, "--topic", topic]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            command.append(flag)
        elif value is not False:
            command += [flag, str(value)]
    return command


class Running:
    """A running generator. Leaving the ``with`` block ends it."""

    def __init__(
        self, mode: str, bootstrap: str, topic: str, /, **options: int | float | bool | str
    ) -> None:
        self._name = f"{mode} on {topic}"
        self._complaints = ""
        self._process = subprocess.Popen(
            _command(mode, bootstrap, topic, options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def wait_until_started(self) -> None:
        """With ``announce``: waits until all connections exist and work begins. If the generator
        fails before, it has ended, and :meth:`output` says why."""
        assert self._process.stderr is not None
        self._complaints = self._process.stderr.readline()

    def output(self) -> str:
        """Waits for its end and returns its output; ends one that runs ``until_eof``."""
        output, rest = self._process.communicate()
        if not output:
            complaints = self._complaints + rest
            raise BenchError(f"{self._name}: {complaints.strip() or 'no output'}")
        return output

    def result(self) -> Load:
        return parse(self.output())


def run(mode: str, bootstrap: str, topic: str, /, **options: int | float | bool | str) -> Load:
    """Runs one mode; keyword ``batch_bytes=1024`` becomes ``--batch-bytes 1024``."""
    with Running(mode, bootstrap, topic, **options) as running:
        return running.result()


def segment_bytes(folder: Path) -> tuple[int, float]:
    """Bytes of a partition's segments, and the last write's time (wall clock, seconds); zeros
    without a folder."""
    total, written = 0, 0.0
    for segment in folder.glob("*.log"):
        try:
            found = segment.stat()
        except FileNotFoundError:
            continue  # removed between listing and looking
        total += found.st_size
        written = max(written, found.st_mtime)
    return total, written
