"""New replicas that start at their leaders' ends: how long they lack older records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyrklog.balance.model import PartitionKey

CLEANUP_POLICY, RETENTION_MS, RETENTION_BYTES = "cleanup.policy", "retention.ms", "retention.bytes"
SEGMENT_MS, SEGMENT_BYTES = "segment.ms", "segment.bytes"
OPTIONS = (CLEANUP_POLICY, RETENTION_MS, RETENTION_BYTES, SEGMENT_MS, SEGMENT_BYTES)
"""Of topics, by which records are deleted."""


@dataclass(frozen=True)
class Filling:
    """Partitions whose new replicas start at their leaders' ends. ``rates``: bytes a second that
    each broker back-fills; 0: nothing. ``retention_s``: until retention has deleted what there is
    now; None: it does not."""

    at_end: Collection[PartitionKey] = ()
    rates: Mapping[int, int] = field(default_factory=dict)
    retention_s: Mapping[PartitionKey, float | None] = field(default_factory=dict)


NO_FILLING = Filling()


class Lack(NamedTuple):
    """What a new replica lacks below its start."""

    key: PartitionKey
    broker: int
    bytes: int


class Fill(NamedTuple):
    """What a plan back-fills. Times count from its begin; None: never. ``tail_s``: until all new
    replicas have what is written from then on. ``whole_s``: until they lack nothing.
    ``retention_s``: until retention alone would have seen to that."""

    bytes: int
    tail_s: float | None
    whole_s: float | None
    retention_s: float | None
    rates: Mapping[int, int]

    @property
    def is_by_retention(self) -> bool:
        return self.whole_s is not None and self.whole_s == self.retention_s


def fill_of(lacks: Iterable[Lack], filling: Filling, step_s: float) -> Fill:
    """Of back-fills that begin together."""
    found = list(lacks)
    left: dict[int, int] = {}
    retention_s: float | None = 0.0
    for one in found:
        left[one.broker] = left.get(one.broker, 0) + one.bytes
        if one.bytes:
            retention_s = later(retention_s, filling.retention_s.get(one.key))
    whole_s = sooner(fill_seconds(left, filling.rates), retention_s)
    rates = {broker: filling.rates.get(broker, 0) for broker in sorted(left)}
    times = (step_s, after(step_s, whole_s), after(step_s, retention_s))
    return Fill(sum(left.values()), *times, rates)


def fill_seconds(left: Mapping[int, float], rates: Mapping[int, float]) -> float | None:
    """How long brokers back-fill what they lack; all of a broker's share its rate. None: for
    ever."""
    found: float | None = 0.0
    for broker, size in left.items():
        rate = rates.get(broker, 0)
        if size > 0:
            found = later(found, size / rate if rate > 0 else None)
    return found


def in_turn(fills: Sequence[tuple[float | None, Fill]]) -> Fill:
    """Back-fills of batches, and when each batch begins; the last one ends all."""
    begin_s, last = fills[-1]
    rates = {broker: rate for _, one in fills for broker, rate in one.rates.items()}
    total = sum(one.bytes for _, one in fills)
    tail_s, whole_s = after(begin_s, last.tail_s), after(begin_s, last.whole_s)
    return Fill(total, tail_s, whole_s, after(begin_s, last.retention_s), rates)


def after(one_s: float | None, other_s: float | None) -> float | None:
    """One after the other. None is never."""
    return None if one_s is None or other_s is None else one_s + other_s


def later(one_s: float | None, other_s: float | None) -> float | None:
    """None is never."""
    return None if one_s is None or other_s is None else max(one_s, other_s)


def sooner(one_s: float | None, other_s: float | None) -> float | None:
    """None is never."""
    known = [one for one in (one_s, other_s) if one is not None]
    return min(known) if known else None


def retention_s(options: Mapping[str, str | None], rate_in: float) -> float | None:
    """When retention has deleted what a log has now, about; None: never. A segment is deleted as a
    whole, so the one that is written to has to be full, or old, before."""
    segment_bytes = _number(options, SEGMENT_BYTES)
    full_s = None
    if rate_in > 0 and segment_bytes is not None:
        full_s = segment_bytes / rate_in
    found = None
    kept_ms = _number(options, RETENTION_MS)
    if kept_ms is not None:
        segment_ms = _number(options, SEGMENT_MS)
        old_s = None if segment_ms is None else segment_ms / 1000
        # Nothing comes into the last segment of an idle log that would be newer.
        open_s = sooner(full_s, old_s) if rate_in > 0 else 0.0
        found = kept_ms / 1000 + (open_s or 0.0)
    kept_bytes = _number(options, RETENTION_BYTES)
    if kept_bytes is not None and rate_in > 0:
        found = sooner(found, kept_bytes / rate_in + (full_s or 0.0))
    return found


def _number(options: Mapping[str, str | None], name: str) -> int | None:
    """None: no limit, or unknown."""
    text = options.get(name)
    if text is None or not text.isdecimal():
        return None
    return int(text)
