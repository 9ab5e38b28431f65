"""Another clock, as it was read between two times of one's own."""

from __future__ import annotations

import time
from typing import NamedTuple


class ClockReading(NamedTuple):
    """Milliseconds since the epoch."""

    before_ms: int
    other_ms: int
    after_ms: int

    @property
    def least_ahead_ms(self) -> int:
        """The other clock is ahead by so much at least; negative if it may be behind."""
        return self.other_ms - self.after_ms

    @property
    def most_ahead_ms(self) -> int:
        """The other clock is ahead by so much at most."""
        return self.other_ms - self.before_ms

    def ahead_of(self, another: ClockReading) -> int:
        """By how much this clock is ahead of another one for certain; negative: behind."""
        if self.least_ahead_ms > another.most_ahead_ms:
            return self.least_ahead_ms - another.most_ahead_ms
        return min(0, self.most_ahead_ms - another.least_ahead_ms)


OWN = ClockReading(0, 0, 0)
"""One's own clock."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000
