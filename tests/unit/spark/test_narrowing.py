"""Which places and offsets conditions leave, and which filters of Spark's are conditions."""

from __future__ import annotations

import itertools
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql import datasource as spark

from pyrklog.spark.conditions import Condition, Operator, may_hold
from pyrklog.spark.filters import conditions
from pyrklog.spark.narrowing import EVERYWHERE, JOINED_OFFSETS, RANGES_MAX, Narrowing, narrowing
from pyrklog.spark.offsets import TopicPartition

OFFSET, PARTITION, TOPIC, TIMESTAMP = ("offset",), ("partition",), ("topic",), ("timestamp",)
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
NOON_MS = 1_767_355_200_000
LONG_AGO = datetime(1969, 12, 31, tzinfo=UTC)
PLACES = [TopicPartition(topic, number) for topic in ("a", "ab", "b") for number in range(3)]


def of(*filters: spark.Filter) -> Narrowing:
    return narrowing(conditions(filters))


def admitted(*filters: spark.Filter) -> list[str]:
    return [str(place) for place in PLACES if of(*filters).admits(place)]


@pytest.mark.parametrize(
    ("filters", "places"),
    [
        ([spark.EqualTo(TOPIC, "ab"), spark.LessThan(PARTITION, 2)], "ab-0 ab-1"),
        ([spark.EqualNullSafe(TOPIC, "b"), spark.In(PARTITION, (0, 7))], "b-0"),
        ([spark.StringStartsWith(TOPIC, "a"), spark.EqualTo(PARTITION, 1)], "a-1 ab-1"),
        ([spark.StringEndsWith(TOPIC, "b"), spark.GreaterThan(PARTITION, 1)], "ab-2 b-2"),
        ([spark.StringContains(TOPIC, "a"), spark.LessThanOrEqual(PARTITION, 0)], "a-0 ab-0"),
        ([spark.GreaterThanOrEqual(TOPIC, "ab"), spark.EqualTo(PARTITION, 0)], "ab-0 b-0"),
        ([spark.Not(spark.In(TOPIC, ("a", "b"))), spark.IsNotNull(TOPIC)], "ab-0 ab-1 ab-2"),
        ([spark.Not(spark.EqualTo(PARTITION, 0)), spark.EqualTo(TOPIC, "a")], "a-1 a-2"),
        ([spark.IsNull(PARTITION)], ""),
        ([spark.Not(spark.IsNotNull(TOPIC))], ""),
    ],
)
def test_places(filters: list[spark.Filter], places: str) -> None:
    assert admitted(*filters) == places.split()


@pytest.mark.parametrize(
    "one",
    [
        spark.EqualTo(PARTITION, None),
        spark.EqualTo(PARTITION, "1"),
        spark.EqualTo(PARTITION, True),
        spark.Not(spark.In(PARTITION, (0, None))),
        spark.In(TOPIC, (1, 2)),
        spark.StringContains(PARTITION, 1),  # type: ignore[arg-type]
        spark.EqualTo(("value", "topic"), "x"),
        spark.EqualTo(("partition", "of a struct"), 7),
        spark.EqualTo(("value",), b"x"),
    ],
)
def test_what_is_not_understood_leaves_all(one: spark.Filter) -> None:
    assert admitted(one) == [str(place) for place in PLACES]
    assert of(one).ranges(0, 9) == [(0, 9)]


@pytest.mark.parametrize(
    ("filters", "ranges"),
    [
        ([spark.GreaterThanOrEqual(OFFSET, 15)], [(15, 20)]),
        ([spark.GreaterThan(OFFSET, 15), spark.LessThan(OFFSET, 18)], [(16, 18)]),
        ([spark.LessThanOrEqual(OFFSET, 15)], [(10, 16)]),
        ([spark.EqualTo(OFFSET, 12)], [(12, 13)]),
        ([spark.EqualNullSafe(OFFSET, 12)], [(12, 13)]),
        ([spark.EqualTo(OFFSET, 20)], []),
        ([spark.LessThan(OFFSET, 10)], []),
        ([spark.GreaterThan(OFFSET, -5), spark.LessThan(OFFSET, 2**62)], [(10, 20)]),
        ([spark.LessThan(OFFSET, 12), spark.GreaterThan(OFFSET, 17)], []),
        ([spark.In(OFFSET, (19, 5, 13))], [(13, 20)]),
        ([spark.In(OFFSET, (13, None, 15)), spark.In(OFFSET, (15, 17))], [(15, 16)]),
        ([spark.In(OFFSET, (13, 17)), spark.GreaterThan(OFFSET, 13)], [(17, 18)]),
        ([spark.In(OFFSET, (None,))], []),
        ([spark.In(OFFSET, (1.5, 2))], [(10, 20)]),
        ([spark.Not(spark.EqualTo(OFFSET, 12))], [(10, 20)]),
        ([spark.LessThan(OFFSET, 12.5)], [(10, 20)]),
        ([spark.IsNotNull(OFFSET)], [(10, 20)]),
    ],
)
def test_offsets(filters: list[spark.Filter], ranges: list[tuple[int, int]]) -> None:
    assert of(*filters).ranges(10, 20) == ranges
    expected = [(ranges[0][0], 20)] if ranges else []
    assert of(*filters).ranges(10, 20, keeps_end=True) == expected


def test_offsets_far_from_each_other_are_ranges_of_their_own() -> None:
    far = JOINED_OFFSETS + 1
    wanted = (7, 8, 8 + far, 8 + far + JOINED_OFFSETS)
    assert of(spark.In(OFFSET, wanted)).ranges(0, 2**40) == [
        (7, 9),
        (8 + far, 9 + far + JOINED_OFFSETS),
    ]


def test_so_many_ranges_that_gaps_are_read() -> None:
    """The widest gaps stay out."""
    gaps = [JOINED_OFFSETS * (2 + number % 7) for number in range(4 * RANGES_MAX)]
    wanted = [sum(gaps[:number]) for number in range(len(gaps) + 1)]
    found = of(spark.In(OFFSET, tuple(wanted))).ranges(0, 2**40)
    assert len(found) == RANGES_MAX
    assert all(any(start <= one < end for start, end in found) for one in wanted)
    left_out = sorted(second[0] - first[1] for first, second in itertools.pairwise(found))
    assert left_out == [gap - 1 for gap in sorted(gaps)[-RANGES_MAX + 1 :]]


@pytest.mark.parametrize(
    ("filters", "least_ms"),
    [
        ([spark.GreaterThanOrEqual(TIMESTAMP, NOON)], NOON_MS),
        ([spark.GreaterThan(TIMESTAMP, NOON)], NOON_MS + 1),
        ([spark.EqualTo(TIMESTAMP, NOON)], NOON_MS),
        ([spark.GreaterThanOrEqual(TIMESTAMP, NOON + timedelta(microseconds=1))], NOON_MS + 1),
        ([spark.GreaterThan(TIMESTAMP, NOON + timedelta(microseconds=999))], NOON_MS + 1),
        ([spark.GreaterThanOrEqual(TIMESTAMP, NOON - timedelta(microseconds=1))], NOON_MS),
        ([spark.In(TIMESTAMP, (NOON + timedelta(days=1), None, NOON))], NOON_MS),
        (
            [
                spark.GreaterThan(TIMESTAMP, NOON),
                spark.EqualNullSafe(TIMESTAMP, NOON + timedelta(seconds=1)),
            ],
            NOON_MS + 1000,
        ),
        ([spark.EqualTo(TIMESTAMP, NOON), spark.GreaterThan(TIMESTAMP, LONG_AGO)], NOON_MS),
        (
            [spark.GreaterThanOrEqual(TIMESTAMP, NOON.astimezone(timezone(timedelta(hours=9))))],
            NOON_MS,
        ),
        ([spark.GreaterThanOrEqual(TIMESTAMP, LONG_AGO)], -86_400_000),
        # A later record may be older.
        ([spark.LessThan(TIMESTAMP, NOON), spark.LessThanOrEqual(TIMESTAMP, NOON)], None),
        ([spark.Not(spark.EqualTo(TIMESTAMP, NOON))], None),
        ([spark.GreaterThan(TIMESTAMP, NOON.replace(tzinfo=None))], None),
        ([spark.GreaterThan(TIMESTAMP, NOON_MS)], None),
        ([spark.In(TIMESTAMP, (None,)), spark.IsNull(TIMESTAMP)], None),
    ],
)
def test_times(filters: list[spark.Filter], least_ms: int | None) -> None:
    assert of(*filters).least_ms == least_ms


def test_no_condition_leaves_all() -> None:
    assert of() == EVERYWHERE
    assert EVERYWHERE.ranges(3, 5) == [(3, 5)]
    assert EVERYWHERE.ranges(5, 5) == []


def test_it_goes_to_executors_with_its_reader() -> None:
    made = of(spark.StringStartsWith(TOPIC, "a"), spark.In(OFFSET, (1, 2)))
    assert pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize("operator", list(Operator))
def test_a_negated_condition_is_the_other_answer(operator: Operator) -> None:
    """Of a value that is known, and comparable."""
    value: Any = ("b",) if operator is Operator.IN else "b"
    for known in ("a", "b", "abc", ""):
        answers = {may_hold(Condition("topic", operator, value, no), known) for no in (True, False)}
        assert answers == {True, False}
