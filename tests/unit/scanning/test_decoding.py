"""Which arguments of a scan go together to decode values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyrklog.scanning.decoding import core_decode

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "ä", "type": "int"}]}


def decode(form: str | None = "avro", **options: Any) -> Any:
    given = {"schema": None, "fields": None, "on_bad": "null", "writer_schema": None}
    return core_decode(form, **{**given, "registry": None, **options})


def test_a_schema_is_passed_on_as_json() -> None:
    assert decode(None) is None
    found = decode(schema=SCHEMA, writer_schema=json.dumps(SCHEMA), fields=("a",))
    assert json.loads(found.avro_schema) == SCHEMA
    assert found._replace(avro_schema=None) == (
        "avro",
        None,
        None,
        json.dumps(SCHEMA),
        None,
        b"",
        "",
        False,
        ["a"],
        "null",
    )
    for schema in (None, "infer"):
        found = decode(schema=schema, registry="http://r:1", on_bad="drop")
        assert found == ("avro", None, None, None, "http://r:1", b"", "", False, None, "drop")
    assert decode("json", schema="infer") == (
        "json",
        None,
        None,
        None,
        None,
        b"",
        "",
        False,
        None,
        "null",
    )

    found = decode("protobuf", schema=b"set", message="p.M", framed=True)
    assert found == ("protobuf", None, None, None, None, b"set", "p.M", True, None, "null")


@pytest.mark.parametrize(
    ("form", "options", "kind", "text"),
    [
        ("avro", {}, ValueError, "needs schema, or the registry"),
        ("avro", {"schema": "infer"}, ValueError, "needs schema, or the registry"),
        ("avro", {"schema": 7}, TypeError, "schema is 7; it takes an Avro schema"),
        ("avro", {"schema": SCHEMA, "writer_schema": b""}, TypeError, "writer_schema is b''"),
        ("avro", {"registry": "r", "writer_schema": "x"}, ValueError, "writer_schema or registry"),
        ("avro", {"registry": 7}, TypeError, "registry is 7"),
        ("avro", {"schema": SCHEMA, "fields": "a"}, TypeError, "fields is 'a'"),
        ("avro", {"schema": SCHEMA, "on_bad": "skip"}, ValueError, "null or drop or fail"),
        ("json", {"registry": "r"}, ValueError, 'are for decode="avro"'),
        ("json", {"writer_schema": "x"}, ValueError, 'are for decode="avro"'),
        ("yaml", {}, ValueError, "unknown decode 'yaml'; it can be json or avro or protobuf"),
        (None, {"registry": "r"}, ValueError, "are for decoded values"),
        (None, {"fields": ["a"]}, ValueError, "are for decoded values"),
        (None, {"framed": True}, ValueError, "are for decoded values"),
        ("json", {"message": "p.M"}, ValueError, 'are for decode="protobuf"'),
        ("avro", {"schema": SCHEMA, "framed": True}, ValueError, 'are for decode="protobuf"'),
        ("protobuf", {"schema": b"", "registry": "r"}, ValueError, 'are for decode="avro"'),
        ("protobuf", {"schema": "x", "message": "p.M"}, TypeError, "file descriptors as bytes"),
        ("protobuf", {"schema": b""}, TypeError, "message is None; it takes a message's"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(
    form: str | None, options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        decode(form, **options)
