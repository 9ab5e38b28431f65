"""``option("table", TOPIC)``: a compacted topic as a table, beside the same made by a dict."""

from __future__ import annotations

import random
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException

from tests.support.groups import create_topic
from tests.support.spark import our_source

pytestmark = [pytest.mark.jvm, pytest.mark.spark]


def table_of(spark: Any, bootstrap: str, topic: str, **options: str) -> Any:
    return our_source(spark.read, bootstrap, None, table=topic, **options)


def update(producer: Producer, topic: str, seed: int, table: dict[bytes, bytes]) -> None:
    """Values and tombstones; ``table`` becomes what is left."""
    chance = random.Random(seed)
    for _ in range(2000):
        key = b"%d" % chance.randrange(300)
        if chance.random() < 0.3:
            producer.produce(topic, None, key)
            table.pop(key, None)
        else:
            value = chance.randbytes(10)
            producer.produce(topic, value, key)
            table[key] = value
    assert producer.flush(30) == 0


def test_the_last_value_of_each_key(spark: Any, bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    compacted = NewTopic(topic, 3, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([compacted])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    table: dict[bytes, bytes] = {}
    for seed in range(2):
        update(producer, topic, seed, table)
        rows = table_of(spark, bootstrap, topic).collect()
        assert len(rows) == len(table)
        assert {bytes(row.key): bytes(row.value) for row in rows} == table
    pruned = spark.read.schema("offset long, key binary")
    keys = our_source(pruned, bootstrap, None, table=topic).collect()
    assert sorted(bytes(row.key) for row in keys) == sorted(table)


def test_aborted_values_are_not_last(spark: Any, bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for value, ends in ((b"1", producer.commit_transaction), (b"2", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, b"k")
        producer.flush()
        ends()
    assert [bytes(row.value) for row in table_of(spark, bootstrap, topic).collect()] == [b"1"]


def test_a_record_without_a_key_is_told(spark: Any, bootstrap: str, topic: str) -> None:
    """A broker takes it unless the topic is compacted."""
    create_topic(bootstrap, topic, 1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for key in (b"k", None):
        producer.produce(topic, b"value", key)
    assert producer.flush(30) == 0
    with pytest.raises(PySparkException, match=f"offset 1 of {topic}-0 has no key"):
        table_of(spark, bootstrap, topic).collect()


def test_a_mistake_is_told(spark: Any, bootstrap: str, topic: str) -> None:
    with pytest.raises(PySparkException, match="minPartitions beside table"):
        table_of(spark, bootstrap, topic, minPartitions="4").collect()
    stream = our_source(spark.readStream, bootstrap, None, table=topic)
    with pytest.raises(PySparkException, match="a table is read as a batch"):
        stream.writeStream.format("memory").queryName("no_table").start().processAllAvailable()
