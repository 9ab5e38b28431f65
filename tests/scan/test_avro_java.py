"""Avro beside Apache Avro: the same bytes, and the same values by the rules of resolution."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path
from typing import Any

import pyspark

import pyrklog
from pyrklog.scanning import BadValueError
from tests.support import jvm
from tests.support.clients import Confluent, Record
from tests.support.scanning import iterated

PROGRAM = jvm.ROOT / "tests" / "support" / "AvroReference.java"
# Avro among them.
JARS = Path(pyspark.__file__).parent / "jars"


def record(*fields: dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def named(**more: Any) -> dict[str, Any]:
    return record(field("x", "int"), field("y", ["null", "string"]), name="P", **more)


POINT = named()
NUMBERS = [-(2**31), -1, 0, 63, 64, 2**31 - 1]
A = field("a", "int")
WIDE = record(
    A,
    field("m", {"type": "map", "values": {"type": "array", "items": ["null", "long"]}}),
    field("p", POINT),
    field("q", "P"),
    field("u", ["int", "string", "P", "null"]),
    field("z", "string"),
)
WIDE_VALUE = {
    "a": 1,
    "m": {"k": [None, {"long": 2}], "l": []},
    "p": {"x": 3, "y": {"string": "ä"}},
    "q": {"x": 4, "y": None},
    "u": {"P": {"x": 5, "y": None}},
    "z": "end",
}
DEFAULTS = [
    ("boolean", True),
    ("int", -7),
    ("long", 2**40),
    ("float", 1.5),
    ("double", 1),
    ("string", "ä"),
    ("bytes", "\u0000\u00ff"),
    ({"type": "fixed", "name": "F", "size": 2}, "ab"),
    (enum("A", "B"), "B"),
    ({"type": "array", "items": "int"}, [1, 2]),
    ({"type": "map", "values": "int"}, {"k": 1}),
    (["null", "int"], None),
    (["int", "null"], 3),
    (named(), {"x": 1, "y": None}),
]

Case = tuple[dict[str, Any], dict[str, Any], Any]


def cases() -> list[Case]:
    """Writer's schema, reader's, value."""
    found: list[Case] = []
    for kind in ("int", "long", "float", "double"):
        for other in ("int", "long", "float", "double", "string"):
            for number in NUMBERS:
                found.append((record(field("a", kind)), record(field("a", other)), {"a": number}))
    for kind in ("string", "bytes"):
        for other in ("string", "bytes", "int"):
            found.append((record(field("a", kind)), record(field("a", other)), {"a": "xyz"}))
    for default_kind, default in DEFAULTS:
        reader = record(field("b", default_kind, default=default), A)
        found.append((record(A), reader, {"a": 1}))
    found += [
        (WIDE, WIDE, WIDE_VALUE),
        (WIDE, record(field("z", "string"), field("q", POINT)), WIDE_VALUE),
        (WIDE, record(field("u", ["null", named()])), WIDE_VALUE),
        (WIDE, record(field("u", ["null", "long"])), WIDE_VALUE),
        (WIDE, record(field("b", "long", aliases=["a"])), WIDE_VALUE),
        (WIDE, record(A, field("more", "int")), WIDE_VALUE),
        # Without the alias Java would take any record here, against the specification.
        (WIDE, record(A, name="S", aliases=["R"]), WIDE_VALUE),
        (WIDE, record(A, namespace="n"), WIDE_VALUE),
        (record(field("a", enum("A", "B"))), record(field("a", enum("B", "A"))), {"a": "B"}),
        (record(field("a", enum("A", "B"))), record(field("a", enum("A"))), {"a": "B"}),
        (
            record(field("a", enum("A", "B"))),
            record(field("a", enum("A", "C", default="C"))),
            {"a": "B"},
        ),
        (record(field("a", ["null", "int"])), record(field("a", "long")), {"a": {"int": 1}}),
        (record(field("a", ["null", "int"])), record(field("a", "long")), {"a": None}),
        (record(field("a", "int")), record(field("a", ["null", "long"])), {"a": 1}),
        (record(field("a", "null")), record(field("a", ["null", "long"])), {"a": None}),
    ]
    return found


def unwrapped(schema: Any, value: Any) -> Any:
    """A value of Avro's JSON encoding as pyarrow has it."""
    if isinstance(schema, list):
        if value is None:
            return None
        [inner] = value.values()
        [other] = [one for one in schema if one != "null"]
        return unwrapped(other, inner)
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "float":
            # Java writes as many digits as tell a float from its neighbours.
            return struct.unpack("<f", struct.pack("<f", value))[0]
        case "bytes" | "fixed":
            return value.encode("latin-1")
        case "array":
            return [unwrapped(schema["items"], one) for one in value]
        case "map":
            return [(key, unwrapped(schema["values"], one)) for key, one in value.items()]
        case "record":
            fields = schema["fields"]
            return {one["name"]: unwrapped(one["type"], value[one["name"]]) for one in fields}
        case "P":
            return unwrapped(POINT, value)
    return value


def reference(folder: Path, all_cases: list[Case]) -> list[tuple[bytes, Any]]:
    """Of each case its bytes, and the reader's value; ``!`` where there is none."""
    lines = ["\t".join(json.dumps(part) for part in case) for case in all_cases]
    given = folder / "cases"
    given.write_text("\n".join(lines))
    command = [jvm.java(), "-cp", f"{JARS}/*", str(PROGRAM), str(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = [line.split("\t") for line in done.stdout.splitlines()]
    return [
        (bytes.fromhex(written), "!" if value == "!" else json.loads(value))
        for written, value in told
    ]


def test_values_are_those_of_apache_avro(bootstrap: str, topic: str, tmp_path: Path) -> None:
    all_cases = cases()
    told = reference(tmp_path, all_cases)
    assert len(told) == len(all_cases)
    records = [Record(None, written) for written, _ in told]
    Confluent().produce(bootstrap, topic, records)
    for offset, ((writer, reader, value), (_, expected)) in enumerate(
        zip(all_cases, told, strict=True)
    ):
        case = f"{json.dumps(writer)} as {json.dumps(reader)}: {value}"
        names = [one["name"] for one in reader["fields"] if not _is_refused(one["type"])]
        options: Any = {
            "bootstrap_servers": bootstrap,
            "start": {topic: {0: offset}},
            "end": {topic: {0: offset + 1}},
            "columns": ["value"],
        }
        arguments: Any = {"schema": reader, "writer_schema": writer, "fields": names}
        try:
            found = pyrklog.scan(topic, decode="avro", on_bad="fail", **arguments, **options)
            [row] = iterated(found)
        except (BadValueError, ValueError):
            assert expected == "!", case
            continue
        assert expected != "!", case
        wanted = {
            one["name"]: unwrapped(one["type"], expected[one["name"]])
            for one in reader["fields"]
            if one["name"] in names
        }
        assert row["value"] == wanted, case


def _is_refused(kind: Any) -> bool:
    """Whether no column has the type: a union of several."""
    return isinstance(kind, list) and len([one for one in kind if one != "null"]) > 1
