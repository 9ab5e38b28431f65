"""Micro-benchmarks of the seam: `pytest benches/test_seam.py`; see benchmark-method.md."""

import resource
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pytest_benchmark.fixture import BenchmarkFixture

from benches import spent
from benches.brokers import BROKERS, ROOT, Broker

pytestmark = pytest.mark.timeout(600)

EVENTS = 64
TOPICS, PARTITIONS_OF_EACH = 100, 100
# A partition: error, index, leader, epoch, a replica, it in sync, none offline, no tags.
METADATA_BYTES_MIN = TOPICS * PARTITIONS_OF_EACH * (2 + 4 + 4 + 4 + 5 + 5 + 1 + 1)

# Request header v2 (key, version, correlation id, no client id, no tags), then the body.
# ListPartitionReassignments v0, which Python answers: timeout, no topics = all, no tags.
REASSIGNMENTS = struct.pack(">hhihB", 46, 0, 1, -1, 0) + struct.pack(">iBB", 1_000, 0, 0)
# Metadata v12, which Rust answers: all topics, no creation, no operations, no tags.
METADATA = struct.pack(">hhihB", 3, 12, 1, -1, 0) + struct.pack(">BBBB", 0, 0, 0, 0)


def send(connection: socket.socket, request: bytes) -> None:
    connection.sendall(struct.pack(">i", len(request)) + request)


def receive(connection: socket.socket) -> bytes:
    reply = bytearray()
    while len(reply) < 4 or len(reply) < 4 + struct.unpack_from(">i", reply)[0]:
        part = connection.recv(1 << 20)
        assert part, "the broker closed the connection"
        reply += part
    assert struct.unpack_from(">i", reply, 4) == (1,), "not the answer to this request"
    return bytes(reply[4:])


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


@pytest.fixture(scope="module")
def seam(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a plane whose control plane answers at once; a process of its own, so that its
    GIL is not shared with the clients."""
    folder = tmp_path_factory.mktemp("seam") / "logs"
    command = [sys.executable, "-m", "benches.seam_server", str(folder)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_round_trip_of_a_control_request(seam: int, benchmark: BenchmarkFixture) -> None:
    """Socket, Rust, queue, Trio, Python, Rust, socket: one request at a time."""
    with connect(seam) as connection:

        def round_trip() -> bytes:
            send(connection, REASSIGNMENTS)
            return receive(connection)

        assert benchmark(round_trip)[4:].startswith(bytes(7))


def test_batches_of_events(seam: int, benchmark: BenchmarkFixture) -> None:
    """64 requests that are there at the same time, drained in batches; a round is all of them."""
    connections = [connect(seam) for _ in range(EVENTS)]

    def batch() -> int:
        for connection in connections:
            send(connection, REASSIGNMENTS)
        return sum(bool(receive(connection)) for connection in connections)

    try:
        assert benchmark(batch) == EVENTS
    finally:
        for connection in connections:
            connection.close()
    if benchmark.stats:
        benchmark.extra_info["events_per_s"] = round(EVENTS / benchmark.stats["median"])


def ask_metadata(connection: socket.socket) -> bytes:
    send(connection, METADATA)
    return receive(connection)


def wait_for_all_partitions(broker: Broker) -> None:
    """A KRaft broker acknowledges topics before it has built them itself."""
    deadline = time.monotonic() + 300
    with connect(broker.port) as connection:
        while len(ask_metadata(connection)) < METADATA_BYTES_MIN:
            assert time.monotonic() < deadline, "the partitions did not appear"
            time.sleep(0.5)


@pytest.fixture(params=["kafka", "pyrklog"])
def large(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A broker with 10,000 partitions."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # Kafka holds a file a partition open
    broker = BROKERS[request.param](tmp_path / request.param)
    try:
        broker.prepare()
        broker.start(None)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        names = [f"topic-{number:03}" for number in range(TOPICS)]
        for first in range(0, TOPICS, 10):
            topics = [NewTopic(name, PARTITIONS_OF_EACH, 1) for name in names[first : first + 10]]
            for future in admin.create_topics(topics, operation_timeout=60).values():
                future.result(timeout=120)
        del admin
        wait_for_all_partitions(broker)
        yield broker
        broker.stop()
    finally:
        broker.remove()
        spent.sweep()


def test_metadata_of_10_000_partitions(large: Broker, benchmark: BenchmarkFixture) -> None:
    """All topics, as a client asks that subscribes to a pattern; beside Kafka's."""
    benchmark.group = "metadata of 10,000 partitions"
    with connect(large.port) as connection:
        assert len(benchmark(ask_metadata, connection)) >= METADATA_BYTES_MIN
    benchmark.extra_info["broker"] = large.name
