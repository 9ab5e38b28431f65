"""``format("pyrklog")`` in batch writes, on a broker of ours."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException

from tests.support.groups import create_topic
from tests.support.sinking import sink, values, visible, wait_for_values

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(240)]

NOW_MS = time.time_ns() // 1_000_000 - 60_000


def numbers(spark: Any, start: int, end: int, tasks: int = 3) -> Any:
    return spark.range(start, end, 1, tasks).selectExpr("CAST(id AS STRING) AS value")


def expected(start: int, end: int) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(start, end))


def test_what_is_written(spark: Any, bootstrap: str, topic: str) -> None:
    """All columns, with nulls, in the types that a DataFrame has."""
    create_topic(bootstrap, topic, 3)
    at = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    headers = [("h", b"1"), ("h", None), ("", b"")]
    rows = [
        ("k", b"v", topic, 2, headers, at),
        (None, b"", topic, 1, None, at),
        ("", None, topic, 0, [], at),
    ]
    schema = (
        "key string, value binary, topic string, partition int, "
        "headers array<struct<key: string, value: binary>>, timestamp timestamp"
    )
    sink(spark.createDataFrame(rows, schema), bootstrap, None).save()
    columns = ["key", "value", "headers", "timestamp"]
    found = visible(bootstrap, topic, columns)
    as_dicts = [{"key": key, "value": value} for key, value in headers]
    assert [(row["key"], row["value"], row["headers"] or []) for row in found] == [
        (b"", None, []),
        (None, b"", []),
        (b"k", b"v", as_dicts),
    ]
    assert all(row["timestamp"] == at for row in found)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_many_rows(spark: Any, bootstrap: str, topic: str, codec: str) -> None:
    create_topic(bootstrap, topic, 4)
    options = {"kafka.compression.type": codec, "kafka.batch.size": "10000"}
    sink(numbers(spark, 0, 20_000), bootstrap, topic, **options).save()
    assert values(bootstrap, topic) == expected(0, 20_000)


def test_keys_go_where_other_producers_send_them(spark: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 7)
    frame = spark.range(500).selectExpr("CAST(id AS STRING) AS key", "'ours' AS value")
    sink(frame, bootstrap, topic).save()
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2"})
    for number in range(500):
        producer.produce(topic, b"theirs", b"%d" % number)
    assert producer.flush(30) == 0
    places: dict[bytes, set[tuple[bytes, int]]] = {b"ours": set(), b"theirs": set()}
    for row in visible(bootstrap, topic, ["key", "value"]):
        places[row["value"]].add((row["key"], row["partition"]))
    assert places[b"ours"] == places[b"theirs"]
    assert len(places[b"ours"]) == 500


def test_what_was_read_can_be_written(spark: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 2)
    create_topic(bootstrap, f"{topic}-copy", 2)
    sink(numbers(spark, 0, 100), bootstrap, topic).save()
    source = spark.read.format("pyrklog").option("kafka.bootstrap.servers", bootstrap)
    read = source.option("subscribe", topic).load()
    sink(read, bootstrap, f"{topic}-copy").save()
    rows = visible(bootstrap, topic, ["value", "timestamp"])
    copies = visible(bootstrap, f"{topic}-copy", ["value", "timestamp"])

    def plain(found: list[dict[str, Any]]) -> list[tuple[bytes, int, datetime]]:
        return sorted((row["value"], row["partition"], row["timestamp"]) for row in found)

    assert plain(rows) == plain(copies)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"delivry": "exactly_once"}, "did you mean delivery"),
        ({"delivery": "exactly_once"}, "needs txnAppId and txnVersion"),
        ({"kafka.acks": "1"}, "it can be all only"),
        ({"kafka.security.protocol": "TLS"}, "it can be PLAINTEXT or SSL"),
    ],
)
def test_a_mistake_is_told(
    spark: Any, bootstrap: str, topic: str, options: dict[str, str], told: str
) -> None:
    with pytest.raises(PySparkException, match=told):
        sink(numbers(spark, 0, 1), bootstrap, topic, **options).save()


def test_rows_that_cannot_be_written(spark: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 1)
    with pytest.raises(PySparkException, match="value is bigint, and not string or binary"):
        sink(spark.range(1).selectExpr("id AS value"), bootstrap, topic).save()
    frame = spark.range(1).selectExpr("'x' AS value", "5 AS partition")
    with pytest.raises(PySparkException, match=f"partition 5 of topic {topic}, which has 1"):
        sink(frame, bootstrap, topic).save()
    with pytest.raises(PySparkException, match=f"there is no topic {topic}-absent"):
        sink(numbers(spark, 0, 1), bootstrap, f"{topic}-absent").save()
    frame = spark.range(1).selectExpr("repeat('x', 3000000) AS value")
    with pytest.raises(PySparkException, match="takes no record so large"):
        sink(frame, bootstrap, topic).save()
    assert not values(bootstrap, topic)


def test_a_write_that_is_repeated_is_written_once(spark: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 3)
    options = {"delivery": "exactly_once", "txnAppId": topic}
    for version, start, end in (("1", 0, 300), ("1", 0, 300), ("2", 300, 400), ("1", 0, 300)):
        frame = numbers(spark, start, end)
        sink(frame, bootstrap, topic, txnVersion=version, **options).save()
    wait_for_values(bootstrap, topic, expected(0, 400))
    everything = values(bootstrap, topic, "read_uncommitted")
    assert everything == expected(0, 400), "a repeated write sent rows"


def test_a_batch_may_be_written_to_two_topics(spark: Any, bootstrap: str, topic: str) -> None:
    """As ``foreachBatch`` does."""
    names = [topic, f"{topic}-audit"]
    options = {"delivery": "exactly_once", "txnAppId": topic, "txnVersion": "1"}
    for name in names:
        create_topic(bootstrap, name, 1)
        sink(numbers(spark, 0, 20), bootstrap, name, **options).save()
    for name in names:
        wait_for_values(bootstrap, name, expected(0, 20))


def test_a_write_whose_task_fails_is_aborted(spark: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 2)
    options = {"delivery": "exactly_once", "txnAppId": topic, "txnVersion": "1"}
    frame = spark.range(0, 2000, 1, 2).selectExpr(
        "CAST(id AS STRING) AS value", "IF(id = 1999, 9, 0) AS partition"
    )
    with pytest.raises(PySparkException, match="partition 9"):
        sink(frame, bootstrap, topic, **options).save()
    assert not values(bootstrap, topic)
    sink(numbers(spark, 0, 50), bootstrap, topic, **options).save()
    wait_for_values(bootstrap, topic, expected(0, 50))
