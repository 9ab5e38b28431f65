"""Tasks: the same offsets as the ranges, each once, as even as can be."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrklog.spark.offsets import OffsetRange
from pyrklog.spark.planning import TASKS_MAX, TaskLimits, TooManyTasksError, cut, plan_tasks

SIZES = st.lists(st.integers(0, 3000), max_size=8)
COUNTS = st.none() | st.integers(1, 40)


def ranges_of(sizes: list[int]) -> list[OffsetRange]:
    return [
        OffsetRange("t", number, 1000 * number, 1000 * number + size, 5)
        for number, size in enumerate(sizes)
    ]


@given(SIZES, COUNTS, st.none() | st.integers(50, 4000), st.none() | st.integers(2000, 10**6))
def test_tasks_cover_the_ranges_exactly(
    sizes: list[int], least: int | None, max_records: int | None, max_bytes: int | None
) -> None:
    ranges = ranges_of(sizes)
    tasks = plan_tasks(ranges, TaskLimits(least, max_records, max_bytes), lambda _: 30.0)
    covered = {
        one: [task for task in tasks if task.place == one.place] for one in ranges if one.size
    }
    assert sum(map(len, covered.values())) == len(tasks)
    for one, pieces in covered.items():
        assert [pieces[0].start, pieces[-1].end] == [one.start, one.end]
        assert all(a.end == b.start for a, b in pairwise(pieces))
        assert all(piece.size > 0 for piece in pieces)
        # What is known of the record before a start is known of the first piece's only.
        assert [piece.epoch for piece in pieces] == [5] + [-1] * (len(pieces) - 1)
    assert len(tasks) >= min(least or 0, sum(sizes))
    assert all(task.size <= (max_records or task.size) for task in tasks)
    assert all(task.size == 1 or task.size * 30 <= (max_bytes or 10**9) + 30 for task in tasks)


def test_a_range_is_one_task_unless_it_must_be_cut() -> None:
    ranges = ranges_of([3, 0, 1000])
    expected = [ranges[0], ranges[2]]
    assert plan_tasks(ranges, TaskLimits()) == expected
    assert plan_tasks(ranges, TaskLimits(min_partitions=2)) == expected
    assert plan_tasks([], TaskLimits(min_partitions=9)) == []


def test_the_heaviest_pieces_are_cut_for_min_partitions() -> None:
    """By bytes: 100 records of 1 MB beside 10,000 of 100 bytes."""
    ranges = [OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 0, 10_000)]
    tasks = plan_tasks(ranges, TaskLimits(8), lambda place: [1e6, 1e2][place.partition])
    assert [task.partition for task in tasks] == [0] * 7 + [1]
    by_records = plan_tasks(ranges, TaskLimits(8))
    assert [task.partition for task in by_records] == [0] + [1] * 7


def test_pieces_are_equal_but_for_one() -> None:
    sizes = [piece.size for piece in cut(OffsetRange("t", 0, 7, 27), 6)]
    assert sorted(sizes) == [3, 3, 3, 3, 4, 4]


def test_too_many_tasks_are_refused_before_they_are_made() -> None:
    whole = [OffsetRange("t", 0, 0, 2**62)]
    with pytest.raises(TooManyTasksError, match="maxRecordsPerPartition"):
        plan_tasks(whole, TaskLimits(max_records=1))
    assert len(plan_tasks(whole, TaskLimits(max_records=-(-(2**62) // TASKS_MAX)))) == TASKS_MAX
