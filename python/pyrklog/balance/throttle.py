"""A rate that follows what the sources bear: raised step by step while they are calm, halved at
once when one is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

AUTO = "auto"
"""Instead of a rate."""
START_BYTES = 20_000_000
"""Bytes a second of each broker."""
LEAST_BYTES = 2_000_000
MOST_BYTES = 2_000_000_000
RAISE = 1.25
LOWER = 0.5
REST_STEPS = 3
"""Calm looks after a lowering before the next raise."""
LATENCY_FACTOR = 2.0
LATENCY_SPARE_MS = 5.0
"""A source is slow at twice its undisturbed latency and five milliseconds more."""
WAIT_MAX_S = 0.1
"""The longest that a read or a producer may wait for a disk."""
ALARMS = frozenset(
    {"cache_thrashing", "disk_hangs", "log_dir_failed", "log_dir_full", "reads_stuck"}
    | {"writes_stuck"}
)
"""Findings of health.md that lower the rate."""


def raise_s(seconds: float, rate_bytes: int) -> float:
    """How much longer than the seconds at a rate copies take that begin at :data:`START_BYTES`, and
    are raised to the rate while all is calm."""
    left, rate, passed_s = seconds * rate_bytes, float(START_BYTES), 0.0
    while rate < rate_bytes and left > rate:
        left -= rate
        passed_s += 1.0
        rate *= RAISE
    return max(0.0, passed_s + left / min(rate, rate_bytes) - seconds)


@dataclass(frozen=True)
class Signs:
    """What is known of the sources; the worst of all of them. None: unknown."""

    latency_ms: float | None = None
    disk_wait_s: float | None = None
    findings: Sequence[str] = ()
    behind: int = 0
    """Partitions that are not of the plan, and lack a replica in sync."""


@dataclass
class AutoThrottle:
    """``calm_ms``: the latency before the copies began."""

    calm_ms: float | None = None
    rate_bytes: int = START_BYTES
    why: str = "it begins"
    """What the last step saw."""
    _rest: int = field(default=0, repr=False)

    def step(self, signs: Signs) -> int:
        """The rate from now on."""
        why = self._trouble(signs)
        if why is not None:
            self.rate_bytes = max(LEAST_BYTES, int(self.rate_bytes * LOWER))
            self._rest, self.why = REST_STEPS, why
        elif self._rest:
            self._rest, self.why = self._rest - 1, "it rests"
        else:
            self.rate_bytes = min(MOST_BYTES, int(self.rate_bytes * RAISE))
            self.why = "all is calm"
        return self.rate_bytes

    def _trouble(self, signs: Signs) -> str | None:
        found = sorted(ALARMS & set(signs.findings))
        if found:
            return found[0]
        if signs.behind:
            return f"{signs.behind} partitions lack a replica in sync"
        if signs.disk_wait_s is not None and signs.disk_wait_s > WAIT_MAX_S:
            return f"a disk lets wait for {signs.disk_wait_s:.1f} s"
        if signs.latency_ms is not None and self.calm_ms is not None:
            most = self.calm_ms * LATENCY_FACTOR + LATENCY_SPARE_MS
            if signs.latency_ms > most:
                return f"a source answers in {signs.latency_ms:.0f} ms, not {self.calm_ms:.0f}"
        return None
