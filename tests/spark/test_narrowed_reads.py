"""What a query's filters leave of a batch read, on pyrklog and on Apache Kafka 3.9: the reader as
Spark's planner calls it, without Spark."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from pyspark.sql import datasource as spark

from pyrklog.spark.columns import schema
from pyrklog.spark.source import PyrklogSource
from pyrklog.testing import TestBroker
from pyrklog.testing.broker import free_port
from tests.support.awkward_topic import PARTITIONS, SPAN_MS, START_MS, make_awkward
from tests.support.compacting import EAGER_BROKER
from tests.support.kafka_broker import KafkaBroker
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.watching_proxy import Passing, WatchingProxy

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

START = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=START_MS)
OFFSET, PARTITION, TOPIC, TIMESTAMP = ("offset",), ("partition",), ("topic",), ("timestamp",)
FETCH = 1

Row = dict[str, Any]


class Fetched:
    """Bytes of the answers to Fetch that passed."""

    def __init__(self) -> None:
        self.bytes = 0

    def __call__(self, passing: Passing) -> None:
        if passing.api_key == FETCH and not passing.is_request:
            self.bytes += len(passing.payload)


class Place(NamedTuple):
    bootstrap: str
    fetched: Fetched
    is_kafka: bool


@pytest.fixture(scope="module", params=["pyrklog", pytest.param("kafka", marks=pytest.mark.jvm)])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A broker behind a proxy that counts."""
    port, fetched = free_port(), Fetched()
    bootstrap = f"127.0.0.1:{port}"
    advertised = {"advertised.listeners": f"PLAINTEXT://{bootstrap}"}
    with ExitStack() as stack:
        if request.param == "kafka":
            options = {name: str(value) for name, value in EAGER_BROKER.items()}
            folder = tmp_path_factory.mktemp("kafka") / "broker"
            kafka = KafkaBroker(folder, options=options | advertised)
            target = stack.enter_context(kafka).bootstrap
        else:
            ours = TestBroker(options=EAGER_BROKER | advertised)
            target = stack.enter_context(ours).bootstrap
        # Counted before it passes: what a reader has is counted when the next one begins.
        stack.enter_context(WatchingProxy(target, port, fetched, early=True))
        yield Place(bootstrap, fetched, request.param == "kafka")


def read(
    place: Place, topic: str, filters: Sequence[spark.Filter] | None = None, /, **options: str
) -> list[Row]:
    """All rows that the tasks give; with None nothing is pushed down."""
    given = {"kafka.bootstrap.servers": place.bootstrap, "subscribe": topic} | options
    if filters is not None:
        given["pushFilters"] = "once"
    if "table" in given:
        del given["subscribe"]
    source = PyrklogSource({name.lower(): value for name, value in given.items()})
    reader = source.reader(schema(with_headers=False))
    if filters is not None:
        assert list(reader.pushFilters(list(filters))) == list(filters)
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def satisfying(filters: Sequence[spark.Filter], rows: list[Row]) -> set[tuple[int, int]]:
    """Partition and offset of those rows."""
    compared: dict[type[spark.Filter], Callable[[Any, Any], bool]] = {
        spark.EqualTo: lambda one, other: one == other,
        spark.LessThan: lambda one, other: one < other,
        spark.GreaterThanOrEqual: lambda one, other: one >= other,
        spark.GreaterThan: lambda one, other: one > other,
        spark.In: lambda one, others: one in others,
    }
    return {
        (row["partition"], row["offset"])
        for row in rows
        if all(
            compared[type(one)](row[one.attribute[0]], one.value)  # type: ignore[attr-defined]
            for one in filters
        )
    }


def some_filters(chance: random.Random, rows: list[Row]) -> list[spark.Filter]:
    """Constants are those of rows, so that something is left, or are near them."""

    def constant(column: str) -> Any:
        value = chance.choice(rows)[column]
        if column == "timestamp":
            return value + timedelta(microseconds=chance.choice([0, 0, 1, 999, 1000, -1]))
        return value

    made: list[spark.Filter] = []
    for column in chance.sample(["partition", "offset", "offset", "timestamp"], k=2):
        path = (column,)
        if chance.random() < 0.3:
            made.append(spark.In(path, tuple(constant(column) for _ in range(3))))
        else:
            kinds = [spark.EqualTo, spark.LessThan, spark.GreaterThanOrEqual, spark.GreaterThan]
            made.append(chance.choice(kinds)(path, constant(column)))
    return made


@pytest.mark.parametrize("is_table", [False, True])
def test_rows_are_those_of_a_read_without(place: Place, topic: str, is_table: bool) -> None:
    """Compaction may go on meanwhile: it only takes rows away."""
    chance = random.Random(int(is_table))
    committed = make_awkward(place.bootstrap, topic, chance)
    wait_until(lambda: len(read(place, topic)) < committed * 2 // 3, "nothing is compacted")
    options = {"table": topic} if is_table else {}
    before = read(place, topic, **options)
    times = [row["timestamp"] for row in before if row["partition"] == 0]
    assert times != sorted(times)
    found = []
    for _ in range(60):
        filters = some_filters(chance, before)
        rows = read(place, topic, filters, **options)
        assert len(rows) == len({(row["partition"], row["offset"]) for row in rows})
        found.append((filters, rows))
    after = read(place, topic, **options)
    for filters, rows in found:
        given = satisfying(filters, rows)
        assert satisfying(filters, after) <= given <= satisfying(filters, before), filters
    assert any(satisfying(filters, after) for filters, _ in found)
    assert sum(len(rows) for _, rows in found) < len(found) * len(after) * 3 / 4


def test_a_time_that_the_leader_does_not_find(place: Place, topic: str) -> None:
    """The first segment had the latest record, which was deleted. Kafka looks no further."""
    admin = AdminClient({"bootstrap.servers": place.bootstrap})
    config = {"segment.bytes": "4000", "retention.ms": "-1"}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": place.bootstrap, "batch.num.messages": 1})
    times_ms = [86_400_000, *[0] * 30, 3_600_000, *[0] * 5]
    for at_ms in times_ms:
        producer.produce(topic, b"v" * 300, partition=0, timestamp=START_MS + at_ms)
        assert producer.flush(PATIENCE_S) == 0
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 1)]).values()
    assert deleted.result(PATIENCE_S).low_watermark == 1
    asked = {TopicPartition(topic, 0): OffsetSpec.for_timestamp(START_MS + 1_800_000)}
    [listed] = admin.list_offsets(asked).values()
    assert listed.result(PATIENCE_S).offset == (-1 if place.is_kafka else 31)
    later = spark.GreaterThanOrEqual(TIMESTAMP, START + timedelta(minutes=30))
    assert 31 in [row["offset"] for row in read(place, topic, [later])]


def test_less_is_fetched(place: Place, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": place.bootstrap})
    config = {"retention.ms": "-1", "index.interval.bytes": "4096"}
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": place.bootstrap, "batch.num.messages": 50})
    count = 10_000
    for partition in range(PARTITIONS):
        for number in range(count):
            at_ms = START_MS + number * SPAN_MS // count
            producer.produce(topic, b"v" * 1000, partition=partition, timestamp=at_ms)
            if number % 1000 == 0:
                producer.flush(PATIENCE_S)
    # A late record may be an old one.
    producer.produce(topic, b"v", partition=2, timestamp=START_MS)
    assert producer.flush(PATIENCE_S) == 0

    def bytes_of(*filters: spark.Filter, rows: int) -> int:
        place.fetched.bytes = 0
        found = read(place, topic, filters)
        assert len(satisfying(filters, found)) == rows
        return place.fetched.bytes

    whole = bytes_of(rows=PARTITIONS * count + 1)
    assert whole > PARTITIONS * count * 1000
    last_tenth = START + timedelta(milliseconds=SPAN_MS * 9 // 10)
    tenth = count // 10
    first = spark.EqualTo(PARTITION, 0)
    assert bytes_of(first, rows=count) < whole * 0.4
    assert bytes_of(spark.LessThan(PARTITION, 0), rows=0) == 0
    assert bytes_of(spark.GreaterThanOrEqual(OFFSET, count - tenth), rows=3 * tenth + 1) < whole / 8
    assert bytes_of(first, spark.In(OFFSET, (5, 7)), rows=2) < whole / 8
    assert bytes_of(spark.GreaterThanOrEqual(TIMESTAMP, last_tenth), rows=3 * tenth) < whole / 8
    assert bytes_of(spark.GreaterThan(TIMESTAMP, START + timedelta(days=1)), rows=0) == 0
    # Nothing is known of later records.
    assert bytes_of(spark.LessThan(TIMESTAMP, START), rows=0) > whole * 0.9
