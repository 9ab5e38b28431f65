"""What a plan costs while it runs: its batches, the bytes that each broker takes and gives, and for
how long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pyrklog.balance.filling import NO_FILLING, Fill, Filling, Lack, after, fill_of, in_turn, later
from pyrklog.balance.model import Cluster, PartitionKey, Placement, arriving

STEP_S = 1.0
"""What each batch takes besides its bytes: the controller's steps, the first and the last fetch."""
FLOWS_MAX = 150
"""Pairs of brokers whose copies are followed one by one; beyond, the busiest broker counts."""


class Copy(NamedTuple):
    """A replica that is copied: from the leader, while producers write on."""

    key: PartitionKey
    source: int
    target: int
    size_bytes: int
    rate_in: float


@dataclass
class Traffic:
    """Of a broker: bytes that it takes and gives."""

    in_bytes: int = 0
    out_bytes: int = 0


class RateFrom(StrEnum):
    """Where the rate of a prediction comes from: a throttle, an earlier plan of the cluster, the
    plan itself while it runs, or nowhere."""

    GIVEN = "given"
    EARLIER = "earlier"
    MEASURED = "measured"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class Batch:
    """``seconds`` None: it never ends, as producers write more than the rate."""

    keys: Sequence[PartitionKey]
    bytes: int
    seconds: float | None


@dataclass(frozen=True)
class Prediction:
    """``rate_bytes``: what each broker takes, and gives, a second at most. ``raise_s``: how much
    longer it takes as the rate is raised to that step by step."""

    rate_bytes: int
    batches: Sequence[Batch] = ()
    brokers: Mapping[int, Traffic] = field(default_factory=dict)
    rate_from: RateFrom = RateFrom.GIVEN
    fill: Fill | None = None
    raise_s: float = 0.0

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.batches)

    @property
    def seconds(self) -> float | None:
        found = [one.seconds for one in self.batches]
        known = [seconds for seconds in found if seconds is not None]
        return sum(known) + self.raise_s if len(known) == len(found) else None


class Limit(NamedTuple):
    """How much moves at a time; None: no limit."""

    partitions: int | None = None
    bytes: int | None = None


def copies_of(cluster: Cluster, key: PartitionKey, replicas: Sequence[int]) -> list[Copy]:
    one = cluster.partitions[key]
    return [
        Copy(key, one.leader_now, target, one.size_bytes, one.rate_in)
        for target in arriving(one.replicas, replicas)
    ]


def in_batches(
    cluster: Cluster, changed: Placement, limit: Limit | None = None
) -> list[list[PartitionKey]]:
    """The order of a plan, in batches within the limit; a partition larger than it has its own.

    What copies nothing comes first. Then the brokers that take most get one partition after the
    other in turn, the largest first: each batch keeps many brokers busy, and none is all of one.
    """
    limit = limit or Limit()
    copies = {key: copies_of(cluster, key, replicas) for key, replicas in changed.items()}
    found: list[list[PartitionKey]] = []
    batch: list[PartitionKey] = []
    batch_bytes = 0
    for key in _in_turn(copies):
        size = sum(one.size_bytes for one in copies[key])
        is_full = limit.partitions is not None and len(batch) >= limit.partitions
        is_heavy = limit.bytes is not None and batch_bytes + size > limit.bytes
        if batch and (is_full or is_heavy):
            found.append(batch)
            batch, batch_bytes = [], 0
        batch.append(key)
        batch_bytes += size
    return [*found, batch] if batch else found


def _in_turn(copies: Mapping[PartitionKey, Sequence[Copy]]) -> Iterable[PartitionKey]:
    yield from sorted(key for key, found in copies.items() if not found)
    waiting: dict[int, list[tuple[int, PartitionKey]]] = {}
    for key, found in copies.items():
        if found:
            size = sum(one.size_bytes for one in found)
            waiting.setdefault(found[0].target, []).append((-size, key))
    for queue in waiting.values():
        queue.sort(reverse=True)  # taken from the end: the largest, then by name
    given = dict.fromkeys(sorted(waiting), 0)
    total = {target: -sum(size for size, _ in queue) for target, queue in waiting.items()}
    while waiting:
        # Who has got the smallest share of its whole.
        target = min(waiting, key=lambda one: (given[one] / max(1, total[one]), one))
        size, key = waiting[target].pop()
        given[target] -= size
        if not size:
            given[target] += 1
        if not waiting[target]:
            del waiting[target]
        yield key


def predict(
    cluster: Cluster,
    changed: Placement,
    batches: Sequence[Sequence[PartitionKey]],
    rate_bytes: int,
    filling: Filling = NO_FILLING,
) -> Prediction:
    """``rate_bytes``: what each broker takes, and gives, a second at most."""
    brokers: dict[int, Traffic] = {}
    found, fills = [], []
    passed_s: float | None = 0.0
    for keys in batches:
        # Nothing is known of a batch behind one that never ends.
        later_s = passed_s or 0.0
        every = [one for key in keys for one in copies_of(cluster, key, changed[key])]
        copies = [one for one in every if one.key not in filling.at_end]
        for one in copies:
            brokers.setdefault(one.target, Traffic()).in_bytes += one.size_bytes
            brokers.setdefault(one.source, Traffic()).out_bytes += one.size_bytes
        lasts_s = after(STEP_S, seconds(grown(copies, later_s), rate_bytes))
        filled = grown([one for one in every if one.key in filling.at_end], later_s)
        if filled:
            fill = fill_of(
                [Lack(one.key, one.target, one.size_bytes) for one in filled], filling, STEP_S
            )
            fills.append((passed_s, fill))
            lasts_s = later(lasts_s, fill.whole_s)
        found.append(Batch(tuple(keys), sum(one.size_bytes for one in copies), lasts_s))
        passed_s = after(passed_s, lasts_s)
    fill_all = in_turn(fills) if fills else None
    return Prediction(rate_bytes, found, dict(sorted(brokers.items())), fill=fill_all)


def grown(copies: Iterable[Copy], passed_s: float) -> list[Copy]:
    """The same so much later, when producers have written more."""
    return [one._replace(size_bytes=one.size_bytes + int(one.rate_in * passed_s)) for one in copies]


def seconds(copies: Iterable[Copy], rate_bytes: int) -> float | None:
    """How long copies that begin together take. None: for ever."""
    flows: dict[tuple[int, int], list[float]] = {}
    for one in copies:
        flow = flows.setdefault((one.source, one.target), [0.0, 0.0])
        flow[0] += one.size_bytes
        flow[1] += one.rate_in
    if len(flows) > FLOWS_MAX:
        return _of_busiest(flows, rate_bytes)
    return _followed(flows, rate_bytes)


def _of_busiest(flows: Mapping[tuple[int, int], Sequence[float]], rate_bytes: int) -> float | None:
    """bytes / (rate - what producers add), of the broker for which that is most."""
    ends: dict[tuple[int, int], list[float]] = {}
    for pair, (size, growth) in flows.items():
        for side, broker in enumerate(pair):
            end = ends.setdefault((side, broker), [0.0, 0.0])
            end[0] += size
            end[1] += growth
    longest = 0.0
    for size, growth in ends.values():
        if growth >= rate_bytes:
            return None
        longest = max(longest, size / (rate_bytes - growth))
    return longest


def _followed(flows: Mapping[tuple[int, int], Sequence[float]], rate_bytes: int) -> float | None:
    """Follows the copies: each broker shares its rate among its pairs, and a pair that is done
    leaves its share to others."""
    left = {pair: size for pair, (size, _) in sorted(flows.items())}
    passed = 0.0
    while left:
        shares = _shares(left, rate_bytes)
        speeds = {pair: shares[pair] - flows[pair][1] for pair in left}
        ends = {
            pair: left[pair] / speed if speed > 0 else (0.0 if not left[pair] else None)
            for pair, speed in speeds.items()
        }
        known = [end for end in ends.values() if end is not None]
        if not known:
            return None
        step = min(known)
        passed += step
        left = {
            pair: max(0.0, left[pair] - speeds[pair] * step)
            for pair in left
            if ends[pair] is None or ends[pair] != step
        }
    return passed


def _shares(pairs: Iterable[tuple[int, int]], rate_bytes: int) -> dict[tuple[int, int], float]:
    """The fairest shares: nobody's can grow without that of one that has less."""
    open_pairs = set(pairs)
    rest: dict[tuple[int, int], float] = {}
    for pair in open_pairs:
        for side, broker in enumerate(pair):
            rest[side, broker] = float(rate_bytes)
    shares: dict[tuple[int, int], float] = {}
    while open_pairs:
        counts = dict.fromkeys(rest, 0)
        for source, target in open_pairs:
            counts[0, source] += 1
            counts[1, target] += 1
        level, end = min((rest[end] / n, end) for end, n in counts.items() if n)
        for pair in [pair for pair in open_pairs if pair[end[0]] == end[1]]:
            shares[pair] = level
            open_pairs.remove(pair)
            rest[0, pair[0]] -= level
            rest[1, pair[1]] -= level
    return shares
