"""Programs of Spark that tests start, and kill once they are under way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.waiting import wait_until

STARTS_MAX = 3
# Spark gives a new Python process ten seconds, which a machine with much else to do may exceed.
_NOT_STARTED = "Timed out while waiting for the Python worker to connect back"


def run_and_kill(
    module: str, arguments: list[str], log: Path, is_under_way: Callable[[], bool], wait_s: float
) -> None:
    """Runs ``python -m module`` until ``is_under_way``, and kills it with its Java virtual machine.
    A program that ended because a Python process of its own was late is started again, as an
    operator would do: its checkpoints go on."""
    starts = 0
    process: subprocess.Popen[bytes] | None = None

    def has_begun() -> bool:
        nonlocal starts, process
        if process is not None and process.poll() is not None:
            said = log.read_text()
            assert _NOT_STARTED in said, said[-3000:]
            assert starts < STARTS_MAX, said[-3000:]
            process = None
        if process is None:
            starts += 1
            with log.open("w") as errors:
                process = subprocess.Popen(
                    [sys.executable, "-m", module, *arguments],
                    stdout=errors,
                    stderr=errors,
                    start_new_session=True,
                )
        return is_under_way()

    try:
        wait_until(has_begun, "a pipeline does not begin", wait_s)
    finally:
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
