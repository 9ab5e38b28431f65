"""Deadlines, most of them postponed repeatedly.

A heartbeat postpones its member's deadline. A later deadline of a known key only changes a number;
the heap is corrected when the old entry comes up.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

STALE_ENTRIES_MIN = 64
"""Stale entries kept for any number of timers."""


class TimerQueue(Generic[Key]):
    """Timers by key, in one unit of the caller's choice."""

    def __init__(self) -> None:
        self._deadlines: dict[Key, float] = {}
        self._queued: dict[Key, float] = {}
        """The earliest entry of each key in the heap."""
        self._heap: list[tuple[float, int, Key]] = []
        self._entries = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._deadlines)

    def __contains__(self, key: Key) -> bool:
        return key in self._deadlines

    def set(self, key: Key, deadline: float) -> None:
        self._deadlines[key] = deadline
        queued = self._queued.get(key)
        if queued is None or deadline < queued:
            self._push(key, deadline)

    def cancel(self, key: Key) -> None:
        if self._deadlines.pop(key, None) is not None:
            # Its heap entry is skipped later.
            self._shrink()

    def next_deadline(self) -> float | None:
        """When to call :meth:`pop_due`, not later than the next timer; None without timers."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> Key | None:
        """The earliest ended timer, if any."""
        while True:
            self._drop_stale()
            if not self._heap or self._heap[0][0] > now:
                return None
            at, _, key = heappop(self._heap)
            del self._queued[key]
            deadline = self._deadlines[key]
            if deadline <= at:
                del self._deadlines[key]
                return key
            self._push(key, deadline)

    def _push(self, key: Key, deadline: float) -> None:
        self._entries += 1
        self._queued[key] = deadline
        heappush(self._heap, (deadline, self._entries, key))
        self._shrink()

    def _drop_stale(self) -> None:
        """Removes top entries whose timer is gone or has an earlier entry."""
        while self._heap:
            at, _, key = self._heap[0]
            if key in self._deadlines and self._queued.get(key) == at:
                return
            heappop(self._heap)
            if self._queued.get(key) == at:
                del self._queued[key]

    def _shrink(self) -> None:
        if len(self._heap) > STALE_ENTRIES_MIN + 2 * len(self._deadlines):
            self._heap = [
                (at, number, key) for number, (key, at) in enumerate(self._deadlines.items())
            ]
            self._entries = len(self._heap)
            self._queued = dict(self._deadlines)
            heapify(self._heap)
