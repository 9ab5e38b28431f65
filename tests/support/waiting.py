"""How a test waits for what it cannot be told: by looking again and again, with a deadline.

No test sleeps and takes for granted that something has come about meanwhile.
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
    """Looks until the condition gives something that is true, and returns that; AssertionError
    with ``otherwise`` where it is late."""
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
    """Waits for a server that was started; AssertionError with its output where it has ended or is
    late."""

    def is_up() -> bool:
        assert process.poll() is None, output.read_text()
        return serves()

    wait_until(is_up, output.read_text, seconds)
