"""Histograms of times as the data plane tells them."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from pyrklog.observability.latency_table import BOUNDS_NS

GROUPS = ("Produce", "FetchConsumer", "FetchFollower", "Control", "JoinGroup", "Other")
PHASES = ("total", "served", "queue", "local", "read", "remote", "send")


def histogram(*times_ns: int) -> list[int]:
    """Counts of the buckets, and the sum."""
    found = [0] * (len(BOUNDS_NS) + 1)
    for one in times_ns:
        found[bisect_left(BOUNDS_NS, one)] += 1
    return [*found, sum(times_ns)]


def times(found: Mapping[str, Sequence[int]] = {}) -> dict[str, Sequence[int]]:
    """These, and empty ones of all other requests."""
    names = (f"request.{group}.{phase}" for group in GROUPS for phase in PHASES)
    return dict.fromkeys(names, histogram()) | dict(found)
