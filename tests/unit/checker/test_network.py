from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from pyrklog.testing.broker import free_port
from tests.support.faults.network import UNKNOWN, ZOOKEEPER, Network

SILENCE_S = 0.2


class Peer:
    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(10)
        self.port: int = self.listener.getsockname()[1]

    def accept(self) -> socket.socket:
        taken, _ = self.listener.accept()
        taken.settimeout(10)
        return taken


@pytest.fixture
def network() -> Iterator[Network]:
    running = Network()
    yield running
    running.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    running = Peer()
    yield running
    running.listener.close()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def request(client_id: bytes) -> bytes:
    body = struct.pack(">hhih", 1, 17, 7, len(client_id)) + client_id + b"rest"
    return struct.pack(">i", len(body)) + body


def take(source: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        chunk = source.recv(count - len(found))
        assert chunk, f"it ended after {found!r}"
        found += chunk
    return found


def is_silent(source: socket.socket) -> bool:
    source.settimeout(SILENCE_S)
    try:
        return not source.recv(1)
    except TimeoutError:
        return True
    finally:
        source.settimeout(10)


def test_cut_broker_receives_nothing_until_it_is_joined(network: Network, peer: Peer) -> None:
    port = free_port()
    network.gate(UNKNOWN, 3, port, peer.port)
    with (
        connect(port) as one,
        peer.accept() as one_far,
        connect(port) as two,
        peer.accept() as two_far,
    ):
        for near, far, name in (
            (one, one_far, b"broker-1-fetcher-0"),
            (two, two_far, b"controller-2"),
        ):
            near.sendall(request(name))
            assert take(far, len(request(name))) == request(name)
        network.cut([(1, 3)])
        one.sendall(b"to")
        one_far.sendall(b"from")
        two.sendall(b"on")
        assert take(two_far, 2) == b"on"
        assert is_silent(one_far)
        assert is_silent(one)
        network.join([(1, 3)])
        assert take(one_far, 2) == b"to"
        assert take(one, 4) == b"from"


def test_new_connection_of_a_cut_broker_stays_silent_until_joined(
    network: Network, peer: Peer
) -> None:
    port = free_port()
    network.gate(UNKNOWN, 3, port, peer.port)
    network.cut([(1, 3)])
    with connect(port) as near, peer.accept() as far:
        for byte in request(b"broker-1"):
            near.sendall(bytes([byte]))
        assert is_silent(far)
        network.join([(1, 3)])
        assert take(far, len(request(b"broker-1"))) == request(b"broker-1")


def test_reset_ends_the_connections_of_a_pair(network: Network, peer: Peer) -> None:
    port = free_port()
    network.gate(2, ZOOKEEPER, port, peer.port)
    with connect(port) as near, peer.accept() as far:
        near.sendall(b"x")
        assert take(far, 1) == b"x"
        network.reset([(2, ZOOKEEPER)])
        assert near.recv(1) == b""
    with connect(port) as near, peer.accept() as far:
        near.sendall(b"y")
        assert take(far, 1) == b"y"


def test_a_target_that_is_gone_refuses(network: Network, peer: Peer) -> None:
    port = free_port()
    network.gate(UNKNOWN, 3, port, peer.port)
    network.refuse(3)
    with pytest.raises(ConnectionRefusedError):
        connect(port)
    network.accept(3)
    with connect(port) as near, peer.accept():
        near.sendall(b"x")


def test_connection_that_ends_with_data_pending_is_dropped(network: Network, peer: Peer) -> None:
    """Readable and writable in one turn: the read ends the connection before the write."""
    port = free_port()
    network.gate(2, ZOOKEEPER, port, peer.port)
    with connect(port) as near, peer.accept() as far:
        far.settimeout(SILENCE_S)
        with pytest.raises(TimeoutError):
            far.sendall(bytes(64 << 20))  # until nothing fits anywhere
        network.cut([(2, ZOOKEEPER)])
        near.settimeout(SILENCE_S)
        with pytest.raises(TimeoutError):
            take(near, 64 << 20)
        near.shutdown(socket.SHUT_WR)
        network.join([(2, ZOOKEEPER)])
    with connect(port) as near, peer.accept() as far:
        near.sendall(b"x")
        assert take(far, 1) == b"x"
