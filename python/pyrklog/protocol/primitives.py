"""Kafka's primitive wire types: a reader and a writer each.

A reader takes ``(buffer, position)`` and returns ``(value, next position)``; a writer appends to a
``bytearray``. Readers of fixed-width values may raise ``IndexError`` or ``struct.error`` on a short
buffer; :class:`pyrklog.protocol.api.Api` turns them into :class:`DecodeError`. Readers of
variable-length values check the length against the remaining bytes first.

Source: Kafka protocol guide, "Protocol Primitive Types"; KIP-482 (compact forms).
"""

from collections.abc import Callable
from typing import Any

Reader = Callable[[bytes, int], tuple[Any, int]]
Writer = Callable[[bytearray, Any], None]

STRING_BYTES_MAX = 0x7FFF
VARINT_BYTES_MAX = 5


class DecodeError(ValueError):
    """The bytes are not a message of the API and version."""


class EncodeError(ValueError):
    """The object cannot be written in this version."""


def read_unsigned_varint(buffer: bytes, position: int) -> tuple[int, int]:
    """Little-endian base-128: at most 32 bits, in at most five bytes."""
    byte = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for index in range(1, VARINT_BYTES_MAX):
        byte = buffer[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                break
            return value, position + index + 1
    raise DecodeError("a variable-length integer has more than 32 bits")


def write_unsigned_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"a string is not valid UTF-8: {error.reason}") from None


def _slice(buffer: bytes, position: int, length: int) -> tuple[bytes, int]:
    end = position + length
    if end > len(buffer):
        raise DecodeError(f"{length} bytes announced, {len(buffer) - position} remain")
    return buffer[position:end], end


def _length16(buffer: bytes, position: int) -> tuple[int, int]:
    length = int.from_bytes(buffer[position : position + 2], "big", signed=True)
    if position + 2 > len(buffer):
        raise DecodeError("the message ends within a length")
    return length, position + 2


def _length32(buffer: bytes, position: int) -> tuple[int, int]:
    length = int.from_bytes(buffer[position : position + 4], "big", signed=True)
    if position + 4 > len(buffer):
        raise DecodeError("the message ends within a length")
    return length, position + 4


def _compact_length(buffer: bytes, position: int) -> tuple[int, int]:
    length, position = read_unsigned_varint(buffer, position)
    return length - 1, position


def length_reader(flexible: bool, wide: bool) -> Callable[[bytes, int], tuple[int, int]]:
    """Reads a length; -1 means null. Compact if flexible, else 32 bits (wide) or 16."""
    if flexible:
        return _compact_length
    return _length32 if wide else _length16


def length_writer(flexible: bool, wide: bool) -> Callable[[bytearray, int], None]:
    """The inverse of :func:`length_reader`."""

    def compact(out: bytearray, length: int) -> None:
        write_unsigned_varint(out, length + 1)

    def narrow(out: bytearray, length: int) -> None:
        if length > STRING_BYTES_MAX:
            raise EncodeError(
                f"{length} bytes do not fit a string, the limit is {STRING_BYTES_MAX}"
            )
        out += length.to_bytes(2, "big", signed=True)

    def broad(out: bytearray, length: int) -> None:
        out += length.to_bytes(4, "big", signed=True)

    if flexible:
        return compact
    return broad if wide else narrow


def check_null(nullable: bool) -> None:
    """Any negative length means null, as in Kafka; refuses it where a value is required."""
    if not nullable:
        raise DecodeError("null where a value is required")


def string_reader(flexible: bool, nullable: bool) -> Reader:
    """STRING, NULLABLE_STRING and their compact forms."""
    read_length = length_reader(flexible, wide=False)

    def read(buffer: bytes, position: int) -> tuple[str | None, int]:
        length, position = read_length(buffer, position)
        if length < 0:
            check_null(nullable)
            return None, position
        if length > STRING_BYTES_MAX:
            raise DecodeError(f"a string of {length} bytes, the limit is {STRING_BYTES_MAX}")
        data, position = _slice(buffer, position, length)
        return _text(data), position

    return read


def string_writer(flexible: bool, nullable: bool) -> Writer:
    write_length = length_writer(flexible, wide=False)

    def write(out: bytearray, value: str | None) -> None:
        if value is None:
            write_null(out, write_length, nullable)
            return
        data = value.encode()
        if len(data) > STRING_BYTES_MAX:
            raise EncodeError(f"a string of {len(data)} bytes, the limit is {STRING_BYTES_MAX}")
        write_length(out, len(data))
        out += data

    return write


def bytes_reader(flexible: bool, nullable: bool) -> Reader:
    """BYTES, NULLABLE_BYTES and their compact forms."""
    read_length = length_reader(flexible, wide=True)

    def read(buffer: bytes, position: int) -> tuple[bytes | None, int]:
        length, position = read_length(buffer, position)
        if length < 0:
            check_null(nullable)
            return None, position
        return _slice(buffer, position, length)

    return read


def bytes_writer(flexible: bool, nullable: bool) -> Writer:
    write_length = length_writer(flexible, wide=True)

    def write(out: bytearray, value: bytes | None) -> None:
        if value is None:
            write_null(out, write_length, nullable)
            return
        write_length(out, len(value))
        out += value

    return write


def write_null(
    out: bytearray, write_length: Callable[[bytearray, int], None], nullable: bool
) -> None:
    """Raises :class:`EncodeError` if the version has no null."""
    if not nullable:
        raise EncodeError("null where this version requires a value")
    write_length(out, -1)
