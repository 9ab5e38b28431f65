"""Work on the broker's own thread that clients ask for: a fifth of a core at most."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

OFFSET_SECONDS = 20e-6
"""What looking at the lag of one offset takes, about."""
REST = 4
"""How many times as long as a turn has worked none begins."""


@dataclass
class Work:
    """Of a turn: the offsets that it has looked at."""

    offsets: int = 0


class Pace:
    """One turn at a time, in the order of arrival, and a rest after each."""

    def __init__(self) -> None:
        self._lock = trio.Lock()
        self._rested_at = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Work]:
        work = Work()
        async with self._lock:
            await trio.sleep_until(self._rested_at)
            try:
                yield work
            finally:
                self._rested_at = trio.current_time() + REST * OFFSET_SECONDS * work.offsets
