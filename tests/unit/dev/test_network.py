"""The network between brokers: a cut passes nothing, refuses nothing, and is mended."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pyrklog.dev import processes
from pyrklog.dev.origin import find_origin
from pyrklog.dev.routes import ROUTES_FILE, Route, Routes, applied_revision
from pyrklog.dev.state import Cluster, Node, Place, write_whole
from pyrklog.testing.broker import free_port
from tests.support.waiting import wait_until

QUIET_S = 0.3
"""How long silence is watched."""


class Net:
    """The process, and a server of broker 2 behind one of its ports."""

    def __init__(self, folder: Path) -> None:
        self.place = Place(folder, "net")
        self.place.folder.mkdir()
        self.target, self.port = free_port(), free_port()
        self.server: socket.socket | None = None
        self.opened: list[socket.socket] = []
        self.nodes = [Node("broker", 1), Node("broker", 2)]
        self.place.save(Cluster("net", 19092, self.nodes))
        self.revision = 0
        self._write([])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pyrklog.dev.network", str(self.place.folder)]
        )
        self._until_applied()

    def _write(self, isolated: list[int]) -> None:
        self.revision += 1
        route = Route(self.port, self.target, 2, is_to_zookeeper=False)
        content = msgspec.json.encode(Routes(self.revision, [route], isolated))
        write_whole(self.place.folder / ROUTES_FILE, content)

    def isolate(self, *brokers: int) -> None:
        """Cuts off these brokers, and no others."""
        self._write(list(brokers))
        self.process.send_signal(signal.SIGHUP)
        self._until_applied()

    def _until_applied(self) -> None:
        wait_until(lambda: applied_revision(self.place.folder) == self.revision, "not applied")

    def listen(self) -> None:
        """Broker 2 listens; returns when the network has seen it."""
        self.server = socket.create_server(("127.0.0.1", self.target))
        self.server.settimeout(30)
        wait_until(self.is_open, "nobody listens")

    def is_open(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except ConnectionRefusedError:
            return False
        return True

    def connect(self) -> tuple[socket.socket, socket.socket]:
        near = self.open(b"hello")
        return near, self.accept(b"hello")

    def open(self, greeting: bytes) -> socket.socket:
        """One end, which sends ``greeting``."""
        near = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        self.opened.append(near)
        near.sendall(greeting)
        return near

    def accept(self, greeting: bytes) -> socket.socket:
        """The connection that sends ``greeting``; others were probes."""
        assert self.server is not None
        while True:
            far, _ = self.server.accept()
            far.settimeout(30)
            self.opened.append(far)
            if far.recv(100) == greeting:
                return far
            far.close()

    def claim(self, number: int) -> None:
        """Makes this test that broker's process."""
        for node in self.nodes:
            node.process = processes.identify(os.getpid()) if node.number == number else None
        self.place.save(Cluster("net", 19092, self.nodes))


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    made = Net(tmp_path)
    yield made
    for end in (*made.opened, *([made.server] if made.server is not None else [])):
        end.close()
    made.process.kill()
    made.process.wait()


def comes_nothing(end: socket.socket) -> bool:
    end.settimeout(QUIET_S)
    try:
        end.recv(1)
    except TimeoutError:
        return True
    else:
        return False
    finally:
        end.settimeout(30)


def ends(end: socket.socket) -> bool:
    """Whether the connection ends: in order, or by a reset if bytes were under way."""
    try:
        return end.recv(1) == b""
    except ConnectionResetError:
        return True


def test_bytes_and_ends_pass_both_ways(net: Net) -> None:
    net.listen()
    near, far = net.connect()
    blob = os.urandom(3_000_000)
    far.sendall(b"x")
    assert near.recv(10) == b"x"
    near.sendall(blob[:1_000_000])
    near.shutdown(socket.SHUT_WR)
    received = b""
    while chunk := far.recv(1 << 20):
        received += chunk
    assert received == blob[:1_000_000]
    far.sendall(b"after the other's end")
    assert near.recv(100) == b"after the other's end"
    far.close()
    assert near.recv(1) == b""


def test_connection_without_a_listener_is_refused(net: Net) -> None:
    assert not net.is_open()
    net.listen()
    near, far = net.connect()
    assert net.server is not None
    net.server.close()
    far.close()
    assert near.recv(1) == b""
    wait_until(lambda: not net.is_open(), "somebody still listens")
    net.listen()
    net.connect()


def test_isolated_broker_receives_neither_bytes_nor_ends(net: Net) -> None:
    net.listen()
    near, far = net.connect()
    net.isolate(2)
    near.sendall(b"to")
    far.sendall(b"fro")
    assert comes_nothing(far)
    assert comes_nothing(near)
    # A new connection is neither refused nor answered.
    later = net.open(b"later")
    assert comes_nothing(later)
    far.close()
    assert comes_nothing(near)
    net.isolate()
    assert near.recv(10) == b"fro"
    net.accept(b"later").sendall(b"there")
    assert later.recv(10) == b"there"


def test_isolated_broker_reaches_nobody_and_others_still_connect(net: Net) -> None:
    net.listen()
    net.claim(1)
    near, far = net.connect()
    net.claim(2)  # new connections belong to another broker
    other, other_far = net.connect()
    net.isolate(1)
    near.sendall(b"x")
    assert comes_nothing(far)
    other.sendall(b"y")
    assert other_far.recv(10) == b"y"
    net.isolate()
    assert far.recv(10) == b"x"


def test_end_of_an_isolated_listener_shows_after_the_isolation(net: Net) -> None:
    net.listen()
    near, far = net.connect()
    net.isolate(2)
    assert net.server is not None
    net.server.close()
    far.close()
    assert net.is_open(), "a cable that was pulled refuses nothing"
    assert comes_nothing(near)
    net.isolate()
    assert ends(near)
    wait_until(lambda: not net.is_open(), "somebody still listens")


def test_origins_are_found_by_the_sockets_of_processes() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as near,
    ):
        far, other = server.accept()
        own = far.getsockname()
        assert other == near.getsockname()
        assert find_origin(own, other, {"init": 1, "me": os.getpid()}) == "me"
        assert find_origin(own, other, {"parent": os.getppid()}) is None
        assert find_origin(own, other, {"gone": 2**22 + 1}) is None
        assert find_origin(own, ("127.0.0.1", 1), {"me": os.getpid()}) is None
        far.close()
