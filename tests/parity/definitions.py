"""Kafka's messages by its own definitions, in any version, well formed or not.

Apache Kafka's client library contains the JSON files from which it generates its messages
(``common/message/ProduceRequest.json``). Messages are dicts here; keys are Kafka's field names with
a small first letter. What a broker must refuse is written with :class:`Raw` and :class:`Counted`.
"""

import json
import re
import struct
import uuid
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.support.jvm import KAFKA_JARS
from tests.support.wire import Reader

_NUMBERS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
_COMMENT = re.compile(r"(^|(?<=[\s,{\[]))//.*$", re.MULTILINE)
_VERSION_MAX = 0x7FFF
API_VERSIONS_KEY = 18


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes in place of a field's encoding."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Counted:
    """An array that claims another number of elements than it has."""

    count: int
    elements: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range, Kafka's ``3+``, ``1-4``, ``0`` or ``none``."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        if text == "none":
            return cls(1, 0)
        first, _, last = text.removesuffix("+").partition("-")
        return cls(int(first), _VERSION_MAX if text.endswith("+") else int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: str
    """The type; of an array, its elements'."""
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: Any
    fields: tuple["Field", ...]


@dataclass(frozen=True, slots=True)
class Definition:
    """One message."""

    api_key: int
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]


@cache
def definition(name: str) -> Definition:
    """``ProduceRequest``, for example. KeyError if Kafka has no such message."""
    jar = next(KAFKA_JARS.glob("kafka-clients-*.jar"), None)
    if jar is None:
        raise FileNotFoundError(f"no jars in {KAFKA_JARS}: run `make .cache/kafka.done`")
    with zipfile.ZipFile(jar) as archive:
        text = archive.read(f"common/message/{name}.json").decode()
    found = json.loads(_COMMENT.sub("", text))
    shared = {one["name"]: one["fields"] for one in found.get("commonStructs", ())}
    return Definition(
        found.get("apiKey", -1),
        Versions.parse(found["validVersions"]),
        Versions.parse(found["flexibleVersions"]),
        tuple(_field(one, shared) for one in found["fields"]),
    )


def _field(found: Mapping[str, Any], shared: Mapping[str, Any]) -> Field:
    kind = found["type"].removeprefix("[]")
    is_array = found["type"].startswith("[]")
    versions = found.get("versions", "0+")
    inner = found.get("fields", shared.get(kind, ()))
    return Field(
        name=found["name"][0].lower() + found["name"][1:],
        kind=kind,
        is_array=is_array,
        versions=Versions.parse(versions),
        nullable=Versions.parse(found.get("nullableVersions", "none")),
        tagged=Versions.parse(found.get("taggedVersions", "none")),
        tag=found.get("tag", -1),
        default=_default(found.get("default"), kind, is_array=is_array),
        fields=tuple(_field(one, shared) for one in inner),
    )


def _default(given: Any, kind: str, *, is_array: bool) -> Any:
    if given == "null":
        return None
    if is_array:
        return []
    if kind == "string":
        return given or ""
    if kind in ("bytes", "records"):
        return b""
    if kind == "uuid":
        return bytes(16)
    if kind == "bool":
        return str(given).lower() == "true"
    if kind == "float64":
        return float(given or 0)
    if kind in _NUMBERS:
        return int(str(given or 0), 0)
    return {}


# --- encoding ------------------------------------------------------------------------------------


def encode(
    name: str, version: int, values: Mapping[str, Any], tags: Mapping[int, bytes] | None = None
) -> bytes:
    """A message's body; absent fields have their defaults, ``tags`` are unknown tagged fields of
    the message itself. ValueError for a field that the version does not have."""
    message = definition(name)
    return _struct(message.fields, values, version, version in message.flexible, tags or {})


def _struct(
    fields: Sequence[Field],
    values: Mapping[str, Any],
    version: int,
    flexible: bool,
    tags: Mapping[int, bytes],
) -> bytes:
    here = [field for field in fields if version in field.versions]
    unknown = set(values) - {field.name for field in here}
    if unknown:
        raise ValueError(f"version {version} has no {', '.join(sorted(unknown))}")
    out = b"".join(
        _value(field, values.get(field.name, field.default), version, flexible)
        for field in here
        if version not in field.tagged
    )
    if not flexible:
        return out
    tagged = {
        field.tag: _value(field, values[field.name], version, flexible)
        for field in here
        if version in field.tagged and field.name in values
    }
    return out + _tag_buffer({**tagged, **tags})


def _tag_buffer(tags: Mapping[int, bytes]) -> bytes:
    parts = [unsigned(len(tags))]
    for tag, data in sorted(tags.items()):
        parts += unsigned(tag), unsigned(len(data)), data
    return b"".join(parts)


def _value(field: Field, value: Any, version: int, flexible: bool) -> bytes:
    if isinstance(value, Raw):
        return value.data
    if not field.is_array:
        return _element(field, value, version, flexible)
    if value is None:
        return _count(-1, flexible)
    elements = value.elements if isinstance(value, Counted) else value
    count = value.count if isinstance(value, Counted) else len(value)
    parts = [
        one.data if isinstance(one, Raw) else _element(field, one, version, flexible, inside=True)
        for one in elements
    ]
    return _count(count, flexible) + b"".join(parts)


def _element(
    field: Field, value: Any, version: int, flexible: bool, *, inside: bool = False
) -> bytes:
    if field.kind in _NUMBERS:
        return struct.pack(f">{_NUMBERS[field.kind]}", value)
    if field.kind == "uuid":
        return bytes(value)
    if field.kind in ("string", "bytes", "records"):
        data = value.encode() if isinstance(value, str) else value
        length = -1 if data is None else len(data)
        if field.kind == "string" and not flexible:
            return struct.pack(">h", length) + (data or b"")
        return _count(length, flexible) + (data or b"")
    if version in field.nullable and not inside:
        if value is None:
            return b"\xff"
        return b"\x01" + _struct(field.fields, value, version, flexible, {})
    return _struct(field.fields, value, version, flexible, {})


def _count(count: int, flexible: bool) -> bytes:
    """Of an array's elements or of bytes; -1 means null."""
    return unsigned(count + 1) if flexible else struct.pack(">i", count)


def unsigned(value: int) -> bytes:
    """An unsigned variable-length integer of at most five bytes."""
    rest, out = value & 0xFFFFFFFF, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


# --- decoding ------------------------------------------------------------------------------------


def decode(name: str, version: int, body: bytes) -> dict[str, Any]:
    """The fields of the version. ValueError if the bytes do not fit."""
    message = definition(name)
    reader = Reader(body)
    values = _read_struct(message.fields, reader, version, version in message.flexible)
    if reader.at != len(body):
        raise ValueError(f"{name} v{version}: {len(body) - reader.at} bytes after its end")
    return values


def _read_struct(
    fields: Sequence[Field], reader: Reader, version: int, flexible: bool
) -> dict[str, Any]:
    here = [field for field in fields if version in field.versions]
    values = {
        field.name: _read_value(field, reader, version, flexible)
        for field in here
        if version not in field.tagged
    }
    if not flexible:
        return values
    tagged = {field.tag: field for field in here if version in field.tagged}
    values |= {field.name: field.default for field in tagged.values()}
    for _ in range(read_unsigned(reader)):
        tag, length = read_unsigned(reader), read_unsigned(reader)
        inner = Reader(reader.take(length))
        if tag in tagged:
            values[tagged[tag].name] = _read_value(tagged[tag], inner, version, flexible)
    return values


def _read_value(field: Field, reader: Reader, version: int, flexible: bool) -> Any:
    if not field.is_array:
        return _read_element(field, reader, version, flexible)
    count = _read_count(reader, flexible)
    if count < 0:
        return None
    return [_read_element(field, reader, version, flexible, inside=True) for _ in range(count)]


def _read_element(
    field: Field, reader: Reader, version: int, flexible: bool, *, inside: bool = False
) -> Any:
    if field.kind in _NUMBERS:
        code = f">{_NUMBERS[field.kind]}"
        return struct.unpack(code, reader.take(struct.calcsize(code)))[0]
    if field.kind == "uuid":
        return reader.take(16)
    if field.kind in ("string", "bytes", "records"):
        is_short = field.kind == "string" and not flexible
        length = reader.number("h") if is_short else _read_count(reader, flexible)
        data = None if length < 0 else reader.take(length)
        return data.decode() if data is not None and field.kind == "string" else data
    if version in field.nullable and not inside and reader.number("b") < 0:
        return None
    return _read_struct(field.fields, reader, version, flexible)


def _read_count(reader: Reader, flexible: bool) -> int:
    return read_unsigned(reader) - 1 if flexible else reader.number("i")


def read_unsigned(reader: Reader) -> int:
    """An unsigned variable-length integer."""
    value = shift = 0
    while True:
        byte = reader.take(1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7


def plain(value: Any) -> Any:
    """As JSON has it: a uuid in text, bytes as hexadecimal digits or, of more than 64, their
    number."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        if len(value) == 16:
            return str(uuid.UUID(bytes=value))
        return value.hex() if len(value) <= 64 else f"{len(value)} bytes"
    return value
