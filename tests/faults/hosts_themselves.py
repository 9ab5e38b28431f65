"""Tests of the cuts of ``tests/support/faults/hosts.py``; ``test_hosts.py`` runs them in a lab."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.faults.hosts import HERE, Hosts, address
from tests.support.waiting import wait_until

ONE = 1
PORT = 9_000
SILENCE_S = 0.3
PATIENCE_S = 60.0
ECHO = f"""
import socket
server = socket.create_server(("{address(ONE)}", {PORT}))
while True:
    taken, _ = server.accept()
    try:
        while data := taken.recv(100):
            taken.sendall(data)
    except ConnectionResetError:
        pass
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    made = Hosts([ONE])
    yield made
    made.close()


@pytest.fixture
def peer(hosts: Hosts) -> Iterator[socket.socket]:
    process = subprocess.Popen([*hosts.wrapper(ONE), sys.executable, "-c", ECHO])
    found: list[socket.socket] = []

    def is_there() -> bool:
        try:
            found.append(socket.create_connection((address(ONE), PORT), timeout=PATIENCE_S))
        except ConnectionRefusedError:
            return False
        return True

    wait_until(is_there, "nobody listens")
    yield found[0]
    found[0].close()
    process.kill()
    process.wait()


def is_silent(peer: socket.socket) -> bool:
    peer.settimeout(SILENCE_S)
    try:
        peer.recv(1)
    except TimeoutError:
        return True
    finally:
        peer.settimeout(PATIENCE_S)
    return False


@pytest.mark.parametrize("pair", [(HERE, ONE), (ONE, HERE)])
def test_cut_pair_is_silent_until_joined(
    hosts: Hosts, peer: socket.socket, pair: tuple[int, int]
) -> None:
    peer.sendall(b"a")
    assert peer.recv(1) == b"a"
    hosts.cut([pair])
    peer.sendall(b"b")
    assert is_silent(peer)
    with pytest.raises(TimeoutError):
        socket.create_connection((address(ONE), PORT), timeout=SILENCE_S)
    hosts.join([pair])
    assert peer.recv(1) == b"b"


def test_reset_connection_breaks(hosts: Hosts, peer: socket.socket) -> None:
    peer.sendall(b"a")
    assert peer.recv(1) == b"a"
    hosts.reset([(ONE, HERE)])
    with pytest.raises(ConnectionResetError):
        peer.recv(1)
