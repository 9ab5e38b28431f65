"""Waits for what a test cannot be told: polls, with a deadline.

No test sleeps and assumes that something has happened.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

PATIENCE_S = 60.0
_PAUSE_MIN_S = 0.001
_PAUSE_MAX_S = 0.05

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T | None],
    otherwise: str | Callable[[], str],
    seconds: float = PATIENCE_S,
) -> T:
    """Polls until the condition returns a true value; returns it. AssertionError with ``otherwise``
    if that takes too long."""
    deadline = time.monotonic() + seconds
    pause_s = _PAUSE_MIN_S
    while not (found := condition()):
        is_late = time.monotonic() >= deadline
        assert not is_late, otherwise if isinstance(otherwise, str) else otherwise()
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)
    return found


def wait_until_serves(
    process: subprocess.Popen[bytes], output: Path, serves: Callable[[], bool], seconds: float
) -> None:
    """Waits for a started server; AssertionError with its output if it has ended or is late."""

    def is_up() -> bool:
        assert process.poll() is None, output.read_text()
        return serves()

    wait_until(is_up, output.read_text, seconds)
