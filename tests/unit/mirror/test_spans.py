"""Source offsets become target offsets: no record is skipped, whatever is known."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrklog.mirror.spans import (
    RUNS_MAX,
    SPANS_MAX,
    Runs,
    Segment,
    Span,
    Spans,
    add_offsets,
    segments,
)


def runs_of(*offsets: int) -> Runs:
    runs = Runs()
    add_offsets(runs, pa.array(offsets, pa.int64()))
    return runs


def test_offsets_without_gaps_are_one_span() -> None:
    runs = runs_of(5, 6, 7)
    add_offsets(runs, pa.array([8, 9], pa.int64()))
    assert runs.spans(100) == [Span(5, 100, 5)]
    assert runs.records == 5


def test_gaps_close_at_the_target() -> None:
    assert runs_of(5, 6, 9, 10, 20).spans(100) == [
        Span(5, 100, 2),
        Span(9, 102, 2),
        Span(20, 104, 1),
    ]


def test_too_many_gaps_leave_the_last_record() -> None:
    offsets = [2 * n for n in range(RUNS_MAX + 50)]
    spans = runs_of(*offsets).spans(0)
    assert len(spans) == RUNS_MAX + 1
    assert spans[-1] == Span(offsets[-1], len(offsets) - 1, 1)


def test_translation() -> None:
    spans = Spans()
    spans.add([Span(10, 100, 5), Span(20, 105, 5)])
    assert spans.translate(9) is None
    assert spans.translate(10) == 100
    assert spans.translate(14) == 104
    assert spans.translate(15) == spans.translate(17) == 105
    assert spans.translate(24) == 109
    # A marker follows the last record.
    assert spans.translate(25) == spans.translate(1000) == 111


def even(count: int) -> Spans:
    """Spans of five records, with gaps of five offsets that the target has as well."""
    spans = Spans()
    for number in range(count):
        spans.add([Span(10 * number, 10 * number, 5)])
    return spans


def test_memory_is_bounded_and_new_spans_stay() -> None:
    count = 10 * SPANS_MAX
    spans = even(count)
    assert len(spans) <= SPANS_MAX
    for number in range(count - 100, count):
        assert spans.translate(10 * number + 2) == 10 * number + 2
    assert spans.translate(0) == 0


@pytest.mark.parametrize("count", [1, 3, SPANS_MAX, 3 * SPANS_MAX, 43_200, 200_000])
def test_what_is_read_again_is_a_small_part_of_the_lag(count: int) -> None:
    """Whether a reader is a minute behind, or hours."""
    spans = even(count)
    assert len(spans) <= SPANS_MAX
    head = 10 * (count - 1) + 5
    for offset in range(0, head, 7):
        found = spans.translate(offset)
        assert found is not None
        assert 0 <= offset - found <= max(5, (head - offset) / 30)


@settings(deadline=None)
@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=300), st.integers(1, 64))
def test_thinning_often_adds_no_error(steps: list[int], share: int) -> None:
    """Each gap that thinning makes is bounded, also one that is made of others; others stay."""
    spans, ends, offset = Spans(), list[int](), 0
    for step in steps:
        offset += step
        spans.add([Span(offset, offset, 1)])
        ends.append(offset + 1)
        spans.thin(share)
    left = [spans._at(number) for number in range(len(spans))]
    assert (left[0].source, left[-1].source) == (ends[0] - 1, offset)
    for before, behind in pairwise(left):
        is_own = ends.index(behind.source + 1) == ends.index(before.source + 1) + 1
        end = before.source + 1
        assert is_own or (behind.source - end) * share <= ends[-1] - end


def test_thinning_leaves_few_of_very_many_offsets() -> None:
    """The worst case: spans that lie so that half of them could just not be dropped."""
    spans, distance, sources = Spans(), 10.0**11, list[int]()
    while distance > 1:
        sources += [10**11 - int(distance), 10**11 - int(distance * (1 - 1 / 32) * 1.0001)]
        distance *= 1 - 1 / 32
    for source in sorted(set(sources)):
        spans.add([Span(source, source, 1)])
        assert len(spans) <= SPANS_MAX


@settings(deadline=None)
@given(
    st.lists(st.lists(st.booleans(), min_size=1, max_size=40), min_size=1, max_size=12),
    st.one_of(st.none(), st.integers(1, 16)),
)
def test_no_record_is_skipped(transactions: list[list[bool]], share: int | None) -> None:
    """A reader that goes on at a translated offset meets every record that it has not read."""
    at_source: list[int] = []
    at_target: list[int] = []
    spans = Spans()
    source, target = 0, 7
    for transaction in transactions:
        present = [source + n for n, is_there in enumerate(transaction) if is_there]
        source += len(transaction)
        if present:
            spans.add(runs_of(*present).spans(target))
            at_source += present
            at_target += range(target, target + len(present))
            target += len(present) + 1
    if share is not None and len(spans):
        spans.thin(share)
    for offset in range(source + 2):
        found = spans.translate(offset)
        unread = [there for here, there in zip(at_source, at_target, strict=True) if here >= offset]
        if found is None:
            assert not at_source or offset < at_source[0]
        elif unread:
            assert found <= unread[0]
        if share is None and found is not None:
            read = [
                there for here, there in zip(at_source, at_target, strict=True) if here < offset
            ]
            assert not read or found > read[-1]


def test_segments_are_rows_of_one_partition() -> None:
    topics = pa.array(["a", "a", "b", "b", "b"])
    partitions = pa.array([0, 1, 1, 1, 0], pa.int32())
    assert segments(topics, partitions) == [
        Segment("a", 0, 0, 1),
        Segment("a", 1, 1, 2),
        Segment("b", 1, 2, 4),
        Segment("b", 0, 4, 5),
    ]
    assert segments(topics[:0], partitions[:0]) == []
