"""Waiting for a condition over state that this thread changes."""

from __future__ import annotations

from collections.abc import Callable

import trio


class Changes:
    """Wakes waiters at each change; they check their condition."""

    def __init__(self) -> None:
        self._next = trio.Event()

    def notify(self) -> None:
        self._next.set()
        self._next = trio.Event()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        await trio.lowlevel.checkpoint()
        while not condition():
            await self._next.wait()
