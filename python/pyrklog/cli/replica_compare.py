"""Finds where the replicas of a partition differ, by digests of ranges of offsets.

Pure: requests to brokers are an argument. A range is compared piece by piece; the first differing
piece is halved until the first differing offset is known. A digest covers whole batches, so equal
digests of a prefix imply equal digests of shorter prefixes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

NO_OFFSET = -1
ONE_BATCH_BYTES = 1
"""A digest ends with the batch that reaches this size, here the first."""


class BatchDigest(NamedTuple):
    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int

    def __str__(self) -> str:
        return (
            f"{self.base_offset}..{self.last_offset} epoch {self.leader_epoch} crc {self.crc:08x}"
        )


class Digest(NamedTuple):
    """A replica's digest of a range; see :mod:`pyrklog.protocol.verification`."""

    next_offset: int
    digest: int
    damaged_offset: int = NO_OFFSET
    first: BatchDigest | None = None


class Difference(NamedTuple):
    """Where replicas begin to differ. ``batches`` are the batches there, None if unreadable.
    ``brokers`` differ from the most common batch, at a tie from the leader's; the batches of
    ``damaged`` are invalid."""

    offset: int
    batches: Mapping[int, BatchDigest | None]
    brokers: list[int]
    damaged: list[int]


Ask = Callable[[int, int, int | None], Mapping[int, Digest]]
"""Digests by broker of ``[start, end)``, of a bounded size or of at most so many bytes."""


def first_difference(ask: Ask, start: int, end: int, leader: int) -> Difference | None:
    while start < end:
        found = ask(start, end, None)
        if not _alike(found):
            # Damage shows only in a digest that reaches it.
            stop = max(max(one.next_offset, one.damaged_offset + 1) for one in found.values())
            return _narrowed(ask, start, stop, end, leader)
        start = _any(found).next_offset
    return None


def first_damage(ask: Ask, start: int, end: int) -> Difference | None:
    """Where replicas that need not be equal, since they are compacted, begin to be damaged."""
    while start < end:
        found = ask(start, end, None)
        damaged = [n for n, one in found.items() if one.damaged_offset != NO_OFFSET]
        if damaged:
            offset = min(found[number].damaged_offset for number in damaged)
            there = ask(offset, end, ONE_BATCH_BYTES)
            batches = {number: there[number].first for number in sorted(there)}
            return Difference(offset, batches, sorted(damaged), sorted(damaged))
        # Each replica digests as much as fits: the one that came least far says where to go on.
        start = min(one.next_offset for one in found.values())
    return None


def _narrowed(ask: Ask, start: int, stop: int, end: int, leader: int) -> Difference:
    """``[start, stop)`` differs."""
    alike, differs = start, stop
    while differs - alike > 1:
        middle = (alike + differs) // 2
        if _alike(ask(start, middle, None)):
            alike = middle
        else:
            differs = middle
    # The first differing batch ends here in at least one replica (unless none is readable); the
    # difference starts where that batch does.
    ending = ask(alike, differs, None)
    bases = [one.first.base_offset for one in ending.values() if one.first is not None]
    offset = max(min(bases, default=alike), start)
    return _described(ask(offset, end, ONE_BATCH_BYTES), offset, leader)


def _described(found: Mapping[int, Digest], offset: int, leader: int) -> Difference:
    damaged = [number for number, one in found.items() if one.damaged_offset != NO_OFFSET]
    whole = {number: one.first for number, one in found.items() if number not in damaged}
    counts: dict[BatchDigest | None, int] = {}
    for batch in whole.values():
        counts[batch] = counts.get(batch, 0) + 1
    most = max(counts.values(), default=0)
    usual = [batch for batch, count in counts.items() if count == most]
    right = whole[leader] if leader in whole and whole[leader] in usual else None
    if right is None and usual:
        right = usual[0]
    brokers = [n for n in sorted(found) if n in damaged or whole[n] != right]
    return Difference(offset, {n: found[n].first for n in sorted(found)}, brokers, sorted(damaged))


def _alike(found: Mapping[int, Digest]) -> bool:
    seen = {(one.next_offset, one.digest) for one in found.values()}
    return len(seen) == 1 and _any(found).damaged_offset == NO_OFFSET


def _any(found: Mapping[int, Digest]) -> Digest:
    return next(iter(found.values()))
