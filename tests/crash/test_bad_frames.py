"""Frames that no client sends: each gets the protocol's answer, or its connection is closed.

The broker keeps serving others, and its memory stays bounded.
"""

import random
import struct
from collections.abc import Iterator

import pytest

from pyrklog.testing import TestBroker
from tests.support.wire import (
    API_VERSIONS,
    CREATE_TOPICS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    Connection,
    ConnectionClosed,
    Reader,
    create_topic,
    fetch,
    header,
    produce,
    record_batch,
    string,
)

RSS_GROWTH_MAX_BYTES = 64 << 20
UNSUPPORTED_VERSION = 35
HUGE = 0x7FFFFFFF


@pytest.fixture(autouse=True)
def _unharmed(request: pytest.FixtureRequest, bootstrap: str, topic: str) -> Iterator[None]:
    """After every test the same process still serves, and has not grown."""
    if request.config.getoption("--against"):
        yield
        return
    broker: TestBroker = request.getfixturevalue("broker")
    name = f"{topic}-before"
    with Connection(bootstrap) as connection:
        assert create_topic(connection, name) == 0
        assert produce(connection, name, record_batch([b"before"])).error == 0
        pid, rss_bytes = broker.pid, broker.rss_bytes()
        yield
        assert produce(connection, name, record_batch([b"after"])).base_offset == 1
        assert len(fetch(connection, name, 0).records) > 0
        assert broker.running
        assert broker.pid == pid
        assert broker.rss_bytes() - rss_bytes < RSS_GROWTH_MAX_BYTES


def closes(connection: Connection) -> bool:
    """The peer closes the connection without a reply."""
    return connection.closed_by_peer()


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(194)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        TLS_HELLO,
        struct.pack(">i", -1),
        struct.pack(">i", -(2**31)),
        struct.pack(">i", HUGE),
        struct.pack(">i", 104_857_601),
        frame(b""),
        frame(b"\x00"),
        frame(header(METADATA, 1, 1)[:7]),
        frame(struct.pack(">hhih", METADATA, 1, 1, 30_000) + b"short"),
        frame(struct.pack(">hhih", METADATA, 1, 1, -2)),
        frame(header(METADATA, 9, 1) + b"\xff\xff\xff\xff\xff\xff"),
        frame(header(-1, 0, 1)),
        frame(header(999, 0, 1)),
        frame(header(METADATA, 99, 1)),
        frame(header(METADATA, -1, 1)),
        frame(header(FETCH, 3, 1)),
        frame(header(CREATE_TOPICS, 99, 1)),
    ],
    ids=lambda data: data[:24].hex(),
)
def test_a_connection_that_talks_nonsense_is_closed(bootstrap: str, data: bytes) -> None:
    with Connection(bootstrap) as connection:
        connection.socket.sendall(data)
        assert closes(connection)


def test_random_bytes(bootstrap: str) -> None:
    chance = random.Random(7)
    for _ in range(100):
        with Connection(bootstrap) as connection:
            connection.socket.sendall(chance.randbytes(chance.randrange(1, 3_000)))


# (API, version, the fixed fields before the first array); the array's count is false.
COUNTED = [
    (PRODUCE, 3, string(None) + struct.pack(">hi", -1, 1000)),
    (PRODUCE, 8, string(None) + struct.pack(">hi", -1, 1000)),
    (FETCH, 4, struct.pack(">iiiib", -1, 0, 1, 1000, 0)),
    (FETCH, 11, struct.pack(">iiiibii", -1, 0, 1, 1000, 0, 0, -1)),
    (LIST_OFFSETS, 2, struct.pack(">ib", -1, 0)),
    (METADATA, 1, b""),
    (METADATA, 8, b""),
    (CREATE_TOPICS, 2, b""),
    (20, 3, b""),  # DeleteTopics
    (21, 1, b""),  # DeleteRecords
    (32, 1, b""),  # DescribeConfigs
    (33, 1, b""),  # AlterConfigs
    (37, 1, b""),  # CreatePartitions
]


@pytest.mark.parametrize("count", [HUGE, 1_000_000, 1, -2], ids=["huge", "large", "one", "minus2"])
@pytest.mark.parametrize(("api", "version", "start"), COUNTED)
def test_a_count_beyond_the_frame_allocates_nothing(
    bootstrap: str, api: int, version: int, start: bytes, count: int
) -> None:
    with Connection(bootstrap) as connection:
        body = start + struct.pack(">i", count)
        connection.send_frame(header(api, version, 1) + body)
        # A negative count may pass for a null array; any other count exceeds the frame.
        assert closes(connection) or count < 0


@pytest.mark.parametrize(
    ("api", "version", "start"),
    [
        (METADATA, 12, b""),
        (PRODUCE, 11, b"\x00" + struct.pack(">hi", -1, 1000)),
        (FETCH, 13, struct.pack(">iiiibii", -1, 0, 1, 1000, 0, 0, -1)),
        (LIST_OFFSETS, 7, struct.pack(">ib", -1, 0)),
        (CREATE_TOPICS, 7, b""),
    ],
)
@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x0f", b"\xff" * 10, b"\x80", b"\x02"])
def test_a_compact_count_beyond_the_frame(
    bootstrap: str, api: int, version: int, start: bytes, count: bytes
) -> None:
    with Connection(bootstrap) as connection:
        connection.send_frame(header(api, version, 1, flexible=True) + start + count)
        assert closes(connection)


def test_unknown_versions_of_api_versions_are_told_the_known_ones(bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        for version in (5, 99, 32_767):
            reply = Reader(connection.request(API_VERSIONS, version, b"\x01x\x01x\x00"))
            assert reply.number("h") == UNSUPPORTED_VERSION
            found = {
                reply.number("h"): (reply.number("h"), reply.number("h")) for _ in reply.array()
            }
            assert found[API_VERSIONS][1] >= 3
        assert Reader(connection.request(API_VERSIONS, 0, b"")).number("h") == 0


def test_frames_in_pieces(bootstrap: str) -> None:
    """A frame may arrive byte by byte, or many at once; replies keep the order of requests."""
    request = frame(header(API_VERSIONS, 0, 77))
    with Connection(bootstrap) as connection:
        for at in range(len(request)):
            connection.socket.sendall(request[at : at + 1])
        assert struct.unpack(">i", connection.read_frame()[:4]) == (77,)
        numbers = range(500)
        connection.socket.sendall(
            b"".join(frame(header(API_VERSIONS, 0, number)) for number in numbers)
        )
        replies = [struct.unpack(">i", connection.read_frame()[:4])[0] for _ in numbers]
        assert replies == list(numbers)


def test_a_frame_that_never_ends_reserves_nothing(bootstrap: str) -> None:
    """A frame announced with 100 MB costs the broker only what was sent."""
    connections = [Connection(bootstrap) for _ in range(100)]
    for connection in connections:
        connection.socket.sendall(
            struct.pack(">i", 100_000_000) + header(PRODUCE, 7, 1) + bytes(999)
        )
    with Connection(bootstrap) as connection:
        assert Reader(connection.request(API_VERSIONS, 0, b"")).number("h") == 0
    for connection in connections:
        connection.close()


def test_a_connection_cut_in_mid_frame(bootstrap: str, topic: str) -> None:
    batch = record_batch([b"x" * 100_000])
    with Connection(bootstrap) as connection:
        assert create_topic(connection, topic) == 0
        assert produce(connection, topic, batch).error == 0
    for kept in (5, 40, 1_000, 99_000):
        with Connection(bootstrap) as connection:
            connection.socket.sendall(
                (struct.pack(">i", 100_200) + header(PRODUCE, 7, 1) + batch)[:kept]
            )
    with Connection(bootstrap) as connection:
        assert fetch(connection, topic, 0).high_watermark == 1


def test_a_reader_that_never_reads(bootstrap: str, topic: str) -> None:
    """Replies wait in the kernel and with the requester, not in the broker's memory."""
    with Connection(bootstrap) as connection:
        assert create_topic(connection, topic) == 0
        for _ in range(8):
            assert produce(connection, topic, record_batch([bytes(900_000)])).error == 0
    idle = [Connection(bootstrap) for _ in range(20)]
    place = string(topic) + struct.pack(">iiqi", 1, 0, 0, 10 << 20)
    body = struct.pack(">iiiib", -1, 0, 1, 50 << 20, 0) + struct.pack(">i", 1) + place
    for connection in idle:
        for number in range(10):
            connection.send_frame(header(FETCH, 4, number) + body)
    with Connection(bootstrap) as connection:
        assert fetch(connection, topic, 0).high_watermark == 8
    for connection in idle:
        connection.close()


def test_many_connections_come_and_go(bootstrap: str) -> None:
    for _ in range(5):
        connections = [Connection(bootstrap) for _ in range(200)]
        for connection in connections:
            connection.send_frame(header(API_VERSIONS, 0, 1))
        for connection in connections[::2]:
            assert connection.read_frame()[:4] == struct.pack(">i", 1)
        for connection in connections:
            connection.close()


def test_a_reply_is_never_cut(bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        connection.send_frame(header(999, 0, 1))
        with pytest.raises((ConnectionClosed, ConnectionError)):
            connection.read_frame()
