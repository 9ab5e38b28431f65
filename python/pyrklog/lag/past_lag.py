"""What is told of a group's history."""

from __future__ import annotations

from pyrklog.groups.offsets import GroupOffsets
from pyrklog.lag.lag_history import LagHistory
from pyrklog.protocol.lag import UNKNOWN, PastLag

_LAST = 2**31 - 1
"""No partition is behind it."""
POINTS_AN_OFFSET = 10
"""Telling so many points takes about as long as looking at the lag of one offset."""


def past_lag(history: LagHistory, now_ms: int, back_ms: int) -> PastLag:
    """As ages, the oldest first: no two clocks are compared."""
    history.asked_ms = now_ms
    times, records, ms = history.columns(now_ms - back_ms)
    return PastLag(
        [max(0, now_ms - one) for one in times],
        [UNKNOWN if one < 0 else round(one) for one in records],
        [UNKNOWN if one < 0 else round(one) for one in ms],
    )


def has_only(offsets: GroupOffsets, topic: str) -> bool:
    """A group with one topic has one history."""
    first = offsets.page(None, 1)
    return bool(first) and first[0][0][0] == topic and not offsets.page((topic, _LAST), 1)
