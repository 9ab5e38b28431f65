"""Whether the end of a target's log, of which the topic of progress does not tell, is a copy.

A mirror that dies may have written more than it has noted. That is read at both sides, and
compared: what somebody else wrote is found, with its offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

from pyrklog.mirror.cluster import ClusterAdmin
from pyrklog.mirror.errors import MovedError
from pyrklog.scanning import OffsetOutOfRangeError, scan

COLUMNS = ("key", "value", "headers", "offset")
"""Not timestamps, which the target may set."""
MEMORY_BYTES = 16 << 20
_DIGEST_BYTES = 16


class Record(NamedTuple):
    """``content`` is a digest of key, value and headers."""

    offset: int
    key: bytes | None
    content: bytes


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

    def source_begin(self) -> tuple[int, int]:
        """Without records between, the place: a source that has lost what was read is noticed."""
        return self.place if self.place[0] >= self.begin else (self.begin, -1)


class Found(NamedTuple):
    """The offset of the first record that is no copy, None if there is none; and the leader epoch
    of the source's last record before the end, -1 if unknown."""

    foreign: int | None
    epoch: int


def first_foreign(
    source: Iterator[Record], target: Iterator[Record], source_end: int, *, is_compacted: bool
) -> int | None:
    """The first offset at which the records, which rise in offsets, differ. Of topics that are
    compacted either side may have lost a record since: the target one whose key came again."""
    lacking: dict[bytes | None, int] = {}
    """What the target lacks, by key, while the key has not come again."""
    here, there = next(source, None), next(target, None)
    while here is not None or there is not None:
        if there is None or (here is not None and here.offset < there.offset):
            assert here is not None
            if not is_compacted:
                return here.offset
            lacking.setdefault(here.key, here.offset)
            here = next(source, None)
            continue
        if here is None or there.offset < here.offset:
            if not is_compacted or there.offset >= source_end:
                return min([there.offset, *lacking.values()])
        elif here.content != there.content:
            return min([there.offset, *lacking.values()])
        else:
            here = next(source, None)
        lacking.pop(there.key, None)
        there = next(target, None)
    return min(lacking.values(), default=None)


def records(batches: Iterable[Any]) -> Iterator[Record]:
    """Of the batches of a scan with these columns."""
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in COLUMNS)
        for key, value, headers, offset in zip(*columns, strict=True):
            pairs = [(one["key"], one["value"]) for one in headers or ()]
            content = blake2b(repr((key, value, pairs)).encode(), digest_size=_DIGEST_BYTES)
            yield Record(offset, key, content.digest())


def compare(source: ClusterAdmin, target: ClusterAdmin, tail: Tail) -> Found:
    """Raises ScanError; MovedError if either side has lost its beginning meanwhile."""
    here_end = min(tail.end, tail.source_end)
    try:
        with (
            _scan(source, tail.topic, tail.partition, tail.source_begin(), here_end) as here,
            _scan(
                target,
                tail.target,
                tail.partition,
                (tail.begin, -1),
                tail.end,
                # What is in an open transaction counts, too.
                isolation="read_uncommitted",
            ) as there,
        ):
            foreign = first_foreign(
                records(here.reader()),
                records(there.reader()),
                tail.source_end,
                is_compacted=tail.is_compacted,
            )
            epochs = [one.leader_epoch for one in here.progress() if one.position == tail.end]
    except OffsetOutOfRangeError as error:
        raise MovedError(str(error)) from error
    return Found(foreign, epochs[0] if epochs else -1)


def _scan(
    admin: ClusterAdmin,
    topic: str,
    partition: int,
    begin: tuple[int, int],
    end: int,
    isolation: str = "read_committed",
) -> Any:
    return scan(
        {topic: [partition]},
        start=begin,
        # Where nothing is read the epoch is checked.
        end=max(end, begin[0]),
        columns=COLUMNS,
        isolation=isolation,
        threads=1,
        memory_bytes=MEMORY_BYTES,
        **admin.reading(),
    )
