"""How large a mirror's transactions are, and how long they may be open.

A coordinator aborts a transaction that is open for longer than its time-out. A target that takes
bytes slowly is so given smaller ones: as many bytes as it took before in a quarter of that time.
"""

from __future__ import annotations

TIMEOUT_MS = 60_000
"""Also how long a mirror that dies hides what others write behind its open transaction."""
TIMEOUT_MS_MAX = 900_000
"""What brokers allow by default (``transaction.max.timeout.ms``)."""
BYTES_MAX = 256 << 20
BYTES_MIN = 256 << 10
BATCH_BYTES_MIN = 64 << 10
_BATCHES = 4
"""At least so many fit into a transaction, unless a single record is larger."""


class TransactionSize:
    """Of one target, over all sessions. Bytes are those of keys, values and headers."""

    def __init__(self) -> None:
        self.bytes = BYTES_MAX
        self.timeout_ms = TIMEOUT_MS

    @property
    def delivery_timeout_ms(self) -> int:
        """How long the target may be away: less than a transaction may be open."""
        return self.timeout_ms * 3 // 4

    @property
    def request_timeout_ms(self) -> int:
        return self.timeout_ms // 2

    @property
    def goal_s(self) -> float:
        """How long the target is to take for a transaction, at most."""
        return self.timeout_ms / 4000

    def took(self, written: int, seconds: float) -> None:
        """So many bytes were written and committed in so long."""
        if seconds > self.goal_s:
            self._limit(int(min(written, self.bytes) * self.goal_s / seconds))
        elif 2 * written >= self.bytes and 2 * seconds < self.goal_s:
            self._limit(2 * self.bytes)

    def timed_out(self, written: int, *, is_ended: bool) -> bool:
        """After a transaction that was given up, of so many bytes. ``is_ended``: its coordinator
        has ended it, so the target is there. Whether the next one may succeed at once: it is
        smaller, or has more time."""
        # A single record may be larger than the limit.
        if self.bytes > BYTES_MIN and written < 2 * self.bytes:
            self._limit(min(written, self.bytes) // 2)
            return True
        if is_ended and self.timeout_ms < TIMEOUT_MS_MAX:
            self.timeout_ms = min(TIMEOUT_MS_MAX, 2 * self.timeout_ms)
            return True
        return False

    def is_timed_out(self, open_s: float) -> bool:
        """Whether the coordinator may have aborted a transaction that was open for so long."""
        return open_s >= 0.9 * self.timeout_ms / 1000

    def batch_bytes(self, most: int) -> int:
        """Of what is read at once; not more than ``most``."""
        return max(BATCH_BYTES_MIN, min(most, self.bytes // _BATCHES))

    def _limit(self, size: int) -> None:
        self.bytes = max(BYTES_MIN, min(BYTES_MAX, size))
