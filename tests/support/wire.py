"""Kafka's protocol by hand, for requests that no sane client sends. Big-endian."""

import socket
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tests.support.clock import START_MS
from tests.support.waiting import wait_until

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS = 0, 1, 2, 3, 18, 19

NO_PRODUCER = (-1, -1, -1)
_BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")


class ConnectionClosed(Exception):
    """The peer closed the connection within a reply."""


# --- primitives ----------------------------------------------------------------------------------


def string(value: str | None) -> bytes:
    """A nullable string with a 2-byte length."""
    if value is None:
        return struct.pack(">h", -1)
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def blob(value: bytes | None) -> bytes:
    """Nullable bytes with a 4-byte length."""
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def array(items: Sequence[bytes]) -> bytes:
    """An array of encoded items with a 4-byte count."""
    return struct.pack(">i", len(items)) + b"".join(items)


def varint(value: int) -> bytes:
    """A zigzag-encoded signed variable-length integer, as records use it."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes; ValueError if there are fewer."""
        if count < 0 or self.at + count > len(self.data):
            raise ValueError(f"{count} bytes wanted at {self.at} of {len(self.data)}")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, code: str) -> int:
        """One integer by its ``struct`` code: b, h, i, q."""
        value: int
        (value,) = struct.unpack(f">{code}", self.take(struct.calcsize(f">{code}")))
        return value

    def string(self) -> str | None:
        length = self.number("h")
        return None if length < 0 else self.take(length).decode()

    def blob(self) -> bytes | None:
        length = self.number("i")
        return None if length < 0 else self.take(length)

    def array(self) -> Iterator[int]:
        """Counts through an array's items; a null array has none."""
        yield from range(self.number("i"))


# --- connections ---------------------------------------------------------------------------------


class Connection:
    """A blocking connection that sends exactly the given bytes."""

    def __init__(self, bootstrap: str, timeout_s: float = 20.0) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self._correlation = 0

    def send_frame(self, payload: bytes) -> None:
        """One frame: the 4-byte length, then the payload."""
        self.socket.sendall(struct.pack(">i", len(payload)) + payload)

    def read_frame(self) -> bytes:
        """The payload of the next frame; ConnectionClosed at the end of the stream."""
        (length,) = struct.unpack(">i", self._read(4))
        return self._read(length)

    def request(self, api_key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
        """Sends a request; returns the reply's body."""
        self._correlation += 1
        self.send_frame(header(api_key, version, self._correlation, flexible=flexible) + body)
        reply = Reader(self.read_frame())
        assert reply.number("i") == self._correlation
        # ApiVersions always has the old response header, so that anyone can read its answer.
        return reply.data[5:] if flexible and api_key != API_VERSIONS else reply.data[4:]

    def closed_by_peer(self) -> bool:
        """Waits until the peer closes the connection; False if it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self.socket.recv(min(count - len(parts), 1 << 20))
            if not part:
                raise ConnectionClosed(f"{len(parts)} of {count} bytes arrived")
            parts += part
        return bytes(parts)


def header(
    api_key: int,
    version: int,
    correlation: int,
    *,
    client_id: str | None = "raw",
    flexible: bool = False,
) -> bytes:
    """A request header, version 1 or (flexible) 2."""
    head = struct.pack(">hhi", api_key, version, correlation) + string(client_id)
    return head + b"\x00" if flexible else head


# --- record batches ------------------------------------------------------------------------------


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC_TABLE = _crc_table()


def record(offset_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    """One record without headers, at the batch's base timestamp."""
    body = b"\x00" + varint(0) + varint(offset_delta)
    for part in (key, value):
        body += varint(-1) if part is None else varint(len(part)) + part
    body += varint(0)
    return varint(len(body)) + body


def record_batch(
    values: Sequence[bytes],
    *,
    base_offset: int = 0,
    magic: int = 2,
    attributes: int = 0,
    timestamp_ms: int = START_MS,
    max_timestamp_ms: int | None = None,
    producer: tuple[int, int, int] = NO_PRODUCER,
    count: int | None = None,
    last_offset_delta: int | None = None,
    payload: bytes | None = None,
    crc: int | None = None,
    length: int | None = None,
) -> bytes:
    """A record batch of format 2; arguments other than None replace the true values.

    ``producer`` is (id, epoch, base sequence); ``payload`` the bytes after the header.
    """
    if payload is None:
        payload = b"".join(record(delta, None, value) for delta, value in enumerate(values))
    tail = struct.pack(
        ">hiqqqhii",
        attributes,
        len(values) - 1 if last_offset_delta is None else last_offset_delta,
        timestamp_ms,
        timestamp_ms if max_timestamp_ms is None else max_timestamp_ms,
        *producer,
        len(values) if count is None else count,
    )
    tail += payload
    checksum = crc32c(tail) if crc is None else crc
    size = 9 + len(tail) if length is None else length
    return struct.pack(">qiibI", base_offset, size, -1, magic, checksum) + tail


_OLD_MESSAGE = struct.pack(">bbq", 1, 0, START_MS) + struct.pack(">ii", -1, 1) + b"x"
OLD_SET = (
    struct.pack(">qi", 0, 4 + len(_OLD_MESSAGE))
    + struct.pack(">I", zlib.crc32(_OLD_MESSAGE))
    + _OLD_MESSAGE
)
"""A message set of format 1 with one message."""


@dataclass(frozen=True)
class BatchHeader:
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def batch_headers(records: bytes) -> list[BatchHeader]:
    """The headers of all whole batches in ``records``."""
    found = []
    at = 0
    while at + _BATCH_HEADER.size <= len(records):
        one = BatchHeader(*_BATCH_HEADER.unpack_from(records, at))
        at += 12 + one.length
        if at <= len(records):
            found.append(one)
    return found


# --- requests ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Produced:
    error: int
    base_offset: int


@dataclass(frozen=True)
class Fetched:
    error: int
    high_watermark: int
    records: bytes


def produce_body(
    topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1, timeout_ms: int = 5000
) -> bytes:
    """A Produce request of versions 3 to 8 for one partition."""
    partitions = array([struct.pack(">i", partition) + blob(records)])
    return string(None) + struct.pack(">hi", acks, timeout_ms) + array([string(topic) + partitions])


def produce(
    connection: Connection,
    topic: str,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
) -> Produced:
    """Produce version 7 to one partition."""
    body = produce_body(topic, records, partition=partition, acks=acks)
    reply = Reader(connection.request(PRODUCE, 7, body))
    assert reply.number("i") == 1
    assert reply.string() == topic
    assert reply.number("i") == 1
    assert reply.number("i") == partition
    return Produced(reply.number("h"), reply.number("q"))


def fetch(
    connection: Connection,
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
) -> Fetched:
    """Fetch version 10, without a session, from one partition."""
    place = struct.pack(">iiqqi", partition, -1, offset, -1, max_bytes)
    body = struct.pack(">iiiibii", -1, max_wait_ms, 1, max_bytes, 0, 0, -1)
    body += array([string(topic) + array([place])]) + array([])
    reply = Reader(connection.request(FETCH, 10, body))
    reply.take(4)  # throttle time
    assert reply.number("h") == 0
    reply.take(4)  # no session
    assert reply.number("i") == 1
    assert reply.string() == topic
    assert reply.number("i") == 1
    assert reply.number("i") == partition
    error, high_watermark = reply.number("h"), reply.number("q")
    reply.take(16)  # last stable offset, log start offset
    for _ in reply.array():
        reply.take(16)  # an aborted transaction
    return Fetched(error, high_watermark, reply.blob() or b"")


def create_topic(
    connection: Connection,
    topic: str,
    partitions: int = 1,
    options: Mapping[str, str] | None = None,
) -> int:
    """CreateTopics version 2. Returns the topic's error code once every partition has a leader."""
    settings = [string(name) + string(value) for name, value in (options or {}).items()]
    one = string(topic) + struct.pack(">ih", partitions, 1) + array([]) + array(settings)
    body = array([one]) + struct.pack(">i?", 10_000, False)
    reply = Reader(connection.request(CREATE_TOPICS, 2, body))
    reply.take(4)  # throttle time
    assert reply.number("i") == 1
    assert reply.string() == topic
    error = reply.number("h")
    for partition in range(partitions if error == 0 else 0):
        wait_until_led(connection, topic, partition)
    return error


def wait_until_led(connection: Connection, topic: str, partition: int = 0) -> None:
    """Polls until the partition has a leader, a moment after its creation or a start."""

    def is_led() -> bool:
        answer = fetch(connection, topic, 0, partition=partition, max_wait_ms=0)
        return answer.error not in (3, 6)

    wait_until(is_led, f"{topic}-{partition} has no leader")


def fetch_batches(bootstrap: str, topic: str, partition: int = 0) -> list[BatchHeader]:
    found: list[BatchHeader] = []
    with Connection(bootstrap) as connection:
        while True:
            offset = found[-1].base_offset + found[-1].last_offset_delta + 1 if found else 0
            answer = fetch(connection, topic, offset, partition=partition)
            assert answer.error == 0, answer.error
            if offset >= answer.high_watermark:
                return found
            found += batch_headers(answer.records)
