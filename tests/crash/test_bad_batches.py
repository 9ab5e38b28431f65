"""Record batches that Kafka refuses: the same error code here, and the connection lives.

The codes are those of Apache Kafka 3.9.1 (run these tests with ``--against``). Tests say where we
differ on purpose.
"""

import gzip
import struct
import time
import zlib
from collections.abc import Iterator

import pytest
import zstandard

from tests.support.wire import (
    FETCH,
    Connection,
    Reader,
    create_topic,
    fetch,
    produce,
    produce_body,
    record,
    record_batch,
    string,
    varint,
)

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC = 1, 3
MESSAGE_TOO_LARGE, INVALID_REQUIRED_ACKS = 10, 21
INVALID_TIMESTAMP = 32
OUT_OF_ORDER_SEQUENCE, INVALID_PRODUCER_EPOCH, INVALID_RECORD = 45, 47, 87

GZIP, ZSTD = 1, 4


@pytest.fixture
def connection(bootstrap: str, topic: str) -> Iterator[Connection]:
    with Connection(bootstrap) as one:
        assert create_topic(one, topic) == 0
        yield one


GOOD = record_batch([b"good"])
THREE = [b"a", b"b", b"c"]


def test_a_null_batch(connection: Connection, topic: str) -> None:
    """Kafka never answers this one."""
    assert produce(connection, topic, None).error != 0
    assert produce(connection, topic, GOOD).base_offset == 0


def test_timestamps_out_of_bounds(bootstrap: str, topic: str) -> None:
    day_ms = 86_400_000
    now_ms = time.time_ns() // 1_000_000
    options = {"message.timestamp.after.max.ms": str(day_ms)}
    with Connection(bootstrap) as connection:
        assert create_topic(connection, topic, options=options) == 0
        future = record_batch([b"x"], timestamp_ms=now_ms + 2 * day_ms)
        assert produce(connection, topic, future).error == INVALID_TIMESTAMP
        assert produce(connection, topic, record_batch([b"x"], timestamp_ms=now_ms)).error == 0


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_a_batch_that_expands_without_bound(connection: Connection, topic: str, codec: int) -> None:
    """Kilobytes that expand to half a gigabyte are refused early; Kafka takes them."""
    size = 512 << 20
    body = b"\x00" + varint(0) + varint(0) + varint(-1) + varint(size)
    start = varint(len(body) + size + 1) + body
    zeros = bytes(1 << 20)
    if codec == GZIP:
        squeeze = zlib.compressobj(9, wbits=31)
        parts = [squeeze.compress(start), *(squeeze.compress(zeros) for _ in range(512))]
        payload = b"".join([*parts, squeeze.compress(b"\x00"), squeeze.flush()])
    else:
        squeezer = zstandard.ZstdCompressor(9).compressobj()
        made = [squeezer.compress(start), *(squeezer.compress(zeros) for _ in range(512))]
        payload = b"".join([*made, squeezer.compress(b"\x00"), squeezer.flush()])
    assert len(payload) < 900_000
    batch = record_batch([b""], attributes=codec, payload=payload)
    assert produce(connection, topic, batch).error != 0
    assert produce(connection, topic, GOOD).base_offset == 0


def test_compressed_batches_are_opened(connection: Connection, topic: str) -> None:
    good = gzip.compress(record(0, None, b"a") + record(1, None, b"b"))
    lying = record_batch(THREE, attributes=GZIP, payload=good)
    assert produce(connection, topic, lying).error == INVALID_RECORD
    true = record_batch([b"a", b"b"], attributes=GZIP, payload=good)
    assert produce(connection, topic, true).error == 0
    assert fetch(connection, topic, 0).high_watermark == 2


def test_sequences(connection: Connection, topic: str) -> None:
    """KIP-98: a gap is refused, a repeated batch gets its first answer, an old epoch is fenced."""
    producer_id = 1_000_001

    def send(sequence: int, epoch: int = 0, count: int = 2) -> tuple[int, int]:
        batch = record_batch([b"x"] * count, producer=(producer_id, epoch, sequence))
        answer = produce(connection, topic, batch)
        return answer.error, answer.base_offset

    assert send(0) == (0, 0)
    assert send(2) == (0, 2)
    assert send(0) == (0, 0), "the duplicate's answer is the original's"
    assert send(2) == (0, 2)
    assert send(5)[0] == OUT_OF_ORDER_SEQUENCE
    assert send(4) == (0, 4)
    assert send(0, epoch=1) == (0, 6)
    assert send(6, epoch=0)[0] == INVALID_PRODUCER_EPOCH
    assert send(3, epoch=2)[0] == OUT_OF_ORDER_SEQUENCE
    assert fetch(connection, topic, 0).high_watermark == 8


def test_five_batches_are_remembered(connection: Connection, topic: str) -> None:
    def send(sequence: int) -> tuple[int, int]:
        batch = record_batch([b"x"], producer=(1_000_002, 0, sequence))
        answer = produce(connection, topic, batch)
        return answer.error, answer.base_offset

    for sequence in range(8):
        assert send(sequence) == (0, sequence)
    for sequence in range(3, 8):
        assert send(sequence) == (0, sequence)
    assert send(1)[0] == OUT_OF_ORDER_SEQUENCE, "older than the five that are kept"


def test_sizes_and_places(connection: Connection, topic: str) -> None:
    assert produce(connection, topic, record_batch([bytes(1_048_600)])).error == MESSAGE_TOO_LARGE
    assert produce(connection, topic, GOOD, partition=1).error == UNKNOWN_TOPIC
    assert produce(connection, topic, GOOD, partition=-1).error == UNKNOWN_TOPIC
    assert produce(connection, topic + "-none", GOOD).error == UNKNOWN_TOPIC
    assert produce(connection, topic, GOOD, acks=2).error == INVALID_REQUIRED_ACKS
    assert produce(connection, topic, GOOD).base_offset == 0

    assert fetch(connection, topic, 2).error == OFFSET_OUT_OF_RANGE
    assert fetch(connection, topic, -1).error == OFFSET_OUT_OF_RANGE
    assert fetch(connection, topic, 0, partition=1).error == UNKNOWN_TOPIC
    assert fetch(connection, topic + "-none", 0).error == UNKNOWN_TOPIC
    assert fetch(connection, topic, 1).records == b""


def test_acks_zero_gets_no_reply_and_closes_on_errors(bootstrap: str, topic: str) -> None:
    with Connection(bootstrap) as connection:
        assert create_topic(connection, topic) == 0
        for number in range(3):
            batch = record_batch([b"%d" % number])
            body = produce_body(topic, batch, acks=0)
            connection.send_frame(struct.pack(">hhi", 0, 7, 1) + string("raw") + body)
        assert produce(connection, topic, GOOD).base_offset == 3, "the first reply is this one's"
        body = produce_body(topic, record_batch([b"x"], crc=1), acks=0)
        connection.send_frame(struct.pack(">hhi", 0, 7, 1) + string("raw") + body)
        assert connection.closed_by_peer()


def test_a_fetch_of_many_partitions_keeps_their_order(bootstrap: str, topic: str) -> None:
    with Connection(bootstrap) as connection:
        assert create_topic(connection, topic, 3) == 0
        for partition in range(3):
            batch = record_batch([b"p%d" % partition])
            assert produce(connection, topic, batch, partition=partition).error == 0
        places = b"".join(struct.pack(">iqi", number, 0, 1000) for number in (2, 0, 1))
        body = struct.pack(">iiiibi", -1, 0, 1, 10_000, 0, 1) + string(topic)
        reply = Reader(connection.request(FETCH, 4, body + struct.pack(">i", 3) + places))
        reply.take(4)
        assert (reply.number("i"), reply.string(), reply.number("i")) == (1, topic, 3)
        seen = []
        for _ in range(3):
            seen.append(reply.number("i"))
            assert reply.number("h") == 0
            reply.take(16)
            assert reply.number("i") <= 0
            assert reply.blob()
        assert seen == [2, 0, 1]
