"""Spark's stock Kafka connector: batch read, write, streaming read with a restart."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from tests.support.clients import CODECS, Confluent, Record
from tests.support.groups import create_topic
from tests.support.spark import source, start_session

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(240)]

CLIENT = Confluent()
STREAM_S = 90


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = start_session(tmp_path_factory.mktemp("warehouse"))
    yield session
    session.stop()


def test_batch_read_and_write(spark: Any, bootstrap: str, topic: str) -> None:
    for turn, codec in enumerate(CODECS):
        records = [
            Record(b"k%d" % (number % 3), b"%d" % (100 * turn + number), (("h", codec.encode()),))
            for number in range(100)
        ]
        CLIENT.produce(bootstrap, topic, records, codec=codec)
    whole = source(spark.read, bootstrap, topic, includeHeaders="true")
    rows = whole.orderBy("offset").collect()
    assert [bytes(row.value) for row in rows] == [b"%d" % number for number in range(500)]
    assert [row.offset for row in rows] == list(range(500))
    assert [bytes(rows[100 * turn].headers[0].value).decode() for turn in range(5)] == list(CODECS)

    some = source(
        spark.read,
        bootstrap,
        topic,
        startingOffsets=f'{{"{topic}": {{"0": 120}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 133}}}}',
        minPartitions="3",
    )
    assert sorted(row.offset for row in some.select("offset").collect()) == list(range(120, 133))

    sums = (
        whole.groupBy(F.col("key").cast("string").alias("key"))
        .agg(F.sum(F.col("value").cast("string").cast("long")).alias("total"))
        .select("key", F.col("total").cast("string").alias("value"))
    )
    result = f"{topic}-result"
    sums.write.format("kafka").options(**{"kafka.bootstrap.servers": bootstrap}).option(
        "topic", result
    ).save()
    written = {row.key: row.value for row in CLIENT.consume(bootstrap, result, 3)}
    expected: dict[bytes, int] = {}
    for number in range(500):
        key = b"k%d" % (number % 100 % 3)
        expected[key] = expected.get(key, 0) + number
    assert written == {key: b"%d" % total for key, total in expected.items()}


def test_streaming_read_survives_a_restart(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    def run_to_the_end() -> Any:
        query = (
            source(spark.readStream, bootstrap, topic, startingOffsets="earliest")
            .selectExpr("CAST(value AS STRING) AS value", "offset")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(STREAM_S)
        return query

    CLIENT.produce(bootstrap, topic, [Record(None, b"%d" % number) for number in range(200)])
    run_to_the_end()
    CLIENT.produce(bootstrap, topic, [Record(None, b"%d" % number) for number in range(200, 350)])
    query = run_to_the_end()
    assert json.loads(query.recentProgress[-1].sources[0].startOffset) == {topic: {"0": 200}}
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("offset").collect()
    assert [row.value for row in rows] == [str(number) for number in range(350)]


def test_streaming_write(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    """A continuous query from topic to topic, fed while it runs."""
    result = f"{topic}-result"
    # A reader waits half a minute for a topic, and Spark may begin later.
    create_topic(bootstrap, result, 1)
    CLIENT.produce(bootstrap, topic, [Record(b"k", b"0")])
    query = (
        source(spark.readStream, bootstrap, topic, startingOffsets="earliest")
        .selectExpr("key", "CAST(CAST(value AS STRING) * 2 AS STRING) AS value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", result)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    try:
        assert CLIENT.consume(bootstrap, result, 1)[0].value in (b"0", b"0.0")
        CLIENT.produce(bootstrap, topic, [Record(b"k", b"21"), Record(b"k", b"4")])
        values = [record.value for record in CLIENT.consume(bootstrap, result, 2, start=1)]
        assert [float(value or b"nan") for value in values] == [42, 8]
    finally:
        query.stop()
