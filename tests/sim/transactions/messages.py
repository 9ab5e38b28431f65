"""Messages of transactional clients that the data plane serves: Produce and Fetch."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from tests.sim.settings import TOPIC
from tests.sim.transactions.ledger import Record
from tests.support import wire

ACKS_ALL = -1
FLEXIBLE_SINCE = 9
"""Of Produce."""
TRANSACTIONAL, CONTROL = 0x10, 0x20
READ_COMMITTED = 1
BATCH_HEADER_BYTES = 61
ABORT_MARKER = 0
_VALUE = struct.Struct(">ii")


def batch_of(record: Record, producer: tuple[int, int, int], timestamp_ms: int) -> bytes:
    """``producer``: id, epoch and sequence."""
    value = _VALUE.pack(*record)
    return wire.record_batch(
        [value], attributes=TRANSACTIONAL, timestamp_ms=timestamp_ms, producer=producer
    )


# --- Produce ---------------------------------------------------------------------------------


def produce_body(
    version: int, transactional_id: str, index: int, batch: bytes, timeout_ms: int
) -> bytes:
    """Versions 8 and 12."""
    limits = struct.pack(">hi", ACKS_ALL, timeout_ms)
    place = struct.pack(">i", index)
    if version < FLEXIBLE_SINCE:
        partitions = wire.array([place + wire.blob(batch)])
        topics = wire.array([wire.string(TOPIC) + partitions])
        return wire.string(transactional_id) + limits + topics
    partition = place + _unsigned(len(batch) + 1) + batch + NO_TAGS
    topic = _compact(TOPIC) + _unsigned(2) + partition + NO_TAGS
    return _compact(transactional_id) + limits + _unsigned(2) + topic + NO_TAGS


def produced(version: int, answer: bytes) -> tuple[int, int]:
    """Error code and base offset of the one partition."""
    reader = wire.Reader(answer)
    if version < FLEXIBLE_SINCE:
        reader.take(4)
        reader.string()
        reader.take(4)
    else:
        reader.take(1)  # the count of topics: one
        reader.take(_unsigned_from(reader) - 1)
        reader.take(1)
    reader.take(4)
    return reader.number("h"), reader.number("q")


NO_TAGS = b"\x00"


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _compact(text: str) -> bytes:
    return _unsigned(len(text) + 1) + text.encode()


def _unsigned_from(reader: wire.Reader) -> int:
    value = shift = 0
    while True:
        byte = reader.take(1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7


def _signed_from(reader: wire.Reader) -> int:
    value = _unsigned_from(reader)
    return (value >> 1) ^ -(value & 1)


# --- Fetch -----------------------------------------------------------------------------------


class Fetched(NamedTuple):
    error: int
    high_watermark: int
    last_stable: int
    aborted: list[tuple[int, int]]
    """Producer id and first offset of aborted transactions, by offset."""
    records: bytes


def fetch_body(topic: str, index: int, epoch: int, offset: int, wait_ms: int) -> bytes:
    """Version 11, of committed records, without a session."""
    place = struct.pack(">iiqqi", index, epoch, offset, -1, 1 << 20)
    head = struct.pack(">iiiibii", -1, wait_ms, 1, 1 << 20, READ_COMMITTED, 0, -1)
    topics = wire.array([wire.string(topic) + wire.array([place])])
    return head + topics + wire.array([]) + wire.string("")


def fetched(answer: bytes) -> Fetched:
    reader = wire.Reader(answer)
    reader.take(4 + 2 + 4 + 4)
    reader.string()
    reader.take(8)
    error, mark, stable = reader.number("h"), reader.number("q"), reader.number("q")
    reader.take(8)
    aborted = [(reader.number("q"), reader.number("q")) for _ in reader.array()]
    reader.take(4)
    records = reader.blob() or b""
    return Fetched(error, mark, stable, sorted(aborted, key=lambda one: one[1]), records)


class CommittedRecords:
    """Leaves aborted records out, as clients do: an aborted transaction lasts from its first offset
    to its marker."""

    def __init__(self, answer: Fetched, offset: int) -> None:
        self._aborted = list(answer.aborted)
        self._records = answer.records
        self._open: set[int] = set()
        """Producers of aborted transactions."""
        self.next_offset = offset

    def __iter__(self) -> Iterator[Record]:
        """Also moves :attr:`next_offset`."""
        at, first = 0, self.next_offset
        for header in wire.batch_headers(self._records):
            body = self._records[at + BATCH_HEADER_BYTES : at + 12 + header.length]
            at += 12 + header.length
            last = header.base_offset + header.last_offset_delta
            while self._aborted and self._aborted[0][1] <= last:
                self._open.add(self._aborted.pop(0)[0])
            is_new = last >= first
            if header.attributes & CONTROL:
                if _key_and_value(body)[0][2:4] == struct.pack(">h", ABORT_MARKER):
                    self._open.discard(header.producer_id)
            elif is_new and self._counts(header):
                yield Record(*_VALUE.unpack(_key_and_value(body)[1]))
            self.next_offset = max(self.next_offset, last + 1)

    def _counts(self, header: wire.BatchHeader) -> bool:
        is_transactional = header.attributes & TRANSACTIONAL
        return bool(is_transactional) and header.producer_id not in self._open


def _key_and_value(body: bytes) -> tuple[bytes, bytes]:
    """Of a batch's first record."""
    reader = wire.Reader(body)
    _length = _signed_from(reader)
    reader.take(1)
    _times = _signed_from(reader), _signed_from(reader)
    return tuple(reader.take(max(0, _signed_from(reader))) for _ in range(2))  # type: ignore[return-value]
