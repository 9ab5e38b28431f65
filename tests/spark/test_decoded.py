"""``format("pyrklog")`` with ``decode``: typed columns in batches and streams."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tests.support.avro import encoded, framed
from tests.support.clients import Confluent, Record
from tests.support.groups import create_topic
from tests.support.protobuf import DESCRIPTORS, part
from tests.support.registry import Registry
from tests.support.spark import our_source

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(240)]

STREAM_S = 90
ORDER = StructType([StructField("id", LongType(), False), StructField("name", StringType())])
OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
NEW = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "name", "type": "string", "default": "-"},
        {"name": "id", "type": "long"},
    ],
}


def produce(bootstrap: str, topic: str, values: list[bytes | None]) -> None:
    Confluent().produce(bootstrap, topic, [Record(b"k", value) for value in values])


def rows(frame: Any) -> list[Any]:
    return [
        None if row.value is None else tuple(row.value)
        for row in frame.orderBy("partition", "offset").collect()
    ]


def test_json_in_a_batch(spark: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 1)
    good = [b'{"id": %d, "name": "n%d", "more": [1]}' % (n, n) for n in range(300)]
    produce(bootstrap, topic, [*good, None, b"{", b'{"name": "x"}', b'{"id": 7}'])
    expected = [*((n, f"n{n}") for n in range(300)), None, None, None, (7, None)]
    given = {"decode": "json", "schema": ORDER.json()}
    frame = our_source(spark.read, bootstrap, topic, minPartitions="3", **given)
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,name:string>"
    assert rows(frame) == expected
    assert frame.groupBy().agg({"value.id": "sum"}).collect()[0][0] == sum(range(300)) + 7
    # By the columns asked for, without the option.
    asked = spark.read.schema("offset long, partition int, value struct<name: string>")
    frame = our_source(asked, bootstrap, topic, decode="json")
    assert rows(frame)[-5:] == [("n299",), None, None, ("x",), (None,)]
    # From a sample.
    frame = our_source(spark.read, bootstrap, topic, decode="json")
    kind = frame.schema["value"].dataType.simpleString()
    assert kind == "struct<id:bigint,name:string,more:array<bigint>>"
    assert rows(frame)[5] == (5, "n5", [1])
    # Rows are dropped, whether or not the value is asked for.
    dropped = our_source(spark.read, bootstrap, topic, onBad="drop", **given)
    assert rows(dropped) == [*expected[:301], (7, None)]
    for on_bad, count in (("drop", 302), ("null", 304)):
        offsets = spark.read.schema("offset long")
        assert our_source(offsets, bootstrap, topic, onBad=on_bad, **given).count() == count
    fails = our_source(spark.read, bootstrap, topic, onBad="fail", **given)
    told = f"topic {topic} partition 0 offset 301: the value does not fit"
    with pytest.raises(PySparkException, match=told):
        fails.collect()


def test_mistakes_are_told_before_anything_is_read(spark: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 1)
    cases: list[tuple[dict[str, str], str]] = [
        ({"decode": "json"}, "no values to infer a schema from"),
        ({"decode": "jsn"}, "json or avro or protobuf"),
        ({"decode": "avro", "schema": "{"}, "the schema is no JSON"),
        ({"schema": ORDER.json()}, "give decode"),
    ]
    for options, told in cases:
        with pytest.raises(PySparkException, match=told):
            our_source(spark.read, bootstrap, topic, **options).collect()
    asked = spark.read.schema("value struct<id: string>")
    wrong = our_source(asked, bootstrap, topic, decode="json", schema=ORDER.json())
    with pytest.raises(PySparkException, match="field id of value is bigint, and not string"):
        wrong.collect()


def test_avro_by_a_registry_in_a_batch(spark: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 1)
    old = [framed(3, encoded(OLD, {"id": n})) for n in range(50)]
    new = [framed(8, encoded(NEW, {"id": n, "name": "n"})) for n in range(50)]
    produce(bootstrap, topic, [*old, framed(9, b"\0"), *new])
    expected = [*(("-", n) for n in range(50)), None, *(("n", n) for n in range(50))]
    with Registry({3: OLD, 8: NEW}) as registry:
        given = {"decode": "avro", "schema": json.dumps(NEW), "registry": registry.url}
        frame = our_source(spark.read, bootstrap, topic, **given)
        assert rows(frame) == expected
        assert set(registry.asked) == {3, 8, 9}


def test_avro_by_the_latest_schema_of_a_registry(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """The driver asks for it once, tasks for the schemas that values name."""
    create_topic(bootstrap, topic, 1)
    old: list[bytes | None] = [framed(3, encoded(OLD, {"id": n})) for n in range(50)]
    produce(bootstrap, topic, [*old, framed(8, encoded(NEW, {"id": 50, "name": "n"}))])
    subject = f"{topic}-value"
    expected = [*(("-", n) for n in range(50)), ("n", 50)]
    given = {"decode": "avro", "kafka.request.timeout.ms": "1000"}
    with Registry({3: OLD, 8: NEW}, {subject: 8, "old": 3}) as registry:
        given["registry"] = registry.url
        frame = our_source(spark.read, bootstrap, topic, **given)
        assert registry.asked_subjects == [subject]
        assert frame.schema["value"].dataType.simpleString() == "struct<name:string,id:bigint>"
        assert rows(frame) == expected
        assert rows(frame.where("value.id < 3")) == expected[:3]
        assert registry.asked_subjects == [subject]
        assert set(registry.asked) == {3, 8}
        # Some of its fields, by the columns asked for.
        asked = spark.read.schema("offset long, partition int, value struct<id: bigint>")
        assert rows(our_source(asked, bootstrap, topic, **given))[-1] == (50,)
        # Of another subject: what has a long does not fit into its int.
        frame = our_source(spark.read, bootstrap, topic, subject="old", **given)
        assert rows(frame)[-2:] == [(49,), None]

        def stream() -> Any:
            options = {"startingOffsets": "earliest", **given}
            return our_source(spark.readStream, bootstrap, topic, **options)

        registry.asked_subjects.clear()
        streaming = Stream(spark, tmp_path, stream)
        streaming.run()
        assert streaming.rows() == [(*row, number) for number, row in enumerate(expected)]
        assert registry.asked_subjects == [subject]
        with pytest.raises(PySparkException, match=f"{registry.url} has no subject none"):
            our_source(spark.read, bootstrap, topic, subject="none", **given)
        registry.failing = True
        with pytest.raises(PySparkException, match=f"gives no schema of subject {subject}: status"):
            our_source(spark.read, bootstrap, topic, **given)


def test_protobuf_in_a_batch(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    create_topic(bootstrap, topic, 1)
    line = part(1, "sku") + part(2, 0.5)
    value = part(1, 7) + part(3, line) + part(5, b"\1\2")
    produce(bootstrap, topic, [value, b"\xff", b"", None])
    path = tmp_path / "shop.desc"
    path.write_bytes(DESCRIPTORS)
    given = {"decode": "protobuf", "descriptors": str(path), "message": "shop.Order"}
    frame = our_source(spark.read, bootstrap, topic, **given)
    assert rows(frame) == [
        (7, "", [("sku", 0.5)], None, [1, 2]),
        None,
        (0, "", [], None, []),
        None,
    ]


class Stream:
    """Decoded values into Parquet, run to the end as often as the test wants."""

    def __init__(self, spark: Any, folder: Path, frame: Callable[[], Any]) -> None:
        self.spark, self.folder, self.frame = spark, folder, frame

    def run(self) -> None:
        query = (
            self.frame()
            .select("value.*", "offset")
            .writeStream.format("parquet")
            .option("path", str(self.folder / "out"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(STREAM_S)

    def rows(self) -> list[tuple[Any, ...]]:
        found = self.spark.read.parquet(str(self.folder / "out")).orderBy("offset")
        return [tuple(row) for row in found.collect()]


def test_a_stream_of_json_needs_a_schema(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, topic, 1)
    given = {"startingOffsets": "earliest", "decode": "json", "maxOffsetsPerTrigger": "40"}

    def frame(**more: str) -> Any:
        return our_source(spark.readStream, bootstrap, topic, **given, **more)

    stream = Stream(spark, tmp_path, lambda: frame(schema=ORDER.json(), onBad="drop"))
    expected = []
    for turn in range(2):
        numbers = range(100 * turn, 100 * turn + 100)
        values = [b'{"id": %d, "name": "x"}' % n for n in numbers]
        produce(bootstrap, topic, [*values, b"["])
        expected += [(n, "x", n + turn) for n in numbers]
        stream.run()
        assert stream.rows() == expected
    with pytest.raises(PySparkException, match="a stream of decoded values needs a schema"):
        Stream(spark, tmp_path / "other", frame).run()


def test_a_stream_waits_for_no_registry_and_loses_nothing(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, topic, 1)
    values: list[bytes | None] = [framed(3, encoded(OLD, {"id": n})) for n in range(100)]
    produce(bootstrap, topic, values)
    with Registry({3: OLD}) as registry:
        given = {
            "startingOffsets": "earliest",
            "decode": "avro",
            "schema": json.dumps(NEW),
            "registry": registry.url,
            "kafka.request.timeout.ms": "1000",
        }
        stream = Stream(
            spark, tmp_path, lambda: our_source(spark.readStream, bootstrap, topic, **given)
        )
        registry.failing = True
        told = f"the registry {registry.url} gives no schema 3: status 503"
        with pytest.raises(StreamingQueryException, match=told):
            stream.run()
        registry.failing = False
        stream.run()
        assert stream.rows() == [("-", n, n) for n in range(100)]
