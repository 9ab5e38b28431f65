"""Avro's binary encoding, plainly: what a producer's serializer writes."""

from __future__ import annotations

import struct
from typing import Any

Schema = Any
"""Avro's JSON, without references to named types."""


def number(value: int) -> bytes:
    """An int or a long."""
    rest = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while rest > 127:
        out.append(rest % 128 + 128)
        rest //= 128
    out.append(rest)
    return bytes(out)


def encoded(schema: Schema, value: Any) -> bytes:
    """A datum; a value of a union is a pair of its branch's number and the value there."""
    if isinstance(schema, list):
        branch, inner = value
        return number(branch) + encoded(schema[branch], inner)
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(kind, dict | list):
        return encoded(kind, value)
    match kind:
        case "null":
            return b""
        case "boolean":
            return bytes([value])
        case "int" | "long":
            return number(value)
        case "float":
            return struct.pack("<f", value)
        case "double":
            return struct.pack("<d", value)
        case "string":
            text = str(value).encode()
            return number(len(text)) + text
        case "bytes":
            return number(len(value)) + bytes(value)
        case "fixed":
            assert len(value) == schema["size"]
            return bytes(value)
        case "enum":
            return number(int(schema["symbols"].index(value)))
        case "array":
            items = [encoded(schema["items"], one) for one in value]
        case "map":
            items = [
                encoded("string", key) + encoded(schema["values"], one)
                for key, one in value.items()
            ]
        case "record":
            fields = schema["fields"]
            return b"".join(encoded(one["type"], value[one["name"]]) for one in fields)
        case other:
            raise AssertionError(f"{other} has no encoding here")
    return (number(len(items)) + b"".join(items) if items else b"") + b"\0"


def framed(schema_id: int, datum: bytes) -> bytes:
    """As serializers that use a registry write it."""
    return b"\0" + schema_id.to_bytes(4, "big") + datum
