"""``pyrklog.scan(decode="json")`` on a broker of ours: JSON as typed columns."""

from __future__ import annotations

import io
import json
import random
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.json
import pytest

import pyrklog
from pyrklog.scanning import BadValueError, Scan
from tests.support.clients import Confluent, Record
from tests.support.groups import create_topic
from tests.support.scanning import check_bad_value, iterated, rows

Value = bytes | None
ID = pa.schema([pa.field("id", pa.int64(), nullable=False)])


# Older records would be deleted: topics are kept for a week.
NOW_S = int(time.time())


def produce(bootstrap: str, topic: str, values: list[Value], partition: int = 0) -> None:
    records = [Record(b"key", value, (("h", b"1"),), 1000 * NOW_S) for value in values]
    Confluent().produce(bootstrap, topic, records, partition=partition, codec="zstd")


def numbered(count: int) -> list[Value]:
    return [b'{"id": %d}' % number for number in range(count)]


def scan(bootstrap: str, topic: str, **options: Any) -> Scan:
    columns = options.pop("columns", ["offset", "value"])
    options = {"decode": "json", "bootstrap_servers": bootstrap, **options}
    return pyrklog.scan(topic, columns=columns, **options)


def test_values_are_typed_columns_beside_the_others(bootstrap: str, topic: str) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("small", pa.int8()),
            ("big", pa.uint64()),
            ("ratio", pa.float64()),
            ("half", pa.float32()),
            ("is_new", pa.bool_()),
            ("name", pa.string()),
            ("long", pa.large_string()),
            ("price", pa.decimal128(12, 2)),
            ("day", pa.date32()),
            ("at", pa.timestamp("ms", "UTC")),
            ("local", pa.timestamp("us")),
            ("tags", pa.list_(pa.string())),
            ("place", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
            ("counts", pa.map_(pa.string(), pa.int32())),
        ]
    )
    full = (
        b'{"id": 1, "small": -128, "big": 18446744073709551615, "ratio": 0.1, "half": 1.5,'
        b' "is_new": true, "name": "\\u00e4\\n", "long": {"a": [1, 2]}, "price": 12.50,'
        b' "day": "2026-01-31", "at": "2026-01-31T12:00:00.123+01:00",'
        b' "local": "2026-01-31 12:00:00",'
        b' "tags": ["a", null], "place": {"y": 2, "z": 3}, "counts": {"a": 1},'
        b' "unknown": {"id": 2}}'
    )
    produce(bootstrap, topic, [full, b'{"id": 2}', None, b"null"])
    columns = ["value", "key", "topic", "partition", "offset", "timestamp", "headers"]
    found = scan(bootstrap, topic, schema=schema, columns=columns)
    table = found.reader().read_all()
    assert table.schema.field("value") == pa.field("value", pa.struct(list(schema)))
    table.validate(full=True)
    first, second, tombstone, null = table.to_pylist()
    assert first["value"] == {
        "id": 1,
        "small": -128,
        "big": 2**64 - 1,
        "ratio": 0.1,
        "half": 1.5,
        "is_new": True,
        "name": "ä\n",
        "long": '{"a": [1, 2]}',
        "price": Decimal("12.50"),
        "day": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, 11, 0, 0, 123_000, UTC),
        "local": datetime(2026, 1, 31, 12),
        "tags": ["a", None],
        "place": {"x": None, "y": 2.0},
        "counts": [("a", 1)],
    }
    assert second["value"] == dict.fromkeys(schema.names) | {"id": 2}
    assert tombstone["value"] is None
    assert null["value"] is None
    assert [row["offset"] for row in (first, second, tombstone, null)] == [0, 1, 2, 3]
    assert (tombstone["key"], tombstone["topic"], tombstone["partition"]) == (b"key", topic, 0)
    assert tombstone["headers"] == [{"key": "h", "value": b"1"}]
    assert tombstone["timestamp"] == datetime.fromtimestamp(NOW_S, UTC)
    assert found.progress()[0].bad == 0


@pytest.mark.parametrize("bad", [b"", b"{", b"[]", b'{"id":"x"}', b"{}", b'{"id":1}2', b'"\xff"'])
def test_a_bad_value_costs_its_own_row(bootstrap: str, topic: str, bad: bytes) -> None:
    values = numbered(2000)
    values[777] = bad
    produce(bootstrap, topic, values)
    expected = [{"offset": n, "value": {"id": n}} for n in range(2000)]
    check_bad_value(partial(scan, bootstrap, topic, schema=ID), topic)
    place = f"topic {topic} partition 0 offset 777: the value does not fit the schema: "
    failing = scan(bootstrap, topic, schema=ID, on_bad="fail", batch_rows=100)
    taken: list[Any] = []
    with pytest.raises(BadValueError, match=place):
        taken.extend(iterated([batch]) for batch in failing)
    assert [row for some in taken for row in some] == expected[:700]
    assert isinstance(failing.error, BadValueError)
    [figures] = failing.progress()
    resumed = scan(bootstrap, topic, start=(figures.position, figures.leader_epoch), schema=ID)
    assert rows(resumed)[0] == expected[700]


def test_rows_are_those_of_pyarrow(bootstrap: str, topic: str) -> None:
    chance = random.Random(7)
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("ratio", pa.float64()),
            ("name", pa.string()),
            ("is_new", pa.bool_()),
            ("tags", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))),
        ]
    )

    def field(name: str) -> object:
        if chance.random() < 0.1:
            return None
        return {
            "id": chance.randrange(-(2**63), 2**63),
            "ratio": chance.uniform(-1e300, 1e300) * 10.0 ** chance.randrange(-290, 1),
            "name": "".join(chance.choices('ab"\\\n\u20ac\U0001f600', k=chance.randrange(9))),
            "is_new": chance.random() < 0.5,
            "tags": [{"a": n, "b": str(n)} for n in range(chance.randrange(4))],
        }[name]

    def row() -> bytes:
        names = [*schema.names, "unknown"]
        chance.shuffle(names)
        fields = {name: field(name) for name in names if name != "unknown"} | {"unknown": [{}]}
        chosen = {name: fields[name] for name in names if chance.random() < 0.8}
        return json.dumps(chosen, ensure_ascii=chance.random() < 0.5).encode()

    values = [row() for _ in range(5000)]
    produce(bootstrap, topic, list(values))
    options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    expected = pa.json.read_json(io.BytesIO(b"\n".join(values)), parse_options=options)
    found = scan(bootstrap, topic, schema=schema, columns=["value"], on_bad="fail")
    assert rows(found) == [{"value": one} for one in expected.to_pylist()]


def test_a_schema_is_inferred_from_the_first_values(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 3)
    produce(bootstrap, topic, [None, b"no JSON", b'{"id": 1, "name": "a"}'], 0)
    produce(bootstrap, topic, [b'{"id": 2.5, "tags": [{"a": null}]}'] * 400, 1)
    later = b'{"id": 3, "later": true}'
    produce(bootstrap, topic, [*([b"{}"] * 400), later], 2)
    expected = pa.struct(
        [
            ("id", pa.float64()),
            ("name", pa.string()),
            ("tags", pa.list_(pa.field("item", pa.struct([("a", pa.string())])))),
        ]
    )
    for schema in (None, "infer"):
        found = scan(bootstrap, topic, schema=schema, columns=["value", "partition", "offset"])
        assert pa.schema(found).field("value").type == expected
        by_place = {(row["partition"], row["offset"]): row["value"] for row in iterated(found)}
        assert by_place[0, 1] is None
        assert by_place[0, 2] == {"id": 1.0, "name": "a", "tags": None}
        assert by_place[1, 399] == {"id": 2.5, "name": None, "tags": [{"a": None}]}
        assert by_place[2, 400] == {"id": 3.0, "name": None, "tags": None}
        assert [one.bad for one in found.progress()] == [1, 0, 0]
    only = scan(bootstrap, topic, start={topic: {2: 400}}, schema="infer")
    assert pa.schema(only).field("value").type.names == ["id", "name", "tags", "later"]


def test_only_the_named_fields_are_decoded(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [b'{"id": 1, "name": "a", "other": 2}', b'{"id": "x", "name": "b"}'])
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("other", pa.int64())])
    found = scan(bootstrap, topic, schema=schema, fields=["other", "name"], columns=["value"])
    assert pa.schema(found).field("value").type.names == ["other", "name"]
    values = [{"other": 2, "name": "a"}, {"other": None, "name": "b"}]
    assert rows(found) == [{"value": value} for value in values]
    none = scan(bootstrap, topic, schema=schema, fields=[], columns=["value"])
    assert rows(none) == [{"value": {}}, {"value": {}}]


def test_what_cannot_be_decoded_is_refused_at_once(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [b"1", b"no JSON"])
    with pytest.raises(ValueError, match="none of the 2 values in the sample is a JSON object"):
        scan(bootstrap, topic)
    with pytest.raises(
        ValueError, match="unknown decode 'yaml'; it can be json or avro or protobuf"
    ):
        scan(bootstrap, topic, decode="yaml")
    with pytest.raises(ValueError, match="unknown on_bad 'skip'; it can be null or drop or fail"):
        scan(bootstrap, topic, on_bad="skip")
    with pytest.raises(ValueError, match='decoded values: decode="json"'):
        scan(bootstrap, topic, decode=None, schema=ID)
    with pytest.raises(ValueError, match="decode needs the column 'value'"):
        scan(bootstrap, topic, schema=ID, columns=["offset"])
    with pytest.raises(ValueError, match='no field "idd"; it has id'):
        scan(bootstrap, topic, schema=ID, fields=["idd"])
    with pytest.raises(TypeError, match="fields is 'id'; it takes a list"):
        scan(bootstrap, topic, schema=ID, fields="id")


def test_schemas_that_json_has_nothing_for_are_refused(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 1)

    class Once:
        """Gives the same capsule, which pyarrow empties."""

        capsule = ID.__arrow_c_schema__()

        def __arrow_c_schema__(self) -> object:
            return self.capsule

    used = Once()
    assert pa.schema(used) == ID
    deep = pa.int64()
    for _ in range(62):
        deep = pa.list_(deep)
    cases: list[tuple[object, type[Exception], str]] = [
        ({"id": "int"}, TypeError, "it takes a pyarrow schema"),
        (pa.int64(), ValueError, "it takes one with fields"),
        (used, ValueError, "used already"),
        (pa.schema([("raw", pa.binary())]), ValueError, 'the field "raw" cannot be Binary'),
        (pa.schema([("a", pa.list_(pa.time64("us")))]), ValueError, '"item" cannot be Time64'),
        (pa.schema([("a", pa.map_(pa.int8(), pa.int8()))]), ValueError, '"a" cannot be Map'),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), ValueError, "is there twice"),
        (pa.schema([("a", deep)]), ValueError, "at most 63 levels"),
        (
            pa.schema([("a", pa.dictionary(pa.int8(), pa.string()))]),
            ValueError,
            "the field 'a' cannot be a dictionary",
        ),
    ]
    for schema, kind, text in cases:
        with pytest.raises(kind, match=text):
            scan(bootstrap, topic, schema=schema)
    [(_, item)] = [(field.name, field.type.value_type) for field in pa.schema([("a", deep)])]
    deepest = pa.schema([("a", item)])
    assert pa.schema(scan(bootstrap, topic, schema=deepest)).field("value").type[0].type == item


def test_bombs_are_bad_values(bootstrap: str, topic: str) -> None:
    deep = 400_000
    unknown = b'{"id": 1, "unknown": ' + b"[" * deep + b"]" * deep + b"}"
    wide = pa.schema([(f"f{n}", pa.int64()) for n in range(500)])
    schema = pa.schema([("id", pa.int64()), ("list", pa.list_(pa.struct(list(wide))))])
    elements = b'{"id": 2, "list": [' + b"{}," * 200_000 + b"{}]}"
    produce(bootstrap, topic, [unknown, b"[" * deep, b'{"id":' * deep, elements, b'{"id": 3}'])
    found = scan(bootstrap, topic, schema=schema, columns=["value"], large_bytes=8 << 20)
    values = [row["value"] for row in rows(found)]
    assert values == [{"id": 1, "list": None}, None, None, None, {"id": 3, "list": None}]
