"""Runs rust/loadgen and reads its result."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.brokers import ROOT, BenchError

PROGRAM = ROOT / "target" / "release" / "pyrklog-loadgen"


@dataclass(frozen=True)
class Load:
    """What one run of the generator counted. Times are seconds unless the name says otherwise."""

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


def parse(text: str) -> Load:
    """Reads the generator's line of JSON; BenchError when replies had errors or records were lost.

    A measurement with errors in it measures something else than what its name says.
    """
    result: dict[str, Any] = json.loads(text)
    if result["errors"]:
        raise BenchError(f"{result['mode']} on {result['topic']}: errors {result['errors']}")
    if result["lost"]:
        raise BenchError(f"{result['mode']} on {result['topic']}: {result['lost']} records lost")
    return Load(**{name: result[name] for name in Load.__dataclass_fields__})


def run(mode: str, bootstrap: str, topic: str, **options: int | float | bool) -> Load:
    """Runs one mode; keyword `batch_bytes=1024` is given as `--batch-bytes 1024`."""
    if not PROGRAM.exists():
        raise BenchError(f"{PROGRAM} is missing: run `cargo build --release -p pyrklog-loadgen`")
    command = [str(PROGRAM), mode, "--bootstrap", bootstrap, "--topic", topic]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            command.append(flag)
        elif value is not False:
            command += [flag, str(value)]
    done = subprocess.run(command, capture_output=True, text=True)
    if not done.stdout:
        raise BenchError(f"{mode} on {topic}: {done.stderr.strip() or 'no output'}")
    return parse(done.stdout)


def segment_bytes(folder: Path) -> int:
    """Bytes of all segments of one partition; 0 while its folder is not there."""
    total = 0
    for segment in folder.glob("*.log"):
        try:
            total += segment.stat().st_size
        except FileNotFoundError:
            pass  # removed between listing and looking
    return total
