"""How many decoded requests there may be at a time.

A request takes some thirty times its bytes once it is decoded. Those of the control plane that are
worked on by tasks are decoded in turn, by the task, and together they are as large as this allows;
the others wait as the bytes that they came as.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

Result = TypeVar("Result")

EXPANSION = 32
"""Bytes of memory for each byte of a body, at worst: an array of two-letter names."""
SMALL_BYTES = 1024
"""Bodies up to here are decoded at once and not counted."""
MEMORY_SHARE = 64
ROOM_SECONDS = 20.0
"""How long a request waits for its turn; then there is no answer, and its connection is closed."""
DECODED_MAX_BYTES = 50 << 20
"""What is decoded at a time of clients, and of brokers, takes a share of the machine's memory, up
to this much (isolation.md)."""


class Decoding:
    """See the module."""

    def __init__(self, max_bytes: int = DECODED_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._turn = trio.Lock()
        self._given_back = trio.Event()

    async def decode(
        self, body_bytes: int, decode: Callable[[], Result]
    ) -> tuple[Result, int] | None:
        """What ``decode`` returns, in the order of the calls, when there is room; and its size for
        :meth:`give_back`, in bytes. None when there was no room for so long. Raises what ``decode``
        does."""
        if body_bytes <= SMALL_BYTES:
            return decode(), 0
        size = min(body_bytes * EXPANSION, self._max_bytes)
        with trio.move_on_after(ROOM_SECONDS):
            # To take the lock lets the loop turn to others, between any two of these.
            async with self._turn:
                while self._held_bytes + size > self._max_bytes:
                    self._given_back = trio.Event()
                    await self._given_back.wait()
                decoded = decode()
                self._held_bytes += size
                return decoded, size
        return None

    def give_back(self, size: int) -> None:
        """A decoded request is gone."""
        self._held_bytes -= size
        self._given_back.set()
