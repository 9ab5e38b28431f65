"""Whether the end of a target's log, of which the topic of progress does not tell, is a copy.

A mirror that dies may have written more than it has noted. That is read at both sides, and compared:
what somebody else wrote is found, with its offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

from pyrklog.mirror.cluster import ClusterAdmin
from pyrklog.mirror.digests import COLUMNS
from pyrklog.scanning import scan

MEMORY_BYTES = 16 << 20
_DIGEST_BYTES = 16

Records = Iterator[tuple[int, bytes]]
"""Offsets, which rise, and digests."""


class Tail(NamedTuple):
    """Of a partition at both sides: from ``begin`` to before ``end``, where the target's log ends.
    ``source_end`` is where the source's does, for readers of committed records. ``place`` is where
    the source was read up to, with its leader epoch."""

    topic: str
    partition: int
    target: str
    begin: int
    end: int
    source_end: int
    is_compacted: bool
    place: tuple[int, int] = (-1, -1)

    def source_begin(self) -> int | tuple[int, int]:
        """Without records between, the place: a source that has lost what was read is noticed."""
        return self.place if self.place[0] >= self.begin else self.begin


class Found(NamedTuple):
    """The offset of the first record that is no copy, None if there is none; and the leader epoch
    of the source's last record before the end, -1 if unknown."""

    foreign: int | None
    epoch: int


def first_foreign(
    source: Records, target: Records, source_end: int, *, is_compacted: bool
) -> int | None:
    """The first offset at which the records differ. Of topics that are compacted either side may
    have lost a record since."""
    here, there = next(source, None), next(target, None)
    while here is not None or there is not None:
        if there is None or (here is not None and here[0] < there[0]):
            assert here is not None
            if not is_compacted:
                return here[0]
            here = next(source, None)
        elif here is None or there[0] < here[0]:
            if not is_compacted or there[0] >= source_end:
                return there[0]
            there = next(target, None)
        elif here[1] != there[1]:
            return there[0]
        else:
            here, there = next(source, None), next(target, None)
    return None


def records(batches: Iterable[Any]) -> Records:
    """Of the batches of a scan with the columns of digests."""
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in COLUMNS)
        for key, value, headers, timestamp, offset in zip(*columns, strict=True):
            found = blake2b(digest_size=_DIGEST_BYTES)
            pairs = [(one["key"], one["value"]) for one in headers or ()]
            found.update(repr((key, value, pairs, _ms(timestamp))).encode())
            yield offset, found.digest()


def _ms(timestamp: Any) -> Any:
    """One of -1 ms is none."""
    return None if timestamp is None or timestamp.timestamp() == -0.001 else timestamp


def compare(source: ClusterAdmin, target: ClusterAdmin, tail: Tail) -> Found:
    """Raises ScanError."""
    here_end = min(tail.end, tail.source_end)
    with (
        _scan(source, (tail.topic, tail.partition), tail.source_begin(), here_end) as here,
        _scan(target, (tail.target, tail.partition), tail.begin, tail.end) as there,
    ):
        foreign = first_foreign(
            records(here.reader()),
            records(there.reader()),
            tail.source_end,
            is_compacted=tail.is_compacted,
        )
        epochs = [one.leader_epoch for one in here.progress() if one.position == tail.end]
    return Found(foreign, epochs[0] if epochs else -1)


def _scan(
    admin: ClusterAdmin, partition: tuple[str, int], begin: int | tuple[int, int], end: int
) -> Any:
    topic, number = partition
    first = begin if isinstance(begin, int) else begin[0]
    return scan(
        {topic: [number]},
        start=begin,
        # Where nothing is read the epoch is checked.
        end=max(end, first),
        columns=COLUMNS,
        threads=1,
        missing="skip",
        memory_bytes=MEMORY_BYTES,
        **admin.reading(),
    )
