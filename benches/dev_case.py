"""``pyrklog dev start -n 3``: a ZooKeeper and three brokers, until the command says ready."""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benches.brokers import BenchError, Unavailable
from benches.effort import Effort, Row, Scenario
from benches.stage import Stage


def measure(stage: Stage, effort: Effort) -> Row:
    """Wall time of the command; the median of several starts, each in a folder of its own."""
    if stage.name != "pyrklog":
        raise Unavailable("Apache Kafka has no such command")
    took = []
    for number in range(5 if effort.pairs > 1 else 1):
        home = stage.folder / f"home{number}"
        home.mkdir()
        began = time.monotonic()
        try:
            _dev(home, "start", "-n", "3")
            took.append(time.monotonic() - began)
        finally:
            _dev(home, "purge")
    return {"startup_s": statistics.median(took)}


def _dev(home: Path, *arguments: str) -> None:
    program = Path(sys.executable).with_name("pyrklog")
    environment = {
        **os.environ,
        "HOME": str(home),
        "XDG_DATA_HOME": str(home),
        "PYRKLOG_CONFIG": str(home / "config.toml"),
    }
    done = subprocess.run(
        [str(program), "dev", *arguments], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        raise BenchError(f"pyrklog dev {' '.join(arguments)}:\n{done.stdout}{done.stderr}")


SCENARIO = Scenario(
    name="dev-start",
    title="dev start -n 3",
    measure=measure,
    quick=True,
    shown=("startup_s",),
    disk_bytes=lambda effort: 0,
)
