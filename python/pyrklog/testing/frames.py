"""Heads of requests, as far as faults need them: bytes in, values out.

A frame is a length of 4 bytes and a request or answer. The lengths of frames count these 4.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

from pyrklog.protocol.primitives import DecodeError, read_unsigned_varint

LENGTH_BYTES = 4
ANSWER_HEAD_BYTES = 8
"""Of an answer: its length and its correlation id."""
HEAD_BYTES_USUAL = 512
HEAD_BYTES_MAX = 1 << 18
"""Head and first fields of a Produce: two strings of 32,767 bytes, and tagged fields."""
PRODUCE = 0
API_VERSIONS = 18
_FIXED = struct.Struct(">ihhih")
_ANSWER = struct.Struct(">ii")
_PRODUCE_FLEXIBLE_SINCE = 9
_TRANSACTIONAL_ID_SINCE = 3


class RequestHead(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    frame_bytes: int
    body_start: int
    """Within the frame."""
    is_answered: bool
    """False for a Produce with acks=0."""


class UnreadableError(Exception):
    """What is no request of Kafka's; the broker itself refuses it."""


def read_head(data: bytearray, start: int) -> RequestHead | None:
    """The head of the request whose frame begins at ``start``; None while bytes are missing.

    Raises :class:`UnreadableError`.
    """
    available = len(data) - start
    if available < LENGTH_BYTES:
        return None
    (size,) = struct.unpack_from(">i", data, start)
    frame_bytes = LENGTH_BYTES + size
    if size < _FIXED.size - LENGTH_BYTES:
        raise UnreadableError(f"a frame of {size} bytes")
    if available >= _FIXED.size and _FIXED.unpack_from(data, start)[1] not in _rows():
        raise UnreadableError("an API that is not served")
    for most in (HEAD_BYTES_USUAL, HEAD_BYTES_MAX):
        wanted = min(frame_bytes, most)
        try:
            return _read(bytes(data[start : start + min(wanted, available)]), frame_bytes)
        except (struct.error, IndexError, DecodeError):
            if available < wanted:
                return None
    raise UnreadableError("a frame without a head")


def _read(head: bytes, frame_bytes: int) -> RequestHead:
    _, api_key, api_version, correlation_id, id_bytes = _FIXED.unpack_from(head)
    position = _FIXED.size
    client_id = head[position : position + max(id_bytes, 0)]
    if len(client_id) < id_bytes:
        raise IndexError
    position += len(client_id)
    if api_version >= flexible_since(api_key):
        position = _after_tags(head, position)
    is_answered = api_key != PRODUCE or _acks(head, position, api_version) != 0
    return RequestHead(
        api_key,
        api_version,
        correlation_id,
        client_id.decode(errors="replace"),
        frame_bytes,
        position,
        is_answered,
    )


def _acks(head: bytes, position: int, version: int) -> int:
    if version >= _PRODUCE_FLEXIBLE_SINCE:
        length, position = read_unsigned_varint(head, position)
        position += max(length - 1, 0)
    elif version >= _TRANSACTIONAL_ID_SINCE:
        (length,) = struct.unpack_from(">h", head, position)
        position += 2 + max(length, 0)
    acks: int = struct.unpack_from(">h", head, position)[0]
    return acks


def _after_tags(data: bytes, position: int) -> int:
    count, position = read_unsigned_varint(data, position)
    for _ in range(count):
        _, position = read_unsigned_varint(data, position)
        size, position = read_unsigned_varint(data, position)
        position += size
        if position > len(data):
            raise IndexError
    return position


def read_answer_head(data: bytearray, start: int) -> tuple[int, int] | None:
    """Bytes of the frame and correlation id of the answer that begins at ``start``; None while
    bytes are missing."""
    if len(data) - start < ANSWER_HEAD_BYTES:
        return None
    size, correlation_id = _ANSWER.unpack_from(data, start)
    return LENGTH_BYTES + size, correlation_id


def answer_frame(head: RequestHead, body: bytes) -> bytes:
    """An answer's frame."""
    tags = b"\x00" * has_tags(head.api_key, head.api_version)
    return _ANSWER.pack(LENGTH_BYTES + len(tags) + len(body), head.correlation_id) + tags + body


def answer_body(head: RequestHead, frame: bytes) -> bytes:
    """The inverse of :func:`answer_frame`, also for a head with tagged fields. Raises
    :class:`DecodeError` or IndexError."""
    position = ANSWER_HEAD_BYTES
    if has_tags(head.api_key, head.api_version):
        position = _after_tags(frame, position)
    return frame[position:]


def has_tags(api_key: int, version: int) -> bool:
    """Whether the answer's head ends in tagged fields (KIP-482); never for ApiVersions."""
    return api_key != API_VERSIONS and version >= flexible_since(api_key)


@cache
def _rows() -> dict[int, tuple[str, int]]:
    from pyrklog.plane.core_plane import api_table

    return {row.key: (row.name, row.flexible_since) for row in api_table()}


def flexible_since(api_key: int) -> int:
    """The first flexible version; that of no version for an unknown API."""
    return _rows().get(api_key, ("", 0x7FFF))[1]


def api_name(api_key: int) -> str:
    return _rows().get(api_key, (str(api_key), 0))[0]
