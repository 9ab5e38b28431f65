"""The vocabulary of the field tables.

A message class lists its fields in wire order; each annotation gives the Python type and the wire
type::

class CreatePartitionsTopic(Message):
        name: Str
        count: Int32
        assignments: list[CreatePartitionsAssignment] | None = None

``X | None`` is nullable in every version, unless :func:`nullable` names the first. :func:`since`
and :func:`until` bound the versions with the field; in others, decoding yields the default and
encoding drops the value. :func:`tagged` makes a tagged field of the flexible versions (KIP-482).
"""

import types
import typing
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

VERSION_MAX = 0x7FFF


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed-width value: its :mod:`struct` code and its size."""

    code: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Text:
    """A string of at most 32,767 bytes of UTF-8."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes."""


Bool = Annotated[bool, Fixed("?", 1)]
Int8 = Annotated[int, Fixed("b", 1)]
Int16 = Annotated[int, Fixed("h", 2)]
UInt16 = Annotated[int, Fixed("H", 2)]
Int32 = Annotated[int, Fixed("i", 4)]
UInt32 = Annotated[int, Fixed("I", 4)]
Int64 = Annotated[int, Fixed("q", 8)]
Float64 = Annotated[float, Fixed("d", 8)]
Uuid = Annotated[bytes, Fixed("16s", 16)]
Str = Annotated[str, Text()]
Bytes = Annotated[bytes, Blob()]

NO_UUID = bytes(16)


class Message(msgspec.Struct):
    """Base of requests, responses and their structures."""


def empty_list() -> Any:
    """The default of a list field."""
    return msgspec.field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Array:
    element: "WireType"
    kind: type[list[Any]] | type[tuple[Any, ...]] = list
    """What decoding makes; encoding takes any sequence."""


WireType = Fixed | Text | Blob | Array | type[Message]


@dataclass(frozen=True, slots=True)
class _Mark:
    since: int | None = None
    until: int | None = None
    nullable_since: int | None = None
    tag: int | None = None


def since(version: int, *, until: int = VERSION_MAX) -> _Mark:
    """The first version with the field."""
    return _Mark(since=version, until=until)


def until(version: int) -> _Mark:
    """The last version with the field."""
    return _Mark(until=version)


def nullable(version: int) -> _Mark:
    """The first version in which the field may be null."""
    return _Mark(nullable_since=version)


def tagged(tag: int, *, since: int) -> _Mark:
    """A tagged field; written only if its value is not the default."""
    return _Mark(since=since, tag=tag)


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One row of a field table."""

    name: str
    type: WireType
    since: int
    until: int
    nullable_since: int
    """``VERSION_MAX + 1``: never null."""
    tag: int | None
    default: Any
    """:data:`REQUIRED`: none."""

    def in_version(self, version: int) -> bool:
        return self.since <= version <= self.until

    def null_in(self, version: int) -> bool:
        return version >= self.nullable_since


REQUIRED: Any = msgspec.NODEFAULT


def field_table(message: type[Message]) -> list[FieldSpec]:
    """In wire order."""
    hints = typing.get_type_hints(message, include_extras=True)
    return [
        _field(info.name, hints[info.name], _default(info))
        for info in msgspec.structs.fields(message)
    ]


def _default(info: msgspec.structs.FieldInfo) -> Any:
    if info.default_factory is not msgspec.NODEFAULT:
        return info.default_factory()
    return info.default


def _field(name: str, hint: Any, default: Any) -> FieldSpec:
    hint, marks = _split(hint)
    inner, can_be_null = _strip_none(hint)
    first, last, null_from, tag = 0, VERSION_MAX, 0, None
    for mark in marks:
        first = mark.since if mark.since is not None else first
        last = mark.until if mark.until is not None else last
        null_from = mark.nullable_since if mark.nullable_since is not None else null_from
        tag = mark.tag if mark.tag is not None else tag
    return FieldSpec(
        name=name,
        type=_wire_type(name, inner),
        since=first,
        until=last,
        nullable_since=null_from if can_be_null else VERSION_MAX + 1,
        tag=tag,
        default=default,
    )


def _split(hint: Any) -> tuple[Any, list[_Mark]]:
    """Separates the marks of an annotation from its wire type."""
    if typing.get_origin(hint) is not Annotated:
        return hint, []
    base, *extras = typing.get_args(hint)
    marks = [extra for extra in extras if isinstance(extra, _Mark)]
    for extra in extras:
        if not isinstance(extra, _Mark):
            base = Annotated[base, extra]
    return base, marks


def _strip_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [arg for arg in typing.get_args(hint) if arg is not types.NoneType]
        if len(inner) == 1:
            return inner[0], True
    return hint, False


def _wire_type(name: str, hint: Any) -> WireType:
    origin = typing.get_origin(hint)
    if origin is Annotated:
        for extra in typing.get_args(hint)[1:]:
            if isinstance(extra, Fixed | Text | Blob):
                return extra
    if origin in (list, tuple):
        return Array(_wire_type(name, typing.get_args(hint)[0]), origin)
    if isinstance(hint, type) and issubclass(hint, Message):
        return hint
    raise TypeError(f"field {name}: {hint!r} names no wire type")
