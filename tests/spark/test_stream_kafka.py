"""``format("pyrklog")`` on Apache Kafka 3.9: what depends on the broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException

from tests.support.bad_records import bad_places, mixed, places
from tests.support.bad_records_driver import SCHEMA
from tests.support.clients import Confluent, Record
from tests.support.groups import create_topic, fill
from tests.support.kafka_broker import KafkaBroker
from tests.support.spark import our_source
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


@pytest.fixture
def kafka(broker: KafkaBroker) -> str:
    return broker.bootstrap


def run(spark: Any, kafka: str, topic: str, folder: Path) -> list[str]:
    """Reads what is there into Parquet, and gives all values so far."""
    options = {"startingOffsets": "earliest", "commitGroup": f"{topic}-lag"}
    query = (
        our_source(spark.readStream, kafka, topic, **options)
        .selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(90)
    rows = spark.read.parquet(str(folder / "out")).orderBy("partition", "offset").collect()
    return [row.value for row in rows]


def test_a_stream_and_its_group(
    spark: Any, broker: KafkaBroker, kafka: str, topic: str, tmp_path: Path
) -> None:
    """Kafka names a leader's epoch with the end of its log, also if it wrote no record in it, and
    forgets that epoch when the next leader comes: no record is lost by that."""
    create_topic(kafka, topic, 2)
    fill(kafka, topic, 2, 50)
    broker.restart()
    first = [f"{partition}:{number}" for partition in range(2) for number in range(50)]
    assert run(spark, kafka, topic, tmp_path) == first
    broker.restart()
    fill(kafka, topic, 1, 5, first=50)
    expected = [f"0:{number}" for number in range(55)] + first[50:]
    assert run(spark, kafka, topic, tmp_path) == expected
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": f"{topic}-lag"})
    try:
        committed = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], 30)
    finally:
        consumer.close()
    assert [one.offset for one in committed] == [55, 50]
    assert [one.metadata for one in committed] == ["pyrklog.spark 2", "pyrklog.spark 1"]
    assert committed[0].leader_epoch > committed[1].leader_epoch > 0


def test_a_topic_created_anew_is_a_loss(spark: Any, kafka: str, topic: str, tmp_path: Path) -> None:
    create_topic(kafka, topic, 1)
    fill(kafka, topic, 1, 10)
    run(spark, kafka, topic, tmp_path)
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=30).topics, "the topic stays")
    create_topic(kafka, topic, 1)
    fill(kafka, topic, 1, 10)
    with pytest.raises(StreamingQueryException, match="was deleted and created anew"):
        run(spark, kafka, topic, tmp_path)


def test_bad_records_go_to_a_topic(spark: Any, kafka: str, topic: str, tmp_path: Path) -> None:
    bad = f"{topic}-bad"
    create_topic(kafka, topic, 1)
    create_topic(kafka, bad, 1)
    options = {"startingOffsets": "earliest", "decode": "json", "onBad": "drop", "badRecords": bad}
    for turn in range(2):
        records = [Record(b"k", value) for value in mixed(100, 10, first=100 * turn)]
        Confluent().produce(kafka, topic, records)
        query = (
            our_source(spark.readStream, kafka, topic, schema=SCHEMA, **options)
            .selectExpr("value.id", "offset")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(90)
        assert places(kafka, bad) == bad_places(topic, 1, 100 * turn + 100, 10)
    assert spark.read.parquet(str(tmp_path / "out")).count() == 180
