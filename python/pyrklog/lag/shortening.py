"""Histories that have no room lose their older halves, a few of them at a time. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

LOOKED_MAX = 8
"""Histories that one step looks at."""
STEPS_A_TURN = 50
ASKED_MS = 3_600_000
"""Histories that were asked for within the same hour are equal: then long ones go first."""


class Shortened(Protocol):
    asked_ms: int

    @property
    def points(self) -> int: ...

    @property
    def is_long(self) -> bool: ...

    def halve(self) -> int: ...


class Shortening:
    """Goes round and round over all histories."""

    def __init__(self, by_key: Mapping[Any, Shortened]) -> None:
        self._by_key = by_key
        self._left: list[Any] = []
        """Keys that this round has not looked at yet."""

    def step(self) -> int:
        """Halves one of the next histories: the one that nobody has asked for longest. Returns the
        number of points forgotten, 0 where none of these can be halved."""
        found: list[Shortened] = []
        for _ in range(LOOKED_MAX):
            if not self._left:
                self._left = list(self._by_key)
                if not self._left:
                    break
            history = self._by_key.get(self._left.pop())
            if history is not None and history.is_long:
                found.append(history)
        if not found:
            return 0
        return min(found, key=lambda one: (one.asked_ms // ASKED_MS, -one.points)).halve()

    def turns(self) -> Iterator[int]:
        """Steps until no history can be halved; points forgotten, turn by turn."""
        idle = 0
        while idle < 2 * len(self._by_key):
            forgotten = 0
            for _ in range(STEPS_A_TURN):
                freed = self.step()
                idle = 0 if freed else idle + LOOKED_MAX
                forgotten += freed
            yield forgotten
