"""``pyrklog.scan(decode="avro")`` on a broker of ours: Avro as typed columns."""

from __future__ import annotations

import json
import random
import socket
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

import pyrklog
from pyrklog.scanning import RegistryNotAvailableError, Scan, latest_schema
from tests.support.avro import encoded, framed
from tests.support.clients import Confluent, Record
from tests.support.groups import create_topic
from tests.support.registry import Registry
from tests.support.scanning import check_bad_value, iterated, rows

Value = bytes | None


def record(*fields: tuple[str, Any] | tuple[str, Any, Any], name: str = "Order") -> Any:
    """A record's schema: names, types and perhaps defaults."""
    made = [
        {"name": field[0], "type": field[1], **({"default": field[2]} if len(field) > 2 else {})}
        for field in fields
    ]
    return {"type": "record", "name": name, "namespace": "shop", "fields": made}


ID = record(("id", "long"))


def produce(bootstrap: str, topic: str, values: list[Value], partition: int = 0) -> None:
    records = [Record(b"key", value) for value in values]
    Confluent().produce(bootstrap, topic, records, partition=partition, codec="zstd")


def scan(bootstrap: str, topic: str, **options: Any) -> Scan:
    columns = options.pop("columns", ["offset", "value"])
    options = {"decode": "avro", "bootstrap_servers": bootstrap, **options}
    return pyrklog.scan(topic, columns=columns, **options)


def logical(kind: str, name: str, **more: Any) -> Any:
    return {"type": kind, "logicalType": name, **more}


RAW = {"type": "fixed", "name": "Raw", "size": 2}
FULL_SCHEMA = record(
    ("id", "long"),
    ("small", "int"),
    ("ratio", "double"),
    ("half", "float"),
    ("is_new", "boolean"),
    ("name", ["null", "string"]),
    ("state", {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}),
    ("raw", "bytes"),
    ("two", RAW),
    ("price", logical("bytes", "decimal", precision=12, scale=2)),
    ("uid", {"type": "fixed", "name": "Uid", "size": 16, "logicalType": "uuid"}),
    ("day", logical("int", "date")),
    ("clock", logical("long", "time-micros")),
    ("at", logical("long", "timestamp-millis")),
    ("local", logical("long", "local-timestamp-micros")),
    ("tags", {"type": "array", "items": ["null", "string"]}),
    ("place", ["null", record(("x", "double"), ("y", "double"), name="Place")]),
    ("counts", {"type": "map", "values": "int"}),
    ("nothing", "null"),
)
UID = UUID("12345678-9abc-def0-1234-56789abcdef0")
FULL = {
    "id": 2**62,
    "small": -7,
    "ratio": 0.1,
    "half": 1.5,
    "is_new": True,
    "name": (1, "ä"),
    "state": "PAID",
    "raw": b"\0\xff",
    "two": b"ab",
    "price": (-1250).to_bytes(3, "big", signed=True),
    "uid": UID.bytes,
    "day": 20_484,
    "clock": 3_600_000_001,
    "at": 1_769_860_800_123,
    "local": 1_769_860_800_000_000,
    "tags": [(1, "a"), (0, None)],
    "place": (1, {"x": 1.0, "y": 2.0}),
    "counts": {"a": 1, "b": 2},
    "nothing": None,
}
THIN = FULL | {"name": (0, None), "place": (0, None), "tags": [], "counts": {}}


def test_values_are_typed_columns_beside_the_others(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [encoded(FULL_SCHEMA, FULL), encoded(FULL_SCHEMA, THIN), None])
    found = scan(bootstrap, topic, schema=FULL_SCHEMA, columns=["value", "key", "offset"])
    table = found.reader().read_all()
    table.validate(full=True)
    kinds = {field.name: (field.type, field.nullable) for field in table.schema.field("value").type}
    assert kinds["price"] == (pa.decimal128(12, 2), False)
    assert kinds["name"] == (pa.string(), True)
    assert kinds["two"] == (pa.binary(), False)
    assert kinds["at"] == (pa.timestamp("ms", "UTC"), False)
    assert kinds["local"] == (pa.timestamp("us"), False)
    assert kinds["counts"] == (pa.map_(pa.string(), pa.field("value", pa.int32(), False)), False)
    assert list(kinds) == list(FULL)
    first, second, tombstone = table.to_pylist()
    expected = FULL | {
        "name": "ä",
        "price": Decimal("-12.50"),
        "uid": str(UID),
        "day": date(2026, 1, 31),
        "clock": time(1, 0, 0, 1),
        "at": datetime(2026, 1, 31, 12, 0, 0, 123_000, UTC),
        "local": datetime(2026, 1, 31, 12),
        "tags": ["a", None],
        "place": {"x": 1.0, "y": 2.0},
        "counts": [("a", 1), ("b", 2)],
    }
    assert first == {"value": expected, "key": b"key", "offset": 0}
    assert second["value"] == expected | {"name": None, "place": None, "tags": [], "counts": []}
    assert tombstone == {"value": None, "key": b"key", "offset": 2}
    assert found.progress()[0].bad == 0


@pytest.mark.parametrize("bad", [b"", b"\x80", b"\2\0", b"\0\0\0\0\1\2"])
def test_a_bad_value_costs_its_own_row(bootstrap: str, topic: str, bad: bytes) -> None:
    values: list[Value] = [encoded(ID, {"id": number}) for number in range(2000)]
    values[777] = bad
    produce(bootstrap, topic, values)
    check_bad_value(partial(scan, bootstrap, topic, schema=ID), topic)


def test_values_are_read_by_another_schema(bootstrap: str, topic: str) -> None:
    writer = record(
        ("old", "int"),
        ("gone", {"type": "map", "values": ["null", "int", "string"]}),
        ("name", "string"),
    )
    datum = {"old": 7, "gone": {"a": (2, "b"), "c": (0, None)}, "name": "n"}
    produce(bootstrap, topic, [encoded(writer, datum)] * 3)
    reader = record(
        ("name", ["null", "string"]),
        ("id", "long"),
        ("more", {"type": "array", "items": "int"}, [1, 2]),
        ("none", ["null", "string"], None),
    )
    reader["fields"][1]["aliases"] = ["old"]
    value = {"name": "n", "id": 7, "more": [1, 2], "none": None}
    found = scan(bootstrap, topic, schema=reader, writer_schema=writer, columns=["value"])
    assert rows(found) == [{"value": value}] * 3
    some = scan(
        bootstrap,
        topic,
        schema=reader,
        writer_schema=writer,
        fields=["more", "id"],
        columns=["value"],
    )
    assert pa.schema(some).field("value").type.names == ["more", "id"]
    assert rows(some) == [{"value": {"more": [1, 2], "id": 7}}] * 3


def test_each_value_names_its_schema(bootstrap: str, topic: str) -> None:
    first = record(("id", "int"), ("name", "string"))
    second = record(("name", ["null", "string"], None), ("id", "long"), ("price", "double", 0.5))
    chance = random.Random(7)
    create_topic(bootstrap, topic, 3)
    expected: dict[tuple[int, int], Any] = {}
    for partition in range(3):
        values: list[Value] = []
        for offset in range(1000):
            old = {"id": offset, "name": "old"}
            new = {"id": offset, "name": (0, None), "price": 1.5}
            choices = [
                (framed(3, encoded(first, old)), old | {"price": 0.5}),
                (framed(8, encoded(second, new)), new | {"name": None}),
                (framed(2**32 - 1, b"\2"), None),
                (b"no frame", None),
                (None, None),
            ]
            value, cell = chance.choices(choices, [10, 10, 1, 1, 1])[0]
            values.append(value)
            expected[partition, offset] = cell
        produce(bootstrap, topic, values, partition)
    with Registry({3: first, 8: second}) as registry:
        columns = ["value", "partition", "offset"]
        for schema in (second, None, "infer"):
            registry.asked.clear()
            found = scan(
                bootstrap, topic, schema=schema, registry=registry.url + "/", columns=columns
            )
            names = pa.schema(found).field("value").type.names
            assert names == ["name", "id", "price"]
            read = {(row["partition"], row["offset"]): row["value"] for row in iterated(found)}
            assert read == expected
            # A schema is inferred from the highest id that the registry has.
            times = 1 if schema is second else 2
            asked = [registry.asked.count(schema_id) for schema_id in (3, 8, 2**32 - 1)]
            assert asked == [1, times, times]


def test_a_registry_that_is_away_ends_the_scan(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [None, framed(3, encoded(ID, {"id": 1}))])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{listener.getsockname()[1]}"
    for on_bad in ("null", "drop", "fail"):
        found = scan(
            bootstrap, topic, schema=ID, registry=nobody, on_bad=on_bad, request_timeout_s=1.0
        )
        place = f"topic {topic} partition 0 offset 1: the registry {nobody} gives no schema 3: "
        with pytest.raises(RegistryNotAvailableError, match=place + "cannot connect: "):
            iterated(found)
    with pytest.raises(RegistryNotAvailableError, match="gives no schema 3"):
        scan(bootstrap, topic, registry=nobody, request_timeout_s=1.0)
    with Registry({3: ID}) as registry:
        registry.failing = True
        found = scan(bootstrap, topic, schema=ID, registry=registry.url, request_timeout_s=1.0)
        with pytest.raises(RegistryNotAvailableError, match="status 503"):
            iterated(found)
        registry.failing = False
        found = scan(bootstrap, topic, schema=ID, registry=registry.url)
        assert rows(found) == [{"offset": 0, "value": None}, {"offset": 1, "value": {"id": 1}}]


def test_the_latest_schema_of_a_subject() -> None:
    with Registry({3: ID, 8: "message M {}"}, {"a/b ä-value": 3, "other": 8}) as registry:
        found = latest_schema(registry.url + "/", "a/b ä-value")
        assert json.loads(found) == ID
        assert registry.asked_subjects == ["a/b ä-value"]
        with pytest.raises(ValueError, match="other is PROTOBUF, not Avro"):
            latest_schema(registry.url, "other")
        with pytest.raises(ValueError, match=f"the registry {registry.url} has no subject x$"):
            latest_schema(registry.url, "x")
        with pytest.raises(ValueError, match="a subject has 1 to 500 bytes"):
            latest_schema(registry.url, "")
        with pytest.raises(TypeError, match="subject is 7"):
            latest_schema(registry.url, 7)  # type: ignore[arg-type]
        registry.failing = True
        told = f"the registry {registry.url} gives no schema of subject x: status 503"
        with pytest.raises(RegistryNotAvailableError, match=told):
            latest_schema(registry.url, "x", request_timeout_s=2.0)
    with pytest.raises(ValueError, match="it can be http://HOST:PORT"):
        latest_schema("https://r:1", "x")


def test_what_cannot_be_decoded_is_refused_at_once(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [b"no frame", b""])
    other = record(("id", "long"), name="Other")
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"schema": "{"}, ValueError, "the schema is no JSON"),
        ({"schema": '"int"'}, ValueError, "columns are a record's fields"),
        ({"schema": record(("a", ["int", "string"]))}, ValueError, '"a" cannot be a union'),
        ({"schema": record(("a", "shop.Order"))}, ValueError, "contains itself"),
        ({"schema": ID, "fields": ["idd"]}, ValueError, 'no field "idd"; it has id'),
        ({"schema": ID, "writer_schema": other}, ValueError, "shop.Other is not read as"),
        ({"schema": ID, "writer_schema": "x"}, ValueError, "the schema is no JSON"),
        ({"schema": ID, "registry": "https://a:1"}, ValueError, "it can be http://HOST:PORT"),
        ({"registry": "http://127.0.0.1:9"}, ValueError, "none of the 2 values in the sample"),
        ({"schema": ID, "columns": ["offset"]}, ValueError, "decode needs the column 'value'"),
    ]
    for options, kind, text in cases:
        with pytest.raises(kind, match=text):
            scan(bootstrap, topic, **options)


def test_bombs_are_bad_values(bootstrap: str, topic: str) -> None:
    many = encoded("long", 2**62)
    wide = record(*((f"f{n}", ["null", "long"], None) for n in range(500)), name="Wide")
    lists: Any = {"type": "array", "items": wide}
    schema = record(("id", "long"), ("list", lists), ("none", {"type": "array", "items": "null"}))
    good = {"id": 3, "list": [], "none": [None]}
    values: list[Value] = [
        b"\2" + many,
        b"\2\0" + many,
        b"\2" + encoded("long", 100_000) + bytes(900_000),
        encoded(schema, good),
    ]
    produce(bootstrap, topic, values)
    found = scan(bootstrap, topic, schema=schema, columns=["value"], large_bytes=2 << 20)
    cells = [row["value"] for row in rows(found)]
    assert cells == [None, None, None, good]
