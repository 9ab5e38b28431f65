"""Limits the memory of decoded requests.

A decoded request takes some thirty times its bytes. Control-plane requests that tasks handle are
decoded by their task, one after the other, within a common limit; others wait undecoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

Result = TypeVar("Result")

EXPANSION = 32
"""Bytes of memory for each byte of a body, at worst: an array of two-letter names."""
SMALL_BYTES = 1024
"""Smaller bodies are decoded at once and not counted."""
MEMORY_SHARE = 64
ROOM_SECONDS = 20.0
"""Longest wait of a request for memory; then its connection is closed without an answer."""
DECODED_MAX_BYTES = 50 << 20
"""Most memory of clients' decoded requests, and of brokers'; a share of the machine's memory if
that is less (isolation.md)."""


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
        """Calls ``decode`` once there is room, in the order of the calls. Returns its result and
        the size in bytes for :meth:`give_back`, or None without room for too long. Raises what
        ``decode`` raises."""
        if body_bytes <= SMALL_BYTES:
            return decode(), 0
        size = min(body_bytes * EXPANSION, self._max_bytes)
        with trio.move_on_after(ROOM_SECONDS):
            # Taking the lock is a checkpoint between any two of these.
            async with self._turn:
                while self._held_bytes + size > self._max_bytes:
                    self._given_back = trio.Event()
                    await self._given_back.wait()
                decoded = decode()
                self._held_bytes += size
                return decoded, size
        return None

    def give_back(self, size: int) -> None:
        """The decoded request is freed."""
        self._held_bytes -= size
        self._given_back.set()
