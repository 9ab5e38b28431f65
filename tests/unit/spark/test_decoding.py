"""The options of decoded values, and what they are in Spark's types."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyrklog.spark.columns import SchemaError, check_schema, converted, schema, value_of
from pyrklog.spark.decode_options import Decoding, decoding
from pyrklog.spark.decoding import is_judged, known, scan_arguments, spark_type, struct_of
from pyrklog.spark.given import Given, OptionError
from pyrklog.spark.options import parse
from pyrklog.spark.registered import is_wanted, latest
from tests.support.protobuf import DESCRIPTORS

REQUIRED = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
POINT = StructType([StructField("x", IntegerType(), False), StructField("y", StringType())])
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}


def made(**options: str) -> Decoding:
    given = Given({name.lower(): value for name, value in options.items()})
    found = decoding(given)
    given.raise_mistakes()
    assert found is not None
    return found


def test_raw_values_are_the_default() -> None:
    assert parse(REQUIRED, is_stream=True).decoding is None
    assert decoding(Given({})) is None


def test_json_by_a_schema_of_sparks() -> None:
    found = made(decode="JSON", schema=POINT.json(), onBad="fail")
    assert (found.format, found.on_bad) == ("json", "fail")
    fields = known(found)
    assert fields is not None
    assert fields.simpleString() == "struct<x:int,y:string>"
    arguments = scan_arguments(found, StructType([fields["y"]]))
    assert arguments["fields"] == ["y"]
    # What must be there stays so: it makes other values bad.
    assert arguments["schema"].field("x").nullable is False
    assert pickle.loads(pickle.dumps(found)) == found


def test_json_by_what_is_asked_for() -> None:
    found = made(decode="json", schema="infer")
    assert known(found) is None
    arguments = scan_arguments(found, POINT)
    assert arguments["schema"].names == arguments["fields"] == ["x", "y"]
    assert scan_arguments(found, None)["schema"] == "infer"


def test_avro_and_protobuf_have_the_types_of_their_schemas(tmp_path: Path) -> None:
    avro = made(decode="avro", schema=json.dumps(AVRO), registry="http://127.0.0.1:1")
    fields = known(avro)
    assert fields is not None
    assert fields.simpleString() == "struct<id:bigint,note:string>"
    assert scan_arguments(avro, fields)["registry"] == "http://127.0.0.1:1"
    path = tmp_path / "shop.desc"
    path.write_bytes(DESCRIPTORS)
    protobuf = made(decode="protobuf", descriptors=str(path), message="shop.Order", framed="true")
    fields = known(protobuf)
    assert fields is not None
    assert fields.simpleString() == (
        "struct<id:bigint,name:string,lines:array<struct<sku:string,price:double>>,"
        "first:struct<sku:string,price:double>,counts:array<int>>"
    )
    # The file is the driver's: its content goes to the executors.
    path.unlink()
    assert scan_arguments(protobuf, fields)["schema"] == DESCRIPTORS


def test_a_registry_has_the_schema_that_is_not_given() -> None:
    registry = {"decode": "avro", "registry": "http://a:1"}
    asked: list[tuple[Any, ...]] = []

    def ask(*arguments: str, **times: float) -> str:
        asked.append((*arguments, *times.items()))
        return json.dumps(AVRO)

    for options, subject in (
        ({"subscribe": " orders "}, "orders-value"),
        ({"assign": '{"orders": [0, 1]}'}, "orders-value"),
        ({"subscribe": "a,b", "subject": "shop.Order"}, "shop.Order"),
        ({"subscribePattern": "a.*", "subject": "s"}, "s"),
    ):
        found = made(**registry, **options)
        assert is_wanted(found)
        schema = latest(found, {**options, "kafka.Request.timeout.ms": "1500"}, ask)
        fields = known(replace(found, schema=schema))
        assert fields is not None
        assert fields.names == ["id", "note"]
        times = (("connect_timeout_s", 10.0), ("request_timeout_s", 1.5))
        assert asked.pop() == ("http://a:1", subject, *times)
    assert not is_wanted(made(**registry, schema=json.dumps(AVRO)))
    assert not is_wanted(made(decode="avro", schema=json.dumps(AVRO)))
    with pytest.raises(OptionError, match=r"kafka\.request\.timeout\.ms is 'soon'"):
        latest(found, {"kafka.request.timeout.ms": "soon"}, ask)
    assert not asked


def test_bad_records_are_told_to_the_scan_of_a_task() -> None:
    found = made(decode="json", schema=POINT.json(), badRecords="bad")
    assert scan_arguments(found, None)["bad_records"] == "bad"
    assert is_judged(found)
    assert is_judged(made(decode="json", onBad="drop"))
    assert not is_judged(made(decode="json"))
    assert scan_arguments(made(decode="json"), None)["bad_records"] is None


@pytest.mark.parametrize(
    ("selection", "is_read"),
    [
        ({"subscribePattern": "orders.*"}, True),
        ({"subscribePattern": "orders"}, True),
        ({"subscribePattern": "^orders$"}, False),
        ({"assign": '{"orders-bad": [0]}'}, True),
        ({"assign": '{"orders": [0]}'}, False),
        ({"subscribe": "orders,orders-bad"}, True),
    ],
)
def test_bad_records_are_not_read_again(selection: dict[str, str], is_read: bool) -> None:
    given = {"kafka.bootstrap.servers": "a:1", "decode": "json", "badRecords": "orders-bad"}
    if not is_read:
        found = parse(given | selection, is_stream=True).decoding
        assert found is not None
        assert found.bad_records == "orders-bad"
        return
    with pytest.raises(OptionError, match="badRecords is orders-bad, which is read: what is"):
        parse(given | selection, is_stream=True)


def test_every_type_holds_what_it_stands_for() -> None:
    utc = pa.timestamp("ns", "UTC")
    cases: list[tuple[pa.DataType, Any, Any]] = [
        (pa.uint32(), LongType(), (2**32 - 1, 2**32 - 1)),
        (pa.uint64(), DecimalType(20, 0), (2**64 - 1, 2**64 - 1)),
        (pa.time32("ms"), IntegerType(), (5, 5)),
        (pa.time64("us"), LongType(), (5, 5)),
        (utc, TimestampType(), (1999, 1)),
        (pa.timestamp("us"), TimestampNTZType(), (7, 7)),
        (pa.binary(), BinaryType(), (b"x", b"x")),
        (pa.list_(pa.uint32()), ArrayType(LongType()), ([1], [1])),
        (pa.map_(pa.utf8(), pa.uint32()), MapType(StringType(), LongType()), ([("a", 1)],) * 2),
    ]
    numbers = {utc: pa.int64(), pa.timestamp("us"): pa.int64()}
    numbers |= {pa.time32("ms"): pa.int32(), pa.time64("us"): pa.int64()}
    for kind, expected, (given, found) in cases:
        assert spark_type(kind) == expected
        inner = pa.array([given, None], numbers.get(kind, kind)).cast(kind)
        values = pa.StructArray.from_arrays(
            [inner], fields=[pa.field("f", kind)], mask=pa.array([False, True])
        )
        batch = pa.record_batch([values, pa.array([1, 2])], names=["value", "other"])
        wanted = StructType([StructField("value", StructType([StructField("f", expected)]))])
        (row,) = converted([batch], wanted)
        assert row.num_columns == 1
        column = row.column("value")
        assert column.is_valid().to_pylist() == [True, False]
        field = column.field("f")
        raw = field.cast(pa.int64()) if pa.types.is_timestamp(field.type) else field
        assert raw.to_pylist()[0] == found


def test_columns_of_decoded_values() -> None:
    whole = schema(with_headers=False, value=POINT)
    assert whole["value"].dataType == POINT
    check_schema(whole, POINT)
    few = StructType([StructField("value", StructType([POINT["y"]])), whole["offset"]])
    check_schema(few, POINT)
    assert value_of(few) == StructType([POINT["y"]])
    check_schema(StructType([whole["offset"]]), POINT)
    wrong = {
        "there is no field z in value: there are x, y": StructType(
            [StructField("z", StringType())]
        ),
        "field x of value is int, and not string": StructType([StructField("x", StringType())]),
        "column value is a struct of fields": BinaryType(),
    }
    for told, kind in wrong.items():
        with pytest.raises(SchemaError, match=told):
            check_schema(StructType([StructField("value", kind)]), POINT)
    flat = StructType([StructField("z", StringType())])
    for fields in (POINT, None):
        with pytest.raises(SchemaError, match="there is no column z") as caught:
            check_schema(flat, fields, is_decoded=True)
        assert "fields of values are in the column value" in str(caught.value)
    with pytest.raises(SchemaError) as caught:
        check_schema(flat)
    assert "decode" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"decode": "xml"}, "json or avro or protobuf"),
        ({"onBad": "drop"}, "option onBad is for decoded values: give decode"),
        ({"schema": "infer"}, "option schema is for decoded values"),
        ({"decode": "json", "onBad": "topic"}, "null or drop or fail"),
        ({"decode": "json", "registry": "http://a:1"}, "registry is for decode=avro"),
        ({"decode": "json", "message": "a.B"}, "message is for decode=protobuf"),
        ({"decode": "avro"}, "decode=avro needs option schema, .* or registry"),
        ({"decode": "avro", "schema": "infer"}, "decode=avro needs option schema, .* or registry"),
        (
            {"decode": "avro", "registry": "http://a:1", "subscribe": "a,b"},
            "without schema needs option subject",
        ),
        ({"decode": "avro", "schema": "x", "subject": "s"}, "option subject beside schema"),
        ({"decode": "json", "subject": "s"}, "subject is for decode=avro"),
        (
            {"decode": "avro", "registry": "http://a:1", "writerSchema": "x"},
            "option writerSchema beside registry",
        ),
        ({"badRecords": "b"}, "option badRecords is for decoded values: give decode"),
        ({"decode": "json", "badRecords": "a b"}, "no topic can have the name"),
        ({"decode": "json", "badRecords": "b", "onBad": "fail"}, "badRecords takes nothing with"),
        ({"decode": "json", "badRecords": "orders"}, "badRecords is orders, which is read"),
        ({"decode": "protobuf", "message": "a.B"}, "needs option descriptors"),
        ({"decode": "protobuf", "descriptors": "/dev/null"}, "needs option message"),
        ({"decode": "protobuf", "descriptors": "/not/there", "message": "M"}, "driver reads"),
        ({"decode": "json", "framed": "1"}, "framed is for decode=protobuf"),
        ({"decode": "json", "on_bad": "fail"}, "did you mean onBad"),
        ({"decode": "json", "writer_schema": "x"}, "did you mean writerSchema"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        parse(REQUIRED | options, is_stream=False)


def test_a_table_is_raw() -> None:
    given = {"kafka.bootstrap.servers": "a:1", "table": "t", "decode": "json"}
    with pytest.raises(OptionError, match=r"decode beside table: .* taken for a tombstone"):
        parse(given, is_stream=False)


def test_schemas_that_cannot_be_used() -> None:
    for text in ("a int", "[]", "7", '{"type": "struct", "fields": []}'):
        with pytest.raises(ValueError, match="option schema: it can be infer, or what StructType"):
            known(made(decode="json", schema=text))
    binary = StructType([StructField("raw", BinaryType())])
    with pytest.raises(ValueError, match="raw"):
        known(made(decode="json", schema=binary.json()))
    with pytest.raises(ValueError, match="no JSON"):
        known(made(decode="avro", schema="{"))
    with pytest.raises(ValueError, match="http://HOST:PORT"):
        known(made(decode="avro", schema=json.dumps(AVRO), registry="https://a:1"))
    with pytest.raises(ValueError, match="no message"):
        known(made(decode="protobuf", descriptors="/dev/null", message="M"))
    assert struct_of(POINT.json()) == POINT
