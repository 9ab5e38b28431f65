"""Avro's types: each reads a datum as a JSON value, and writes it.

The JSON is that of Avro's specification ("JSON Encoding"), with one exception: in a union of null
and one other type the other's value stands plainly, as in rpk, not as ``{"type": value}``; both
are written. Bytes and ``fixed`` are strings of U+0000 to U+00FF, logical types are the types below
them, and NaN and the infinities are strings.

A value is read within bounds: :data:`LEVELS_MAX` types within one another, and for each value
:data:`VALUES_MIN` values or two a byte, whichever is more, since values of no bytes (null, a record
without fields) could be told in any number.
"""

from __future__ import annotations

import math
import struct
from abc import ABC, abstractmethod
from typing import Any

from pyrklog.serdes.codec import DataError, shortened

LEVELS_MAX = 200
ENCODED_BYTES_MAX = 100 * 2**20
"""With defaults; no record is as large."""
VALUES_MIN = 1_000_000
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Input:
    """Bytes that are read from the front."""

    __slots__ = ("at", "data", "left")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.left = max(VALUES_MIN, 2 * len(data))

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise DataError(f"{size} bytes are announced, {len(self.data) - self.at} are left")
        begin, self.at = self.at, self.at + size
        return self.data[begin : self.at]

    def number(self) -> int:
        """A long: zigzag, seven bits a byte."""
        found = shift = 0
        data, at = self.data, self.at
        while True:
            if at == len(data):
                raise DataError("the bytes end amid a number")
            byte = data[at]
            at += 1
            found |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 63:
                raise DataError("a number has more than ten bytes")
        if found >= 2**64:
            raise DataError("a number has more than 64 bits")
        self.at = at
        return (found >> 1) ^ -(found & 1)

    def count(self) -> None:
        """One more value."""
        self.left -= 1
        if self.left < 0:
            raise DataError("it has too many values for its size")


class Output:
    """``in_default``: a schema's default is written, whose unions are plain."""

    __slots__ = ("in_default", "left", "parts")

    def __init__(self) -> None:
        self.parts = bytearray()
        self.in_default = False
        # Defaults within defaults may multiply.
        self.left = VALUES_MIN

    def number(self, value: int) -> None:
        rest = (value << 1) ^ (value >> 63)
        while rest > 127:
            self.parts.append(rest & 127 | 128)
            rest >>= 7
        self.parts.append(rest)

    def sized(self, data: bytes) -> None:
        self.number(len(data))
        self.parts += data

    def default(self) -> None:
        self.left -= 1
        if self.left < 0 or len(self.parts) > ENCODED_BYTES_MAX:
            raise DataError("its defaults are too many")


class Type(ABC):
    """``name`` is what Avro's JSON calls it in a union."""

    name = ""

    @abstractmethod
    def read(self, source: Input, level: int) -> Any: ...

    @abstractmethod
    def write(self, value: Any, out: Output, level: int) -> None: ...

    def refuse(self, value: object) -> DataError:
        return DataError(f"{shortened(value)} is no {self.name}")


def _deeper(level: int) -> int:
    if level >= LEVELS_MAX:
        raise DataError(f"more than {LEVELS_MAX} levels")
    return level + 1


class Null(Type):
    name = "null"

    def read(self, source: Input, level: int) -> None:
        source.count()

    def write(self, value: Any, out: Output, level: int) -> None:
        if value is not None:
            raise self.refuse(value)


class Boolean(Type):
    name = "boolean"

    def read(self, source: Input, level: int) -> bool:
        [byte] = source.take(1)
        if byte > 1:
            raise DataError(f"a byte {byte} is no boolean")
        return byte == 1

    def write(self, value: Any, out: Output, level: int) -> None:
        if not isinstance(value, bool):
            raise self.refuse(value)
        out.parts.append(value)


class Integer(Type):
    def __init__(self, name: str, bits: int) -> None:
        self.name = name
        self._end = 1 << (bits - 1)

    def read(self, source: Input, level: int) -> int:
        found = source.number()
        if not -self._end <= found < self._end:
            raise DataError(f"{found} is no {self.name}")
        return found

    def write(self, value: Any, out: Output, level: int) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.refuse(value)
        if not -self._end <= value < self._end:
            raise self.refuse(value)
        out.number(value)


class Floating(Type):
    def __init__(self, name: str, form: str) -> None:
        self.name = name
        self._form = struct.Struct(form)

    def read(self, source: Input, level: int) -> float | str:
        found: float
        (found,) = self._form.unpack(source.take(self._form.size))
        if math.isfinite(found):
            return found
        return "NaN" if math.isnan(found) else "Infinity" if found > 0 else "-Infinity"

    def write(self, value: Any, out: Output, level: int) -> None:
        if isinstance(value, str) and value in _NOT_FINITE:
            number = _NOT_FINITE[value]
        elif isinstance(value, int | float) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                raise self.refuse(value) from None
            if not math.isfinite(number):
                raise self.refuse(value)
        else:
            raise self.refuse(value)
        try:
            out.parts += self._form.pack(number)
        except OverflowError:
            raise self.refuse(value) from None


class String(Type):
    name = "string"

    def read(self, source: Input, level: int) -> str:
        try:
            return source.take(source.number()).decode()
        except UnicodeDecodeError:
            raise DataError("a string is not UTF-8") from None

    def write(self, value: Any, out: Output, level: int) -> None:
        if not isinstance(value, str):
            raise self.refuse(value)
        try:
            out.sized(value.encode())
        except UnicodeEncodeError:
            raise DataError("a string has half of a surrogate pair") from None


class Bytes(Type):
    name = "bytes"

    def read(self, source: Input, level: int) -> str:
        return source.take(source.number()).decode("latin-1")

    def write(self, value: Any, out: Output, level: int) -> None:
        out.sized(self.bytes_of(value))

    def bytes_of(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise self.refuse(value)
        try:
            return value.encode("latin-1")
        except UnicodeEncodeError:
            raise DataError(f"a string of {self.name} has characters above U+00FF") from None


class Fixed(Bytes):
    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self._size = size

    def read(self, source: Input, level: int) -> str:
        source.count()
        return source.take(self._size).decode("latin-1")

    def write(self, value: Any, out: Output, level: int) -> None:
        data = self.bytes_of(value)
        if len(data) != self._size:
            raise DataError(f"{self.name} has {self._size} bytes, not {len(data)}")
        out.parts += data


class Enumeration(Type):
    def __init__(self, name: str, symbols: list[str]) -> None:
        self.name = name
        self._symbols = symbols
        self._numbers = {symbol: number for number, symbol in enumerate(symbols)}

    def read(self, source: Input, level: int) -> str:
        number = source.number()
        if not 0 <= number < len(self._symbols):
            raise DataError(f"{self.name} has no symbol {number}")
        return self._symbols[number]

    def write(self, value: Any, out: Output, level: int) -> None:
        number = self._numbers.get(value) if isinstance(value, str) else None
        if number is None:
            raise self.refuse(value)
        out.number(number)


def _block(source: Input) -> int:
    """Of how many items; zero at the end."""
    count = source.number()
    if count < 0:
        source.number()  # the block's size in bytes, which need not be believed
        count = -count
    return count


class Array(Type):
    name = "array"

    def __init__(self, items: Type) -> None:
        self._items = items

    def read(self, source: Input, level: int) -> list[Any]:
        level, found, read = _deeper(level), [], self._items.read
        try:
            while count := _block(source):
                for _ in range(count):
                    source.count()
                    found.append(read(source, level))
        except DataError as error:
            raise error.within(f"[{len(found)}]") from None
        return found

    def write(self, value: Any, out: Output, level: int) -> None:
        if not isinstance(value, list):
            raise self.refuse(value)
        level = _deeper(level)
        if value:
            out.number(len(value))
        for number, item in enumerate(value):
            try:
                self._items.write(item, out, level)
            except DataError as error:
                raise error.within(f"[{number}]") from None
        out.number(0)


class Map(Type):
    name = "map"
    _keys = String()

    def __init__(self, values: Type) -> None:
        self._values = values

    def read(self, source: Input, level: int) -> dict[str, Any]:
        level, found = _deeper(level), {}
        while count := _block(source):
            for _ in range(count):
                source.count()
                key = self._keys.read(source, level)
                try:
                    found[key] = self._values.read(source, level)
                except DataError as error:
                    raise error.within(f".{key[:60]}") from None
        return found

    def write(self, value: Any, out: Output, level: int) -> None:
        if not isinstance(value, dict):
            raise self.refuse(value)
        level = _deeper(level)
        if value:
            out.number(len(value))
        for key, inner in value.items():
            self._keys.write(key, out, level)
            try:
                self._values.write(inner, out, level)
            except DataError as error:
                raise error.within(f".{key[:60]}") from None
        out.number(0)


class Union(Type):
    name = "union"

    def __init__(self, branches: list[Type]) -> None:
        self._branches = branches
        self._numbers = {branch.name: number for number, branch in enumerate(branches)}
        self._null = self._numbers.get("null")
        others = [branch for branch in branches if not isinstance(branch, Null)]
        self._only = others[0] if len(others) == 1 and self._null is not None else None

    def read(self, source: Input, level: int) -> Any:
        number = source.number()
        if not 0 <= number < len(self._branches):
            raise DataError(f"a union of {len(self._branches)} has no branch {number}")
        branch = self._branches[number]
        found = branch.read(source, _deeper(level))
        return found if self._only is not None or number == self._null else {branch.name: found}

    def write(self, value: Any, out: Output, level: int) -> None:
        level = _deeper(level)
        if value is None and self._null is not None:
            out.number(self._null)
            return
        branch, inner = self._chosen(value, out.in_default)
        out.number(self._numbers[branch.name])
        branch.write(inner, out, level)

    def _chosen(self, value: Any, in_default: bool) -> tuple[Type, Any]:
        """Without trying: a value costs one pass, whatever the schema."""
        if in_default:
            first = next((one for one in self._branches if not isinstance(one, Null)), None)
            if first is not None:
                return first, value
        tag = next(iter(value)) if isinstance(value, dict) and len(value) == 1 else None
        if self._only is not None:
            is_own = isinstance(self._only, Map) or (
                isinstance(self._only, Record) and tag in self._only.names
            )
            tagged = tag == self._only.name and not is_own
            return self._only, value[tag] if tagged else value
        if tag not in self._numbers:
            names = " or ".join(f'{{"{one.name}": ...}}' for one in self._branches[:4])
            raise DataError(f"{shortened(value)} is no value of this union; it takes {names}")
        return self._branches[self._numbers[tag]], value[tag]


NO_DEFAULT: Any = object()


class Record(Type):
    """``set_fields`` comes later: its fields may be of this type."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._fields: list[tuple[str, Type, Any]] = []
        self.names: frozenset[str] = frozenset()

    def set_fields(self, fields: list[tuple[str, Type, Any]]) -> None:
        """Names, types and defaults."""
        self._fields = fields
        self.names = frozenset(name for name, _, _ in fields)

    def read(self, source: Input, level: int) -> dict[str, Any]:
        source.count()
        level, found = _deeper(level), {}
        name = ""
        try:
            for name, kind, _ in self._fields:
                found[name] = kind.read(source, level)
        except DataError as error:
            raise error.within(f".{name[:60]}") from None
        return found

    def write(self, value: Any, out: Output, level: int) -> None:
        if not isinstance(value, dict):
            raise self.refuse(value)
        level = _deeper(level)
        for name, kind, default in self._fields:
            try:
                if name in value:
                    kind.write(value[name], out, level)
                else:
                    self._write_default(kind, default, out, level)
            except DataError as error:
                raise error.within(f".{name[:60]}") from None
        if len(value) > len(self._fields) or not self.names.issuperset(value):
            unknown = next(name for name in value if name not in self.names)
            raise DataError(f"{self.name} has no field {shortened(unknown)}")

    def _write_default(self, kind: Type, default: Any, out: Output, level: int) -> None:
        if default is NO_DEFAULT:
            raise DataError("it is missing, and has no default")
        out.default()
        before, out.in_default = out.in_default, True
        kind.write(default, out, level)
        out.in_default = before
