"""Which offsets at the source became which at the target."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow

SPANS_MAX = 2_000
"""Of a partition in memory: 24 bytes each."""
SPANS_KEPT = 1_500
"""When there are more, so many are left at most."""
SHARE_MAX = 1_024
RUNS_MAX = 200
"""Of a partition and transaction; offsets between these and the last are translated to earlier ones
than need be."""


class Span(NamedTuple):
    """``length`` records without a gap on either side."""

    source: int
    target: int
    length: int

    def is_behind(self, other: Span) -> bool:
        """On either side, as all spans of one copy are."""
        source, target = other.source + other.length, other.target + other.length
        return self.source >= source and self.target >= target


class Run(NamedTuple):
    """Records with consecutive offsets at the source, in a transaction: ``at`` of its partition's
    records are before them."""

    source: int
    at: int
    length: int


class Runs:
    """The records of a transaction in a partition."""

    def __init__(self) -> None:
        self.records = 0
        self._runs: list[Run] = []
        self._last: Run | None = None
        """The last record, when there are too many runs."""

    def add(self, first: int, length: int) -> None:
        """Records that follow those before."""
        last = self._runs[-1] if self._runs else None
        if last is not None and self._last is None and last.source + last.length == first:
            self._runs[-1] = last._replace(length=last.length + length)
        elif len(self._runs) < RUNS_MAX:
            self._runs.append(Run(first, self.records, length))
        else:
            self._last = Run(first + length - 1, self.records + length - 1, 1)
        self.records += length

    @property
    def first(self) -> int:
        """The source's offset of the first record."""
        return self._runs[0].source

    def spans(self, target: int) -> list[Span]:
        """With the first record at this offset of the target. The last span ends where the
        transaction's records end."""
        last = [] if self._last is None else [self._last]
        return [Span(one.source, target + one.at, one.length) for one in (*self._runs, *last)]


class Spans:
    """Of a partition, in order; at most :data:`SPANS_MAX`. Each list that is added ends where a
    transaction's records do.

    Spans are dropped far from the newest record. A gap that comes of it is at most 1/share of the
    way from there to the newest record, and the share is halved when too many spans are left. So
    the error of a translation is bounded by the reader's lag, however long ago spans were dropped,
    as in MirrorMaker 2's OffsetSyncStore. Of n offsets at most ``share * (1 + 2 * log(n / share))``
    spans are left: a share of 32 does up to 10^11.
    """

    def __init__(self) -> None:
        self._sources, self._targets, self._lengths = array("q"), array("q"), array("q")
        self._share = SHARE_MAX

    def __len__(self) -> int:
        return len(self._sources)

    def add(self, spans: Iterable[Span]) -> None:
        for span in spans:
            if not self._sources or span.source > self._sources[-1]:
                self._sources.append(span.source)
                self._targets.append(span.target)
                self._lengths.append(span.length)
        if len(self) > SPANS_MAX:
            self.thin(self._share)
            while len(self) > SPANS_KEPT:
                self._share //= 2
                self.thin(self._share)

    def thin(self, share: int) -> None:
        """Drops each span without which the gap between its neighbors is at most 1/``share`` of the
        way from there to the end; the first one and the last one stay."""
        sources, lengths = self._sources, self._lengths
        head = sources[-1] + lengths[-1]
        kept = [len(sources) - 1]
        for at in range(len(sources) - 2, 0, -1):
            before = sources[at - 1] + lengths[at - 1]
            if (sources[kept[-1]] - before) * share > head - before:
                kept.append(at)
        kept.append(0)
        kept.reverse()
        self._sources = array("q", (sources[at] for at in kept))
        self._targets = array("q", (self._targets[at] for at in kept))
        self._lengths = array("q", (lengths[at] for at in kept))

    def last(self) -> Span | None:
        return self._at(len(self) - 1) if self._sources else None

    def _at(self, number: int) -> Span:
        return Span(self._sources[number], self._targets[number], self._lengths[number])

    def translate(self, offset: int) -> int | None:
        """Where a reader goes on at the target that would go on at ``offset`` of the source: no
        record is skipped. None if that is not known."""
        found = self.bounds(offset)
        return None if found is None else found[0]

    def bounds(self, offset: int) -> tuple[int, int] | None:
        """The first and the last place at the target that ``offset`` may have become. None if
        nothing is known of it."""
        number = bisect_right(self._sources, offset) - 1
        if number < 0:
            return None
        span = self._at(number)
        if offset < span.source + span.length:
            at = span.target + offset - span.source
            return at, at
        end = span.target + span.length
        if number == len(self) - 1:
            # A marker follows the transaction's last record.
            return end + 1, end + 1
        return end, self._targets[number + 1]


class Segment(NamedTuple):
    """Rows of a batch that are of one partition."""

    topic: str
    partition: int
    begin: int
    end: int


def segments(topics: pyarrow.Array, partitions: pyarrow.Array) -> list[Segment]:
    """The rows of each partition, as they lie together."""
    import pyarrow.compute as pc

    rows = len(topics)
    if rows == 0:
        return []
    other = pc.or_(
        pc.not_equal(topics[1:], topics[:-1]), pc.not_equal(partitions[1:], partitions[:-1])
    )
    begins = [0, *(at + 1 for at in pc.indices_nonzero(other).to_pylist())]
    return [
        Segment(topics[begin].as_py(), partitions[begin].as_py(), begin, end)
        for begin, end in zip(begins, [*begins[1:], rows], strict=True)
    ]


def add_offsets(runs: Runs, offsets: pyarrow.Array) -> None:
    """Adds the records of a segment: offsets that rise."""
    import pyarrow.compute as pc

    count = len(offsets)
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if last - first == count - 1:
        runs.add(first, count)
        return
    gaps = pc.indices_nonzero(pc.not_equal(pc.subtract(offsets[1:], offsets[:-1]), 1)).to_pylist()
    begins = [0, *(at + 1 for at in gaps)]
    for begin, end in zip(begins, [*begins[1:], count], strict=True):
        runs.add(offsets[begin].as_py(), end - begin)
