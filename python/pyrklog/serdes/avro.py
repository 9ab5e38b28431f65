"""Avro's schemas, read from JSON, and the codec of one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyrklog.serdes.avro_types import (
    NO_DEFAULT,
    Array,
    Boolean,
    Bytes,
    Enumeration,
    Fixed,
    Floating,
    Input,
    Integer,
    Map,
    Null,
    Output,
    Record,
    String,
    Type,
    Union,
)
from pyrklog.serdes.codec import AVRO, SCHEMA_BYTES_MAX, DataError, SchemaError, as_json, shortened

LEVELS_MAX = 64
TYPES_MAX = 10_000
NAME_LENGTH_MAX = 1_000
FIXED_BYTES_MAX = 2**31 - 1
_PRIMITIVES: Mapping[str, Type] = {
    "null": Null(),
    "boolean": Boolean(),
    "int": Integer("int", 32),
    "long": Integer("long", 64),
    "float": Floating("float", "<f"),
    "double": Floating("double", "<d"),
    "string": String(),
    "bytes": Bytes(),
}
_NAMED = ("record", "error", "enum", "fixed")


class Names(dict[str, Type]):
    """Named types by full name, of a schema and of those that it refers to."""


class AvroCodec:
    kind = AVRO

    def __init__(self, root: Type) -> None:
        self._root = root

    def decode(self, data: bytes) -> bytes:
        source = Input(data)
        value = self._root.read(source, 0)
        left = len(data) - source.at
        if left:
            raise DataError(f"{left} bytes follow the value" if left > 1 else "a byte follows")
        return as_json(value)

    def encode(self, value: Any) -> bytes:
        out = Output()
        self._root.write(value, out, 0)
        return bytes(out.parts)


def avro_codec(text: str | bytes, names: Names | None = None) -> AvroCodec:
    """Of a schema's JSON; the types that it declares join ``names``. Raises SchemaError."""
    return AvroCodec(parse(text, Names() if names is None else names))


def parse(text: str | bytes, names: Names) -> Type:
    if len(text) > SCHEMA_BYTES_MAX:
        raise SchemaError(f"a schema has at most {SCHEMA_BYTES_MAX} bytes, not {len(text)}")
    try:
        schema = json.loads(text)
    except RecursionError:
        raise SchemaError(f"it has more than {LEVELS_MAX} levels") from None
    except ValueError as error:
        raise SchemaError(f"it is no JSON: {error}") from None
    return _Parser(names).type_of(schema, "", 0)


class _Parser:
    def __init__(self, names: Names) -> None:
        self._names = names
        self._count = 0

    def type_of(self, schema: Any, space: str, level: int) -> Type:
        """``space``: the namespace around it."""
        self._count += 1
        if self._count > TYPES_MAX:
            raise SchemaError(f"it has more than {TYPES_MAX} types")
        if level > LEVELS_MAX:
            raise SchemaError(f"it has more than {LEVELS_MAX} levels")
        if isinstance(schema, str):
            return self._by_name(schema, space)
        if isinstance(schema, list):
            return self._union(schema, space, level)
        if not isinstance(schema, dict) or "type" not in schema:
            takes = 'a name, {"type": ...} or a list'
            raise SchemaError(f"{shortened(schema)} is no type: it takes {takes}")
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.type_of(kind, space, level + 1)
        if kind == "array":
            return Array(self._part(schema, "items", space, level))
        if kind == "map":
            return Map(self._part(schema, "values", space, level))
        if kind in _NAMED:
            return self._declared(kind, schema, space, level)
        return self._by_name(kind, space)

    def _part(self, schema: dict[str, Any], part: str, space: str, level: int) -> Type:
        if part not in schema:
            raise SchemaError(f'{"an array" if part == "items" else "a map"} has no "{part}"')
        return self.type_of(schema[part], space, level + 1)

    def _by_name(self, name: Any, space: str) -> Type:
        if not isinstance(name, str):
            raise SchemaError(f"{shortened(name)} is no type")
        found = _PRIMITIVES.get(name)
        if found is None and space and "." not in name:
            found = self._names.get(f"{space}.{name}")
        found = found or self._names.get(name)
        if found is None:
            raise SchemaError(f"there is no type {shortened(name)}")
        return found

    def _union(self, schema: list[Any], space: str, level: int) -> Union:
        branches = [self.type_of(one, space, level + 1) for one in schema]
        seen = set[str]()
        for branch in branches:
            if isinstance(branch, Union):
                raise SchemaError("a union has a union in it")
            if branch.name in seen:
                raise SchemaError(f"a union has {branch.name} twice")
            seen.add(branch.name)
        if not branches:
            raise SchemaError("a union has no types")
        return Union(branches)

    def _declared(self, kind: str, schema: dict[str, Any], space: str, level: int) -> Type:
        full = self._full_name(kind, schema, space)
        space = full.rpartition(".")[0]
        if kind in ("record", "error"):
            record = Record(full)
            self._names[full] = record
            record.set_fields(self._fields(full, schema.get("fields"), space, level))
            return record
        if kind == "enum":
            symbols = schema.get("symbols")
            if not isinstance(symbols, list) or not all(isinstance(one, str) for one in symbols):
                raise SchemaError(f'{full} has no "symbols"')
            if len(set(symbols)) < len(symbols):
                raise SchemaError(f"{full} has a symbol twice")
            self._names[full] = Enumeration(full, symbols)
        else:
            size = schema.get("size")
            if type(size) is not int or not 0 <= size <= FIXED_BYTES_MAX:
                raise SchemaError(f'{full} has no "size"')
            self._names[full] = Fixed(full, size)
        return self._names[full]

    def _full_name(self, kind: str, schema: dict[str, Any], space: str) -> str:
        name, own = schema.get("name"), schema.get("namespace")
        if not isinstance(name, str) or not name:
            raise SchemaError(f"a type {kind} has no name")
        if "." not in name:
            around = own if isinstance(own, str) else space
            name = f"{around}.{name}" if around else name
        name = name.removeprefix(".")
        if len(name) > NAME_LENGTH_MAX:
            raise SchemaError(f"{shortened(name)} has more than {NAME_LENGTH_MAX} characters")
        if name in self._names or name in _PRIMITIVES:
            raise SchemaError(f"{shortened(name)} is declared twice")
        return name

    def _fields(
        self, record: str, fields: Any, space: str, level: int
    ) -> list[tuple[str, Type, Any]]:
        if not isinstance(fields, list):
            raise SchemaError(f'{record} has no "fields"')
        found = list[tuple[str, Type, Any]]()
        for field in fields:
            name = field.get("name") if isinstance(field, dict) else None
            if not isinstance(name, str) or "type" not in field:
                raise SchemaError(f"{record} has a field without name or type")
            kind = self.type_of(field["type"], space, level + 1)
            found.append((name, kind, field.get("default", NO_DEFAULT)))
        if len({name for name, _, _ in found}) < len(found):
            raise SchemaError(f"{record} has a field twice")
        return found
