"""Values as a registry's serializers write them: a byte 0, the schema's id in four bytes, for
Protobuf the place of the message in its schema, the datum."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Sequence
from typing import Any

from pyrklog.serdes.avro import AvroCodec, Names, avro_codec, parse
from pyrklog.serdes.codec import Codec, DataError, SchemaError
from pyrklog.serdes.protobuf import (
    INDEX_LEVELS_MAX,
    MessageFiles,
    ProtobufCodec,
    of_serialized,
    of_texts,
)
from pyrklog.serdes.registry import Reference, Registered, Registry, SchemaMissingError

KEPT_MAX = 1_000
"""Schemas that are remembered; then all are forgotten, so that records that name others by the
thousand cost time and no memory."""
REFERENCES_MAX = 100
HEAD_BYTES = 5
_ID_END = 2**31
_MAIN = "main.proto"


class RegistryReader:
    """Decodes what names its schema."""

    kind = None

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._schemas: dict[int, AvroCodec | MessageFiles | str] = {}
        self._messages: dict[tuple[int, tuple[int, ...]], ProtobufCodec] = {}

    def decode(self, data: bytes) -> bytes:
        """Raises RegistryError, besides."""
        if len(data) < HEAD_BYTES or data[0] != 0:
            raise DataError("it does not begin with a byte 0 and a schema's id")
        schema_id = int.from_bytes(data[1:HEAD_BYTES], "big")
        found = self._schema(schema_id)
        if isinstance(found, str):
            raise DataError(found)
        if isinstance(found, AvroCodec):
            return found.decode(data[HEAD_BYTES:])
        indexes, at = read_indexes(data, HEAD_BYTES)
        codec = self._messages.get((schema_id, indexes))
        if codec is None:
            codec = ProtobufCodec(found, found.by_indexes(indexes))
            if len(self._messages) >= KEPT_MAX:
                self._messages.clear()
            self._messages[schema_id, indexes] = codec
        return codec.decode(data[at:])

    def _schema(self, schema_id: int) -> AvroCodec | MessageFiles | str:
        """The reason where there is none that can be used."""
        found = self._schemas.get(schema_id)
        if found is None:
            try:
                if schema_id >= _ID_END:
                    raise SchemaMissingError("ids are below 2147483648")
                found = usable(self._registry, self._registry.schema(schema_id))
            except SchemaMissingError as error:
                found = f"the registry has no schema {schema_id} ({error})"
            except SchemaError as error:
                found = f"schema {schema_id} cannot be used: {error}"
            if len(self._schemas) >= KEPT_MAX:
                self._schemas.clear()
            self._schemas[schema_id] = found
        return found


class RegistryWriter:
    def __init__(self, schema_id: int, codec: Codec, indexes: Sequence[int] | None) -> None:
        self._head = b"\0" + schema_id.to_bytes(4, "big")
        if indexes is not None:
            self._head += written_indexes(indexes)
        self._codec = codec

    def encode(self, value: Any) -> bytes:
        return self._head + self._codec.encode(value)


def usable(registry: Registry, found: Registered) -> AvroCodec | MessageFiles:
    """Raises SchemaError."""
    if found.kind == "AVRO":
        names = Names()
        for reference in _references(registry, found):
            parse(reference[1].text, names)
        return avro_codec(found.text, names)
    if found.kind != "PROTOBUF":
        raise SchemaError(f"it is of the type {found.kind}, neither Avro nor Protobuf")
    others = {one.name: text for one, text in _references(registry, found)}
    return _messages(registry, found, others)


def _messages(
    registry: Registry, found: Registered, others: dict[str, Registered] | dict[Any, Any]
) -> MessageFiles:
    """By descriptors that the registry makes, or by protoc from texts."""
    told = registry.schema(found.schema_id, serialized=True)
    main = _descriptor(told.text)
    if main is None:
        texts = {name: one.text for name, one in others.items()}
        return of_texts({_MAIN: found.text, **texts})
    files = {_MAIN: main}
    for name, one in others.items():
        data = _descriptor(registry.schema(one.schema_id, serialized=True).text)
        if data is None:
            raise SchemaError(f"the registry does not describe {name}")
        files[name] = data
    return of_serialized(files)


def _descriptor(text: str) -> bytes | None:
    """None for the text of a ``.proto`` file."""
    try:
        return b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None


def _references(registry: Registry, root: Registered) -> list[tuple[Reference, Registered]]:
    """What it refers to, directly or not; what is referred to comes first."""
    found = list[tuple[Reference, Registered]]()
    done, begun = set[tuple[str, int]](), set[tuple[str, int]]()
    stack: list[tuple[Reference, Registered | None]] = [(one, None) for one in root.references]
    while stack:
        reference, schema = stack.pop()
        place = (reference.subject, reference.version)
        if schema is not None:
            done.add(place)
            found.append((reference, schema))
        elif place not in begun:
            begun.add(place)
            if len(begun) > REFERENCES_MAX:
                raise SchemaError(f"it refers to more than {REFERENCES_MAX} schemas")
            schema = registry.version(*place)
            stack.append((reference, schema))
            stack += [(one, None) for one in schema.references]
    return found


def read_indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The place of a message, and where the datum begins: a number of indexes, then these, each as
    a zigzag; a single 0 is the first message."""
    count, at = _zigzag(data, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= INDEX_LEVELS_MAX:
        raise DataError(f"a message in {count} others")
    found = list[int]()
    for _ in range(count):
        index, at = _zigzag(data, at)
        found.append(index)
    return tuple(found), at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while at < len(data) and shift <= 28:
        byte = data[at]
        at += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return (found >> 1) ^ -(found & 1), at
        shift += 7
    raise DataError("the place of its message is no number")


def written_indexes(indexes: Sequence[int]) -> bytes:
    if list(indexes) == [0]:
        return b"\0"
    out = bytearray()
    for value in (len(indexes), *indexes):
        rest = value << 1
        while rest > 127:
            out.append(rest & 127 | 128)
            rest >>= 7
        out.append(rest)
    return bytes(out)
