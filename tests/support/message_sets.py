"""Message sets of formats 0 and 1, well formed or not (Kafka's protocol before 0.11)."""

from __future__ import annotations

import gzip
import struct
import zlib

GZIP = 1
LOG_APPEND_TIME = 8


def message(
    value: bytes | None,
    *,
    magic: int = 1,
    key: bytes | None = None,
    offset: int = 0,
    attributes: int = 0,
    timestamp: int = 1_500_000_000_000,
    crc: int | None = None,
    size: int | None = None,
    key_size: int | None = None,
    value_size: int | None = None,
) -> bytes:
    """One with its offset and size; the sizes and ``crc`` default to the right ones."""
    body = struct.pack(">bb", magic, attributes)
    if magic > 0:
        body += struct.pack(">q", timestamp)
    body += _sized(key, key_size) + _sized(value, value_size)
    checksum = zlib.crc32(body) if crc is None else crc
    data = struct.pack(">I", checksum) + body
    return struct.pack(">qi", offset, len(data) if size is None else size) + data


def _sized(data: bytes | None, size: int | None) -> bytes:
    found = -1 if data is None else len(data)
    return struct.pack(">i", found if size is None else size) + (data or b"")


def wrapper(
    inner: bytes, *, magic: int = 1, attributes: int = GZIP, offset: int = 0, crc: int | None = None
) -> bytes:
    """A message whose value is a set, compressed by gzip."""
    value = gzip.compress(inner, mtime=0)
    return message(value, magic=magic, attributes=attributes, offset=offset, crc=crc)
