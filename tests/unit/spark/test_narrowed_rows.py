"""Rows that satisfy a query's filters are planned, whatever the filters are and the logs hold.

The logs are made by chance: times out of order, records of aborted transactions, markers,
tombstones, gaps of compaction, segments whose latest record was deleted. They answer as Kafka's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Set
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from pyspark.sql import datasource as spark

from pyrklog.spark.batch_plan import plan_batch
from pyrklog.spark.filters import conditions
from pyrklog.spark.narrowing import narrowing
from pyrklog.spark.offsets import OffsetRange, Position, TopicPartition
from pyrklog.spark.options import parse
from pyrklog.spark.places import Kind, Place
from tests.support.fake_cluster import FakeCluster, FakeHighWatermarks, FakeSizes

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TOPICS = ("orders", "orders-eu", "users")
TIMES_MS = 40
"""Few, so that records have the same."""


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    key: int
    value: int | None


class Stored(NamedTuple):
    """A record of a log; one that is not visible is of an aborted transaction, or a marker."""

    offset: int
    at_ms: int
    key: int
    value: int | None
    is_visible: bool


class Log:
    """Segments of records, each with the latest time that it ever held."""

    def __init__(self, chance: random.Random, first: int) -> None:
        self.segments: list[tuple[int, list[Stored]]] = []
        offset, is_ordered = first, chance.random() < 0.3
        for _ in range(chance.randrange(5)):
            written = []
            for _ in range(chance.randrange(1, 12)):
                at_ms = offset // 2 if is_ordered else chance.randrange(-1, TIMES_MS)
                value = None if chance.random() < 0.2 else offset
                is_visible = chance.random() < 0.8
                written.append(Stored(offset, at_ms, chance.randrange(5), value, is_visible))
                offset += 1 + (chance.random() < 0.2)
            kept = [one for one in written if chance.random() < 0.7]
            self.segments.append((max(one.at_ms for one in written), kept))
        self.first = chance.choice([first, first, (first + offset) // 2])
        self.last = offset

    def first_at(self, at_ms: int) -> Stored | None:
        """Kafka looks in one segment."""
        for latest, records in self.segments:
            if latest >= at_ms:
                late = (one for one in records if one.at_ms >= at_ms and one.offset >= self.first)
                return next(late, None)
        return None

    def latest(self) -> int | None:
        if not self.segments:
            return None
        latest, records = max(self.segments, key=lambda one: one[0])
        return latest if latest >= 0 and any(one.at_ms == latest for one in records) else None

    def rows(self, place: TopicPartition) -> list[Row]:
        return [
            Row(*place, one.offset, time_of(one.at_ms), one.key, one.value)
            for _, records in self.segments
            for one in records
            if one.is_visible and one.offset >= self.first
        ]


class TimedCluster(FakeCluster):
    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.written: dict[TopicPartition, Log] = {}
        self.asked: set[TopicPartition] = set()
        for topic in TOPICS:
            self.ids[topic] = topic
            for number in range(3):
                place = TopicPartition(topic, number)
                self.written[place] = Log(chance, chance.choice([0, 30_000 * number]))
                self.logs[place] = self.log_of(self.written[place])

    def log_of(self, written: Log) -> Any:
        self.topic("", written.last)
        made = self.logs.pop(TopicPartition("", 0))
        del self.ids[""]
        made.first = written.first
        return made

    def offsets(
        self, wanted: Mapping[TopicPartition, Place], passing: Set[str] = frozenset()
    ) -> dict[TopicPartition, Position]:
        self.asked.update(place for place, what in wanted.items() if what.kind is not Kind.OFFSET)
        found = {}
        for place, what in wanted.items():
            if what.kind is Kind.TIMESTAMP:
                record = self.written[place].first_at(what.value)
                found[place] = Position(-1 if record is None else record.offset)
            else:
                found |= super().offsets({place: what}, passing)
        return found

    def latest_times(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        times = {place: self.written[place].latest() for place in places}
        return {place: at_ms for place, at_ms in times.items() if at_ms is not None}


def time_of(at_ms: float) -> datetime | None:
    return None if at_ms < 0 else EPOCH + timedelta(milliseconds=at_ms)


_COMPARISONS: dict[type[spark.Filter], Callable[[Any, Any], bool]] = {
    spark.EqualTo: lambda one, other: one == other,
    spark.EqualNullSafe: lambda one, other: one == other,
    spark.LessThan: lambda one, other: one < other,
    spark.LessThanOrEqual: lambda one, other: one <= other,
    spark.GreaterThan: lambda one, other: one > other,
    spark.GreaterThanOrEqual: lambda one, other: one >= other,
    spark.In: lambda one, others: one in others,
}


def holds(one: spark.Filter, row: Row) -> bool | None:
    """As SQL has it; None for null."""
    if isinstance(one, spark.Not):
        answer = holds(one.child, row)
        return None if answer is None else not answer
    value = getattr(row, one.attribute[0])  # type: ignore[attr-defined]
    if isinstance(one, spark.IsNotNull):
        return value is not None
    if isinstance(one, spark.StringStartsWith):
        return bool(value.startswith(one.value))
    if value is None:
        return None
    return _COMPARISONS[type(one)](value, one.value)  # type: ignore[attr-defined]


def some_filter(chance: random.Random, logs: Collection[Log]) -> spark.Filter:
    offsets = [chance.choice([0, 7, 30_005, log.first, log.last, log.last - 3]) for log in logs]

    def constant(column: str) -> Any:
        if column == "topic":
            return chance.choice([*TOPICS, "none", "p"])
        if column == "partition":
            return chance.randrange(-1, 4)
        if column == "offset":
            return chance.choice(offsets)
        return EPOCH + timedelta(microseconds=chance.randrange(TIMES_MS * 1000 + 2000))

    column = chance.choice(["topic", "partition", "offset", "offset", "timestamp", "timestamp"])
    path = (column,)
    kind: Any = chance.choice([*_COMPARISONS, spark.IsNotNull, spark.StringStartsWith])
    made: spark.Filter
    if kind is spark.IsNotNull:
        made = spark.IsNotNull(path)
    elif kind is spark.StringStartsWith:
        made = spark.StringStartsWith(("topic",), chance.choice(["orders", "u", "x"]))
    elif kind is spark.In:
        made = spark.In(path, tuple(constant(column) for _ in range(chance.randrange(1, 5))))
    else:
        made = kind(path, constant(column))
    return spark.Not(made) if chance.random() < 0.15 else made


def read(cluster: TimedCluster, ranges: list[OffsetRange]) -> list[Row]:
    return [
        row
        for one in ranges
        for row in cluster.written[one.place].rows(one.place)
        if one.start <= row.offset < one.end
    ]


def last_values(rows: list[Row]) -> list[Row]:
    last = {(row.topic, row.partition, row.key): row for row in sorted(rows)}
    return [row for row in last.values() if row.value is not None]


@pytest.mark.parametrize("is_table", [False, True])
def test_filtered_rows_are_the_same(is_table: bool) -> None:
    planned, whole = 0, 0
    for seed in range(1500):
        chance = random.Random(seed)
        cluster = TimedCluster(chance)
        given = {"kafka.bootstrap.servers": "h:1"}
        if is_table:
            given["table"] = TOPICS[0]
        else:
            given["subscribePattern"] = ".*"
            if chance.random() < 0.3:
                given["minPartitions"] = "20"
        options = parse(given, is_stream=False)
        filters = [
            some_filter(chance, cluster.written.values()) for _ in range(chance.randrange(1, 4))
        ]
        found = []
        sizes = []
        for some in ([], filters):
            ranges = plan_batch(
                options,
                cluster,
                FakeHighWatermarks(cluster),
                FakeSizes(),
                narrowing(conditions(some)),
            )
            rows = read(cluster, ranges)
            assert len(rows) == len(set(rows))
            rows = last_values(rows) if is_table else rows
            found.append(sorted(row for row in rows if all(holds(one, row) for one in filters)))
            sizes.append(sum(one.size for one in ranges))
        assert found[0] == found[1], f"seed {seed}: {filters}"
        whole, planned = whole + sizes[0], planned + sizes[1]
    assert 0 < planned < whole / 2


def test_places_without_a_row_are_not_asked() -> None:
    cluster = TimedCluster(random.Random(1))
    options = parse(
        {"kafka.bootstrap.servers": "h:1", "subscribe": ",".join(TOPICS)}, is_stream=False
    )
    wanted = [spark.EqualTo(("topic",), "users"), spark.GreaterThan(("partition",), 0)]
    later = spark.GreaterThan(("timestamp",), EPOCH + timedelta(milliseconds=1))
    plan_batch(
        options,
        cluster,
        FakeHighWatermarks(cluster),
        FakeSizes(),
        narrowing(conditions([*wanted, later])),
    )
    assert cluster.asked == {TopicPartition("users", 1), TopicPartition("users", 2)}
