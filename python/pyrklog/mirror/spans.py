"""Which offsets at the source became which at the target."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow

SPANS_MAX = 2_000
"""Of a partition in memory."""
RUNS_MAX = 200
"""Of a partition and transaction; offsets between these and the last are translated to earlier ones
than need be."""


class Span(NamedTuple):
    """``length`` records without a gap on either side."""

    source: int
    target: int
    length: int


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

    def spans(self, target: int) -> list[Span]:
        """With the first record at this offset of the target. The last span ends where the
        transaction's records end."""
        last = [] if self._last is None else [self._last]
        return [Span(one.source, target + one.at, one.length) for one in (*self._runs, *last)]


class Spans:
    """Of a partition, in order; at most :data:`SPANS_MAX`. Each list that is added ends where a
    transaction's records do."""

    def __init__(self) -> None:
        self._spans: list[Span] = []

    def add(self, spans: Iterable[Span]) -> None:
        for span in spans:
            if not self._spans or span.source > self._spans[-1].source:
                self._spans.append(span)
        if len(self._spans) > SPANS_MAX:
            half = SPANS_MAX // 2
            self._spans[:-half] = self._spans[:-half:2]

    def last(self) -> Span | None:
        return self._spans[-1] if self._spans else None

    def translate(self, offset: int) -> int | None:
        """Where a reader goes on at the target that would go on at ``offset`` of the source: no
        record is skipped. None if that is not known."""
        at = bisect_right(self._spans, offset, key=lambda span: span.source) - 1
        if at < 0:
            return None
        span = self._spans[at]
        if offset < span.source + span.length:
            return span.target + offset - span.source
        # A marker follows the transaction's last record.
        is_last = at == len(self._spans) - 1
        return span.target + span.length + (1 if is_last else 0)


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
