"""Uncompressed record batches (format 2) without keys, as in KRaft's metadata log.

Pure. Source: Kafka's record batch format (log-format.md); KIP-595 and KIP-630 for control records
in the metadata log and its snapshots.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_HEADER = struct.Struct(">qiibIhiqqqhii")
_FRAME_BYTES = 12
"""Base offset and length, which the length excludes."""
_CRC_FROM = 21
_CODEC_MASK = 0x07
_CONTROL = 0x20
RECORDS_PER_BATCH_MAX = 1000


class BatchError(ValueError):
    """The bytes are not a whole, undamaged batch; the message says where."""


class Value(NamedTuple):
    offset: int
    data: bytes


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFF_FFFF
    table = _TABLE
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFF_FFFF


def read_values(data: bytes, start_offset: int, *, torn_end: bool) -> Iterator[Value]:
    """Values from ``start_offset`` on, without control records.

    ``torn_end``: an incomplete batch at the end comes from a crash of the writer and is allowed.
    Raises :class:`BatchError`.
    """
    position = 0
    while position < len(data):
        left = len(data) - position
        if left >= _HEADER.size:
            length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
            if length < _HEADER.size - _FRAME_BYTES:
                raise BatchError(f"byte {position}: a batch of {length} bytes")
        if left < _HEADER.size or length > left - _FRAME_BYTES:
            if torn_end:
                return
            raise BatchError(f"byte {position}: the file ends within a batch")
        end = position + _FRAME_BYTES + length
        yield from _values_of(data, position, end, start_offset)
        position = end


def _values_of(data: bytes, position: int, end: int, start_offset: int) -> Iterator[Value]:
    base, _, _, magic, crc, attributes, last_delta, _, _, _, _, _, count = _HEADER.unpack_from(
        data, position
    )
    if magic != 2:
        raise BatchError(f"byte {position}: a batch of format {magic}, not 2")
    if base + last_delta < start_offset:
        return
    if crc32c(data[position + _CRC_FROM : end]) != crc:
        raise BatchError(f"byte {position}: the checksum does not fit")
    if attributes & _CODEC_MASK:
        raise BatchError(f"byte {position}: a compressed batch, which KRaft never writes")
    if attributes & _CONTROL:
        return
    place = position + _HEADER.size
    if not 0 <= count <= end - place:
        raise BatchError(f"byte {position}: {count} records in {end - place} bytes")
    for _ in range(count):
        length, place = _varint(data, place, end)
        stop = place + length
        if length < 1 or stop > end:
            raise BatchError(f"byte {place}: a record of {length} bytes")
        value = _record_value(data, place + 1, stop, base)
        if value.offset >= start_offset:
            yield value
        place = stop


def _record_value(data: bytes, place: int, stop: int, base: int) -> Value:
    """After the record's attributes: two deltas, key, value; headers are ignored."""
    _, place = _varint(data, place, stop)
    delta, place = _varint(data, place, stop)
    key_bytes, place = _varint(data, place, stop)
    place += max(0, key_bytes)
    length, place = _varint(data, place, stop)
    if key_bytes < -1 or length < 0 or place + length > stop:
        raise BatchError(f"byte {place}: a value of {length} bytes")
    return Value(base + delta, data[place : place + length])


def _varint(data: bytes, place: int, stop: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes (time deltas have 64 bits)."""
    value = shift = 0
    while place < stop and shift < 70:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), place
        shift += 7
    raise BatchError(f"byte {place}: a number without an end")


def encode_values(values: Sequence[bytes], first_offset: int, timestamp_ms: int) -> bytes:
    """Batches of at most :data:`RECORDS_PER_BATCH_MAX` values with null keys."""
    out = bytearray()
    for first in range(0, len(values), RECORDS_PER_BATCH_MAX):
        chunk = values[first : first + RECORDS_PER_BATCH_MAX]
        records = b"".join(_record(i, None, value) for i, value in enumerate(chunk))
        out += _batch(first_offset + first, len(chunk), records, timestamp_ms, 0)
    return bytes(out)


def encode_control(offset: int, kind: int, value: bytes, timestamp_ms: int) -> bytes:
    """A batch with one control record, whose key is version 0 and ``kind``."""
    record = _record(0, struct.pack(">hh", 0, kind), value)
    return _batch(offset, 1, record, timestamp_ms, _CONTROL)


def _batch(offset: int, count: int, records: bytes, timestamp_ms: int, attributes: int) -> bytes:
    size = _HEADER.size + len(records) - _FRAME_BYTES
    last = count - 1
    times = (timestamp_ms, timestamp_ms)

    def header(crc: int) -> bytes:
        return _HEADER.pack(offset, size, 0, 2, crc, attributes, last, *times, -1, -1, -1, count)

    return header(crc32c(header(0)[_CRC_FROM:] + records)) + records


def _record(delta: int, key: bytes | None, value: bytes) -> bytes:
    body = bytearray(b"\0\0")  # no attributes, no time delta
    _write_varint(body, delta)
    _write_varint(body, -1 if key is None else len(key))
    body += key or b""
    _write_varint(body, len(value))
    body += value
    body += b"\0"  # no headers
    out = bytearray()
    _write_varint(out, len(body))
    return bytes(out + body)


def _write_varint(out: bytearray, value: int) -> None:
    left = (value << 1) ^ (value >> 63)
    while left >= 0x80:
        out.append((left & 0x7F) | 0x80)
        left >>= 7
    out.append(left)
