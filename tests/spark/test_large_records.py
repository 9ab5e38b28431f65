"""Records of 100 MB by ``format("pyrklog")``, both ways, and the sentences of the limits."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException, StreamingQueryException

from tests.support.sinking import sink
from tests.support.spark import our_source

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(240)]

LARGE_BYTES = 100_000_000


def create(bootstrap: str, topic: str) -> None:
    """A topic for such records."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"max.message.bytes": str(LARGE_BYTES + 1_000_000)}
    new = NewTopic(topic, 1, 1, config=config)
    admin.create_topics([new])[topic].result(60)


def write(spark: Any, bootstrap: str, topic: str, **options: str) -> None:
    """A small record, and a large one, by one task each: their order is not known."""
    frame = spark.range(0, 2, 1, 2).selectExpr(
        f"repeat(CAST(id AS STRING), CASE WHEN id = 0 THEN 10 ELSE {LARGE_BYTES} END) AS value"
    )
    sink(frame, bootstrap, topic, **options).save()


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_record_of_100_mb_there_and_back(
    spark: Any, bootstrap: str, topic: str, codec: str
) -> None:
    create(bootstrap, topic)
    write(spark, bootstrap, topic, **{"kafka.compression.type": codec})
    frame = our_source(spark.read, bootstrap, topic)
    rows = frame.selectExpr("length(value) AS size", "md5(value) AS digest").collect()
    written = [b"0" * 10, b"1" * LARGE_BYTES]
    assert sorted((row["size"], row["digest"]) for row in rows) == [
        (len(value), hashlib.md5(value, usedforsecurity=False).hexdigest()) for value in written
    ]


def test_a_limit_of_reads_is_named(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    """With the record's place; raised, the stream goes on."""
    create(bootstrap, topic)
    write(spark, bootstrap, topic, **{"kafka.compression.type": "zstd"})
    options = {"startingOffsets": "earliest", "largeBytes": "50000000"}
    with pytest.raises(StreamingQueryException) as said:
        run(spark, bootstrap, topic, tmp_path, options)
    assert f"partition {topic}-0 at offset " in str(said.value)
    assert "expand to more than 50000000 bytes (large_bytes)" in str(said.value)
    run(spark, bootstrap, topic, tmp_path, options | {"largeBytes": "110000000"})
    assert sorted(row["size"] for row in spark.read.parquet(str(tmp_path / "out")).collect()) == [
        10,
        LARGE_BYTES,
    ]


def run(spark: Any, bootstrap: str, topic: str, folder: Path, options: dict[str, str]) -> None:
    query = (
        our_source(spark.readStream, bootstrap, topic, **options)
        .selectExpr("length(value) AS size")
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)


def test_a_limit_of_writes_is_named(spark: Any, bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    said = rf"partition 0 of topic {topic} takes no record so large \(max\.message\.bytes\)"
    with pytest.raises(PySparkException, match=said):
        write(spark, bootstrap, topic)
