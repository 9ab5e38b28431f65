"""``format("pyrklog")`` in batch reads, on a broker of ours."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException

from tests.support.clients import CODECS, Confluent, Record
from tests.support.groups import create_topic, fill
from tests.support.spark import our_source

pytestmark = [pytest.mark.jvm, pytest.mark.spark]

CLIENT = Confluent()
# Older records would be deleted: topics are kept for a week.
NOW_MS = time.time_ns() // 1_000_000 - 60_000


def offsets(frame: Any) -> list[tuple[int, int]]:
    return sorted(
        (row.partition, row.offset) for row in frame.select("partition", "offset").collect()
    )


def test_rows_are_what_was_written(spark: Any, bootstrap: str, topic: str) -> None:
    written = [
        Record(b"k", b"v", (("h", b"1"), ("h", None)), NOW_MS),
        Record(None, b"", (), NOW_MS + 1),
        Record(b"", None, (("", b""),), NOW_MS + 2),
    ]
    for codec in CODECS:
        CLIENT.produce(bootstrap, topic, written, codec=codec)
    frame = our_source(spark.read, bootstrap, topic, includeHeaders="true")
    assert [f"{field.name} {field.dataType.simpleString()}" for field in frame.schema] == [
        "key binary",
        "value binary",
        "topic string",
        "partition int",
        "offset bigint",
        "timestamp timestamp",
        "timestampType int",
        "headers array<struct<key:string,value:binary>>",
    ]
    rows = frame.orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(3 * len(CODECS)))
    for number, row in enumerate(rows):
        record = written[number % 3]
        assert (row.key, row.value, row.topic, row.partition) == (
            record.key,
            record.value,
            topic,
            0,
        )
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=record.timestamp_ms)
        assert row.timestamp.astimezone(UTC) == at
        assert row.timestampType == 0
        headers = tuple((header.key, header.value) for header in row.headers or ())
        assert headers == record.headers


def test_ranges_and_tasks(spark: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 2)
    fill(bootstrap, topic, 2, 100)
    start = f'{{"{topic}": {{"0": 90, "1": -2}}}}'
    end = f'{{"{topic}": {{"0": -1, "1": 7}}}}'
    frame = our_source(
        spark.read, bootstrap, topic, startingOffsets=start, endingOffsets=end, minPartitions="5"
    )
    assert frame.rdd.getNumPartitions() == 5
    expected = [(0, offset) for offset in range(90, 100)] + [(1, offset) for offset in range(7)]
    assert offsets(frame) == expected
    by_bytes = our_source(spark.read, bootstrap, topic, maxBytesPerPartition="2000")
    assert by_bytes.rdd.getNumPartitions() > 2
    assert by_bytes.count() == 200
    assigned = our_source(spark.read, bootstrap, None, assign=f'{{"{topic}": [1]}}')
    assert assigned.count() == 100
    pattern = our_source(spark.read, bootstrap, None, subscribePattern=f"^{topic[:-1]}.$")
    assert pattern.count() == 200


def test_times(spark: Any, bootstrap: str, topic: str) -> None:
    records = [Record(None, b"%d" % number, (), NOW_MS + 1000 * number) for number in range(10)]
    CLIENT.produce(bootstrap, topic, records)
    frame = our_source(
        spark.read,
        bootstrap,
        topic,
        startingTimestamp=str(NOW_MS + 3000),
        endingTimestamp=str(NOW_MS + 6001),
    )
    assert offsets(frame) == [(0, offset) for offset in range(3, 7)]


def test_an_empty_topic_has_no_rows(spark: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 3)
    assert our_source(spark.read, bootstrap, topic).collect() == []


def test_a_schema_of_the_users_prunes_columns(spark: Any, bootstrap: str, topic: str) -> None:
    CLIENT.produce(bootstrap, topic, [Record(b"k", b"v")] * 5)
    frame = our_source(spark.read.schema("offset long, topic string"), bootstrap, topic)
    assert frame.columns == ["offset", "topic"]
    assert [row.offset for row in frame.orderBy("offset").collect()] == list(range(5))
    wrong = our_source(spark.read.schema("value string"), bootstrap, topic)
    with pytest.raises(PySparkException, match="column value is binary"):
        wrong.collect()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({"startingOffsets": "latest"}, "a batch cannot start at latest"),
        ({"kafka.security.protocol": "TLS"}, "it can be PLAINTEXT or SSL"),
    ],
)
def test_a_mistake_is_told(
    spark: Any, bootstrap: str, topic: str, options: dict[str, str], told: str
) -> None:
    with pytest.raises(PySparkException, match=told):
        our_source(spark.read, bootstrap, topic, **options).collect()


def test_a_topic_that_does_not_exist_is_not_created(spark: Any, bootstrap: str, topic: str) -> None:
    with pytest.raises(PySparkException, match=f"there is no topic {topic}"):
        our_source(spark.read, bootstrap, topic).collect()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assert topic not in admin.list_topics(timeout=30).topics


def test_uncommitted_records_are_not_read(spark: Any, bootstrap: str, topic: str) -> None:
    """Read by both levels of isolation, after an abort."""
    create_topic(bootstrap, topic, 1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction)):
        producer.begin_transaction()
        for _ in range(4):
            producer.produce(topic, b"%d" % number)
        producer.flush()
        ends()
    values = [row.value for row in our_source(spark.read, bootstrap, topic).collect()]
    assert values == [b"0"] * 4
    everything = our_source(
        spark.read, bootstrap, topic, **{"kafka.isolation.level": "read_uncommitted"}
    )
    assert everything.count() == 8
