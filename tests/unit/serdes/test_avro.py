"""Avro as JSON and back, one datum at a time."""

from __future__ import annotations

import json
import math
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrklog.serdes.avro import LEVELS_MAX, AvroCodec, avro_codec
from pyrklog.serdes.avro_types import LEVELS_MAX as VALUE_LEVELS_MAX
from pyrklog.serdes.codec import DataError, SchemaError
from tests.support.avro import encoded, number

FIELD = [{"name": "next", "type": ["null", "Node"]}]
NODE = {"type": "record", "name": "Node", "fields": FIELD}


def codec(schema: Any) -> AvroCodec:
    return avro_codec(json.dumps(schema))


def record(name: str = "R", **fields: Any) -> dict[str, Any]:
    made = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": made}


PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    "bytes": st.binary(max_size=10),
}


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3, *, no_union: bool = False) -> Any:
    """Without references."""
    kinds = [*PRIMITIVES, "fixed", "enum"]
    if depth:
        kinds += ["array", "map", "record", *([] if no_union else ["union"])]
    kind = draw(st.sampled_from(kinds))
    name = f"N{draw(st.integers(0, 99))}"
    if kind in PRIMITIVES:
        return kind
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": draw(st.integers(0, 4))}
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": ["a", "b", "c"]}
    if kind == "array":
        return {"type": "array", "items": draw(schemas(depth - 1))}
    if kind == "map":
        return {"type": "map", "values": draw(schemas(depth - 1))}
    if kind == "union":
        found = draw(st.lists(schemas(depth - 1, no_union=True), min_size=1, max_size=4))
        return list({branch_name(one): one for one in found}.values())
    fields = draw(st.lists(schemas(depth - 1), max_size=4))
    return record(name, **{f"f{n}": one for n, one in enumerate(fields)})


def renamed(schema: Any) -> Any:
    """Each declared type gets a name of its own."""
    numbers = count()

    def visit(one: Any) -> Any:
        if isinstance(one, list):
            return [visit(inner) for inner in one]
        if not isinstance(one, dict):
            return one
        found = {key: visit(inner) for key, inner in one.items()}
        if one.get("type") in ("record", "enum", "fixed"):
            found["name"] = f"N{next(numbers)}"
        return found

    return visit(schema)


SCHEMAS = schemas().map(renamed)


def branch_name(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    name: str = schema.get("name", schema["type"])
    return name


def values(schema: Any) -> st.SearchStrategy[Any]:
    """As the tests' own encoder takes them: a union's are (branch, value)."""
    if isinstance(schema, str):
        return PRIMITIVES[schema]
    if isinstance(schema, list):
        pairs = [st.tuples(st.just(n), values(one)) for n, one in enumerate(schema)]
        return st.one_of(pairs)
    match schema["type"]:
        case "fixed":
            return st.binary(min_size=schema["size"], max_size=schema["size"])
        case "enum":
            return st.sampled_from(schema["symbols"])
        case "array":
            return st.lists(values(schema["items"]), max_size=3)
        case "map":
            return st.dictionaries(PRIMITIVES["string"], values(schema["values"]), max_size=3)
    return st.fixed_dictionaries({one["name"]: values(one["type"]) for one in schema["fields"]})


@st.composite
def data(draw: st.DrawFn) -> tuple[Any, bytes]:
    schema = draw(SCHEMAS)
    return schema, encoded(schema, draw(values(schema)))


@given(data())
def test_what_is_shown_is_read_back_as_the_same_bytes(made: tuple[Any, bytes]) -> None:
    """``tests/support/avro.py`` writes like a producer; its blocks are ours."""
    schema, written = made
    ours = codec(schema)
    shown = ours.decode(written)
    assert b"\n" not in shown
    assert b"NaN," not in shown
    again = ours.encode(json.loads(shown))
    if b"NaN" not in shown:
        assert again == written
    assert ours.decode(again) == shown


@given(SCHEMAS, st.binary(max_size=60))
def test_any_bytes_are_shown_or_refused(schema: Any, written: bytes) -> None:
    ours = codec(schema)
    try:
        shown = ours.decode(written)
    except DataError:
        return
    assert ours.decode(ours.encode(json.loads(shown))) == shown


@given(SCHEMAS, st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_any_json_is_written_or_refused(schema: Any, value: Any) -> None:
    ours = codec(schema)
    try:
        written = ours.encode(value)
    except DataError:
        return
    assert ours.encode(json.loads(ours.decode(written))) == written


@pytest.mark.parametrize(
    ("schema", "value", "shown"),
    [
        (["null", "string"], (1, "x"), '"x"'),
        (["null", "string"], (0, None), "null"),
        (["string", "null"], (0, "x"), '"x"'),
        (["null", "string", "long"], (2, 5), '{"long":5}'),
        (["null", "string", "long"], (0, None), "null"),
        ([record("a.B", x="int"), "int"], (0, {"x": 1}), '{"a.B":{"x":1}}'),
        ("bytes", b"\x00\xff", '"\\u0000ÿ"'),
        ("double", math.inf, '"Infinity"'),
        ("float", math.nan, '"NaN"'),
        ("long", 2**63 - 1, "9223372036854775807"),
        ({"type": "int", "logicalType": "date"}, 5, "5"),
    ],
)
def test_how_values_are_shown(schema: Any, value: Any, shown: str) -> None:
    assert codec(schema).decode(encoded(schema, value)).decode() == shown


@pytest.mark.parametrize(
    ("schema", "told", "plain"),
    [
        (["null", "string"], {"string": "x"}, "x"),
        (["null", record("R", x="int")], {"R": {"x": 1}}, {"x": 1}),
        (["null", record("R", R="int")], {"R": 1}, {"R": 1}),
        (["null", {"type": "array", "items": "int"}], {"array": [1]}, [1]),
    ],
)
def test_a_nullable_value_is_written_with_its_type_too(schema: Any, told: Any, plain: Any) -> None:
    assert codec(schema).encode(told) == codec(schema).encode(plain)


def test_missing_fields_have_their_defaults() -> None:
    fields = [
        {"name": "a", "type": "int", "default": 7},
        {"name": "b", "type": ["string", "null"], "default": "x"},
        {"name": "c", "type": record("C", d=["null", "int", "string"]), "default": {"d": None}},
        {"name": "e", "type": "long"},
    ]
    ours = codec({"type": "record", "name": "R", "fields": fields})
    shown = json.loads(ours.decode(ours.encode({"e": 1})))
    assert shown == {"a": 7, "b": "x", "c": {"d": None}, "e": 1}
    with pytest.raises(DataError, match=r"^e: it is missing, and has no default$"):
        ours.encode({})
    with pytest.raises(DataError, match="R has no field 'f'"):
        ours.encode({"e": 1, "f": 2})


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        (record(a="int"), {"a": "x"}, "a: 'x' is no int"),
        (record(a={"type": "array", "items": "int"}), {"a": [1, 2.5]}, "a[1]: 2.5 is no int"),
        ("int", 2**31, "2147483648 is no int"),
        ("int", True, "true is no int"),
        ("float", 1e300, "1e+300 is no float"),
        ("double", 10**400, "a number of more than 60 digits is no double"),
        ("bytes", "€", "a string of bytes has characters above U+00FF"),
        ("string", "\ud800", "a string has half of a surrogate pair"),
        (["int", "string"], 5, '5 is no value of this union; it takes {"int": ...} or {"string"'),
        ({"type": "enum", "name": "E", "symbols": ["a"]}, "b", "'b' is no E"),
        ({"type": "fixed", "name": "F", "size": 2}, "abc", "F has 2 bytes, not 3"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(schema: Any, value: Any, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        codec(schema).encode(value)
    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize(
    ("schema", "written", "reason"),
    [
        ("long", b"", "the bytes end amid a number"),
        ("long", b"\xff" * 11, "a number has more than ten bytes"),
        ("long", b"\xff" * 9 + b"\x02", "a number has more than 64 bits"),
        ("int", number(2**40), "1099511627776 is no int"),
        ("string", number(5) + b"ab", "5 bytes are announced, 2 are left"),
        ("string", number(-1), "-1 bytes are announced, 0 are left"),
        ("string", number(1) + b"\xff", "a string is not UTF-8"),
        ("boolean", b"\x02", "a byte 2 is no boolean"),
        (["null", "int"], number(2), "a union of 2 has no branch 2"),
        ("null", b"ab", "2 bytes follow the value"),
        (record(a=record("B", c="int")), b"", "a.c: the bytes end amid a number"),
    ],
)
def test_bytes_that_do_not_fit(schema: Any, written: bytes, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        codec(schema).decode(written)
    assert str(caught.value) == reason


def test_values_of_no_bytes_are_bounded() -> None:
    for items in ("null", record("E"), {"type": "fixed", "name": "F", "size": 0}):
        with pytest.raises(DataError, match="too many values"):
            codec({"type": "array", "items": items}).decode(number(2**62))


def test_types_that_multiply_are_bounded() -> None:
    """2**60 values of no bytes by 60 types that have the next one twice."""
    schema: Any = record("T0")
    for level in range(1, 31):
        schema = record(f"T{level}", a=schema, b=f"T{level - 1}")
    with pytest.raises(DataError, match="too many values"):
        codec(schema).decode(b"")


def test_defaults_that_multiply_are_bounded() -> None:
    schema: Any = record("T0")
    for level in range(1, 31):
        schema = record(f"T{level}", a=schema, b=f"T{level - 1}")
        for field in schema["fields"]:
            field["default"] = {}
    with pytest.raises(DataError, match="its defaults are too many"):
        codec(schema).encode({})


def test_a_type_within_itself() -> None:
    ours = codec(NODE)
    value: Any = {"next": None}
    for _ in range(20):
        value = {"next": value}
    assert json.loads(ours.decode(ours.encode(value))) == value
    with pytest.raises(DataError, match=f"more than {VALUE_LEVELS_MAX} levels"):
        ours.decode(number(1) * 100_000 + number(0))
    endless = codec(record("Me", me="Me"))
    with pytest.raises(DataError, match="levels"):
        endless.decode(b"")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is no JSON"),
        ("[" * 100_000, "levels"),
        ('{"type":' * (LEVELS_MAX + 2) + '"int"' + "}" * (LEVELS_MAX + 2), "levels"),
        ('"nope"', "there is no type 'nope'"),
        ("5", "5 is no type: it takes a name"),
        ("{}", "an object of 0 is no type"),
        ('{"type": 5}', "5 is no type"),
        ('{"type": "array"}', 'an array has no "items"'),
        ('{"type": "record", "fields": []}', "a type record has no name"),
        ('{"type": "record", "name": "R"}', 'R has no "fields"'),
        ('{"type": "record", "name": "R", "fields": [{}]}', "R has a field without name"),
        ('{"type": "enum", "name": "E"}', 'E has no "symbols"'),
        ('{"type": "fixed", "name": "F", "size": -1}', 'F has no "size"'),
        ('{"type": "fixed", "name": "int", "size": 1}', "'int' is declared twice"),
        ("[]", "a union has no types"),
        ('["int", "int"]', "a union has int twice"),
        ('[["int"]]', "a union has a union in it"),
        (json.dumps(["int"] * 10_001), "more than 10000 types"),
        (json.dumps({"type": "fixed", "name": "x" * 2_000, "size": 1}), "more than 1000 char"),
    ],
)
def test_what_is_no_schema(text: str, reason: str) -> None:
    with pytest.raises(SchemaError) as caught:
        avro_codec(text)
    assert reason in str(caught.value)


def test_names_have_namespaces() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
    outer = record("Outer", a=inner, b=["null", "Inner", "shop.Outer"], c="shop.Inner")
    ours = codec({**outer, "namespace": "shop"})
    value = {"a": {"x": 1}, "b": {"shop.Inner": {"x": 2}}, "c": {"x": 3}}
    assert json.loads(ours.decode(ours.encode(value))) == value
