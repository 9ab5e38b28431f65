"""Rate limit for messages, for a bounded number of keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable


class Told:
    """Keys of the last ``seconds``, at most ``most``.

    Further keys are suppressed until an older one expires: chosen keys fill neither memory nor log.
    """

    def __init__(
        self, seconds: float, most: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._at: dict[Hashable, float] = {}
        """Oldest first."""

    def is_due(self, key: Hashable) -> bool:
        """Whether to tell it now; then it counts as told."""
        now = self._clock()
        while self._at and next(iter(self._at.values())) <= now - self._seconds:
            del self._at[next(iter(self._at))]
        if key in self._at or len(self._at) >= self._most:
            return False
        self._at[key] = now
        return True
