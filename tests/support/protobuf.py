"""Protobuf's wire format and its descriptors, plainly: what protoc and a producer write."""

from __future__ import annotations

import struct

INT64, INT32, STRING, MESSAGE, DOUBLE = 3, 5, 9, 11, 1
OPTIONAL, REPEATED = 1, 3


def number(value: int) -> bytes:
    """Seven bits a byte."""
    value %= 2**64
    out = bytearray()
    while value > 127:
        out.append(value % 128 + 128)
        value //= 128
    return bytes([*out, value])


def part(field: int, content: int | float | str | bytes) -> bytes:
    """A field as it is written."""
    if isinstance(content, int):
        return number(field * 8) + number(content)
    if isinstance(content, float):
        return number(field * 8 + 1) + struct.pack("<d", content)
    content = content.encode() if isinstance(content, str) else content
    return number(field * 8 + 2) + number(len(content)) + content


def field(name: str, place: int, kind: int, label: int = OPTIONAL, of: str = "") -> bytes:
    """A field's descriptor."""
    own = part(1, name) + part(3, place) + part(4, label) + part(5, kind)
    return part(2, own + (part(6, of) if of else b""))


LINE = part(1, "Line") + field("sku", 1, STRING) + field("price", 2, DOUBLE)
ORDER = (
    part(1, "Order")
    + field("id", 1, INT64)
    + field("name", 2, STRING)
    + field("lines", 3, MESSAGE, REPEATED, ".shop.Line")
    + field("first", 4, MESSAGE, OPTIONAL, ".shop.Line")
    + field("counts", 5, INT32, REPEATED)
)
FILE = part(1, "shop.proto") + part(2, "shop") + part(4, LINE) + part(4, ORDER)
DESCRIPTORS = part(1, FILE + part(12, "proto3"))
