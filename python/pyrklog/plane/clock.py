"""The time of day, as this broker takes it: the machine's, but for a broker started for tests."""

from __future__ import annotations

import time

_ahead_ms = 0


def wall_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000 + _ahead_ms


def set_ahead_ms(ahead_ms: int) -> None:
    """Sets the time of day so far ahead of the machine's, here and in the data plane."""
    global _ahead_ms
    from pyrklog import _core

    _core.set_clock_ahead_ms(ahead_ms)
    _ahead_ms = ahead_ms
