"""Compiles a field table into closures, once for each message and version.

A run of fixed-width fields becomes one :class:`struct.Struct`; any other field is one closure.
Before an array is allocated, its count is checked against the remaining bytes divided by the least
size of an element; :class:`Bounded` bounds all arrays together.
"""

import struct
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

from pyrklog.protocol.fields import (
    REQUIRED,
    Array,
    Blob,
    FieldSpec,
    Fixed,
    Message,
    Text,
    WireType,
    field_table,
)
from pyrklog.protocol.primitives import (
    DecodeError,
    Reader,
    Writer,
    bytes_reader,
    bytes_writer,
    check_null,
    length_reader,
    length_writer,
    read_unsigned_varint,
    string_reader,
    string_writer,
    write_null,
    write_unsigned_varint,
)

TAGS_MAX = 4096


class Bounded(bytes):
    """A message whose arrays may have ``elements_left`` elements in all."""

    elements_left: int

    def take(self, elements: int) -> None:
        """Counts an array. Raises :class:`DecodeError` if the message has too many elements."""
        self.elements_left -= elements
        if self.elements_left < 0:
            raise DecodeError("more elements than a request may have")


@cache
def message_reader(message: type[Message], version: int, flexible: bool) -> Reader:
    """The decoder of a message in one version."""
    table = field_table(message)
    plain = [spec for spec in table if spec.tag is None]
    tags = {
        spec.tag: (spec.name, _reader(spec.type, version, flexible, spec.null_in(version)))
        for spec in table
        if spec.tag is not None and spec.in_version(version)
    }
    if len(plain) != len(table) and table.index(plain[-1]) != len(plain) - 1:
        raise TypeError(f"{message.__name__}: tagged fields come last")
    steps = _read_steps(plain, version, flexible)

    def read(buffer: bytes, position: int) -> tuple[Message, int]:
        values: list[Any] = []
        for run, reader in steps:
            if run is not None:
                values += run.unpack_from(buffer, position)
                position += run.size
            else:
                value, position = reader(buffer, position)
                values.append(value)
        result = message(*values)
        if flexible:
            if buffer[position] == 0:
                return result, position + 1
            position = _read_tags(buffer, position, tags, result)
        return result, position

    return read


_Step = tuple[struct.Struct | None, Reader]


def _unused(buffer: bytes, position: int) -> tuple[Any, int]:
    raise AssertionError("a run of fixed-width fields has no reader")


def _read_steps(plain: list[FieldSpec], version: int, flexible: bool) -> list[_Step]:
    steps: list[_Step] = []
    codes = ""
    for spec in plain:
        if spec.in_version(version) and isinstance(spec.type, Fixed):
            codes += spec.type.code
            continue
        if codes:
            steps.append((struct.Struct(">" + codes), _unused))
            codes = ""
        if spec.in_version(version):
            reader = _reader(spec.type, version, flexible, spec.null_in(version))
        else:
            reader = _absent(spec)
        steps.append((None, reader))
    if codes:
        steps.append((struct.Struct(">" + codes), _unused))
    return steps


def _absent(spec: FieldSpec) -> Reader:
    """Yields the default of a field that this version lacks."""
    default = spec.default
    if default is REQUIRED:
        raise TypeError(f"field {spec.name} is not in every version and has no default")
    if isinstance(default, list):
        return lambda _buffer, position: ([], position)
    return lambda _buffer, position: (default, position)


def _read_tags(
    buffer: bytes, position: int, known: dict[int, tuple[str, Reader]], into: Message
) -> int:
    count, position = read_unsigned_varint(buffer, position)
    if count > min(TAGS_MAX, (len(buffer) - position) // 2):
        raise DecodeError(f"{count} tagged fields announced, {len(buffer) - position} bytes remain")
    for _ in range(count):
        tag, position = read_unsigned_varint(buffer, position)
        size, position = read_unsigned_varint(buffer, position)
        end = position + size
        if end > len(buffer):
            raise DecodeError(f"tagged field {tag} announces {size} bytes, past the end")
        entry = known.get(tag)
        if entry is not None:
            name, reader = entry
            value, after = reader(buffer, position)
            if after != end:
                raise DecodeError(f"tagged field {tag} is not {size} bytes long")
            setattr(into, name, value)
        position = end
    return position


def _reader(wire: WireType, version: int, flexible: bool, nullable: bool) -> Reader:
    match wire:
        case Fixed(code):
            return _fixed_reader(struct.Struct(">" + code))
        case Text():
            return string_reader(flexible, nullable)
        case Blob():
            return bytes_reader(flexible, nullable)
        case Array():
            return _array_reader(wire, version, flexible, nullable)
        case _:
            read = message_reader(wire, version, flexible)
            return _nullable_reader(read) if nullable else read


def _nullable_reader(read: Reader) -> Reader:
    """Of a message behind a byte that is negative for null."""

    def read_nullable(buffer: bytes, position: int) -> tuple[Any, int]:
        if buffer[position] >= 0x80:
            return None, position + 1
        return read(buffer, position + 1)

    return read_nullable


def _fixed_reader(codec: struct.Struct) -> Reader:
    unpack, size = codec.unpack_from, codec.size

    def read(buffer: bytes, position: int) -> tuple[Any, int]:
        return unpack(buffer, position)[0], position + size

    return read


def _array_reader(array: Array, version: int, flexible: bool, nullable: bool) -> Reader:
    element, kind = array.element, array.kind
    read_length = length_reader(flexible, wide=True)
    read_element = _reader(element, version, flexible, nullable=False)
    size_min = least_size_bytes(element, version, flexible)
    fixed = element.code if isinstance(element, Fixed) else None

    def read(buffer: bytes, position: int) -> tuple[Any, int]:
        count, position = read_length(buffer, position)
        if count < 0:
            check_null(nullable)
            return None, position
        if count * size_min > len(buffer) - position:
            raise DecodeError(f"{count} elements announced, {len(buffer) - position} bytes remain")
        if isinstance(buffer, Bounded):
            buffer.take(count)
        if fixed is not None and len(fixed) == 1:
            run = struct.unpack_from(f">{count}{fixed}", buffer, position)
            return kind(run), position + count * size_min
        values: list[Any] = []
        for _ in range(count):
            value, position = read_element(buffer, position)
            values.append(value)
        return values if kind is list else kind(values), position

    return read


def least_size_bytes(wire: WireType, version: int, flexible: bool) -> int:
    """The fewest bytes of a value of this type; at least one."""
    match wire:
        case Fixed(_, size_bytes):
            return size_bytes
        case Text():
            return 1 if flexible else 2
        case Blob() | Array():
            return 1 if flexible else 4
        case _:
            fields = sum(
                _least_of_field(spec, version, flexible)
                for spec in field_table(wire)
                if spec.tag is None and spec.in_version(version)
            )
            return max(1, fields + int(flexible))


def _least_of_field(spec: FieldSpec, version: int, flexible: bool) -> int:
    is_message = isinstance(spec.type, type)
    if is_message and spec.null_in(version):
        return 1
    return least_size_bytes(spec.type, version, flexible)


@cache
def message_writer(message: type[Message], version: int, flexible: bool) -> Writer:
    """The encoder of a message in one version."""
    table = field_table(message)
    plain = [spec for spec in table if spec.tag is None and spec.in_version(version)]
    tags: list[_TagStep] = [
        (spec.tag, spec.default, attrgetter(spec.name), _field_writer(spec, version, flexible))
        for spec in sorted(table, key=lambda spec: spec.tag or 0)
        if spec.tag is not None and spec.in_version(version)
    ]
    steps = _write_steps(plain, version, flexible)

    def write(out: bytearray, value: Message) -> None:
        for get, write_step in steps:
            write_step(out, get(value))
        if flexible:
            if tags:
                _write_tags(out, value, tags)
            else:
                out.append(0)

    return write


_Getter = Callable[[Any], Any]
_TagStep = tuple[int, Any, _Getter, Writer]


def _write_steps(
    plain: list[FieldSpec], version: int, flexible: bool
) -> list[tuple[_Getter, Writer]]:
    steps: list[tuple[_Getter, Writer]] = []
    run: list[FieldSpec] = []
    for spec in plain:
        if isinstance(spec.type, Fixed):
            run.append(spec)
            continue
        if run:
            steps.append(_run_writer(run))
            run = []
        steps.append((attrgetter(spec.name), _field_writer(spec, version, flexible)))
    if run:
        steps.append(_run_writer(run))
    return steps


def _run_writer(run: list[FieldSpec]) -> tuple[_Getter, Writer]:
    codes = "".join(spec.type.code for spec in run if isinstance(spec.type, Fixed))
    pack = struct.Struct(">" + codes).pack
    getter = attrgetter(*(spec.name for spec in run))
    if len(run) == 1:

        def write_one(out: bytearray, value: Any) -> None:
            out += pack(value)

        return getter, write_one

    def write_run(out: bytearray, values: Any) -> None:
        out += pack(*values)

    return getter, write_run


def _write_tags(out: bytearray, value: Message, tags: list[_TagStep]) -> None:
    present = [
        (tag, write, get(value)) for tag, default, get, write in tags if get(value) != default
    ]
    write_unsigned_varint(out, len(present))
    for tag, write, field_value in present:
        body = bytearray()
        write(body, field_value)
        write_unsigned_varint(out, tag)
        write_unsigned_varint(out, len(body))
        out += body


def _field_writer(spec: FieldSpec, version: int, flexible: bool) -> Writer:
    return _writer(spec.type, version, flexible, spec.null_in(version))


def _writer(wire: WireType, version: int, flexible: bool, nullable: bool) -> Writer:
    match wire:
        case Fixed(code):
            pack = struct.Struct(">" + code).pack

            def write_fixed(out: bytearray, value: Any) -> None:
                out += pack(value)

            return write_fixed
        case Text():
            return string_writer(flexible, nullable)
        case Blob():
            return bytes_writer(flexible, nullable)
        case Array(element):
            return _array_writer(element, version, flexible, nullable)
        case _:
            write = message_writer(wire, version, flexible)
            return _nullable_writer(write) if nullable else write


def _nullable_writer(write: Writer) -> Writer:
    """The inverse of :func:`_nullable_reader`."""

    def write_nullable(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0xFF)
        else:
            out.append(1)
            write(out, value)

    return write_nullable


def _array_writer(element: WireType, version: int, flexible: bool, nullable: bool) -> Writer:
    write_length = length_writer(flexible, wide=True)
    write_element = _writer(element, version, flexible, nullable=False)

    def write(out: bytearray, values: list[Any] | None) -> None:
        if values is None:
            write_null(out, write_length, nullable)
            return
        write_length(out, len(values))
        for value in values:
            write_element(out, value)

    return write
