"""The process that ends a dead broker's session, against a fake ZooKeeper server."""

import json
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyrklog.membership import watchdog
from pyrklog.testing.broker import free_port

SESSION_ID = 0x1000_0000_0000_0007
PASSWORD = bytes(range(16))
PROGRAM = Path(watchdog.__file__)


class Server:
    """Answers connections with a session timeout, 0 for an expired session."""

    def __init__(self, timeout_ms: int, *, hangs_up: int = 0) -> None:
        self._timeout_ms = timeout_ms
        self._hangs_up = hangs_up
        self.closed: list[int] = []
        self.greetings: list[tuple[int, bytes]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                if self._hangs_up:
                    self._hangs_up -= 1
                    continue
                self._converse(connection)

    def _converse(self, connection: socket.socket) -> None:
        _, _, _, session_id, length = struct.unpack_from(">iqiqi", greeting := _frame(connection))
        self.greetings.append((session_id, greeting[28 : 28 + length]))
        answer = struct.pack(">iiqi", 0, self._timeout_ms, session_id, 16) + PASSWORD + b"\0"
        connection.sendall(struct.pack(">i", len(answer)) + answer)
        if self._timeout_ms:
            _, operation = struct.unpack(">ii", _frame(connection))
            self.closed.append(operation)
            connection.sendall(struct.pack(">iiqi", 16, 1, 99, 0))


def _frame(connection: socket.socket) -> bytes:
    (length,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    return connection.recv(length, socket.MSG_WAITALL)


@pytest.fixture
def serving() -> Iterator[Callable[..., Server]]:
    made: list[Server] = []

    def make(*arguments: int, **named: int) -> Server:
        made.append(Server(*arguments, **named))
        return made[-1]

    yield make
    for server in made:
        server.close()


def session(*ports: int, timeout_ms: int = 10_000) -> str:
    told = watchdog.WatchedSession(
        [("127.0.0.1", port) for port in ports], SESSION_ID, PASSWORD.hex(), timeout_ms, None
    )
    return json.dumps(told._asdict()) + "\n"


def watch(told: str) -> int:
    """Passes ``told``, then closes the broker's end of the pipe; returns the watchdog's
    exit code."""
    command = [sys.executable, "-I", "-S", str(PROGRAM)]
    return subprocess.run(command, input=told, text=True, timeout=60, check=False).returncode


def test_watchdog_ends_the_session_of_a_dead_broker(serving: Callable[..., Server]) -> None:
    server = serving(10_000)
    assert watch(session(server.port)) == watchdog.EXIT_ENDED
    assert server.greetings == [(SESSION_ID, PASSWORD)]
    assert server.closed == [-11]


def test_watchdog_ends_the_last_session_it_was_told(serving: Callable[..., Server]) -> None:
    first, second = serving(10_000), serving(10_000)
    assert watch(session(first.port) + session(second.port)) == watchdog.EXIT_ENDED
    assert (first.greetings, second.closed) == ([], [-11])


def test_watchdog_leaves_the_session_alone_after_an_orderly_end(
    serving: Callable[..., Server],
) -> None:
    server = serving(10_000)
    assert watch(session(server.port) + "end\n") == watchdog.EXIT_ENDED
    assert server.greetings == []


def test_watchdog_ends_without_a_session() -> None:
    assert watch("") == watchdog.EXIT_ENDED


def test_watchdog_accepts_a_session_that_has_already_ended(serving: Callable[..., Server]) -> None:
    server = serving(0)
    assert watch(session(server.port)) == watchdog.EXIT_ENDED
    assert (len(server.greetings), server.closed) == (1, [])


def test_watchdog_tries_the_next_server(
    serving: Callable[..., Server],
) -> None:
    server = serving(10_000, hangs_up=2)
    assert watch(session(free_port(), server.port)) == watchdog.EXIT_ENDED
    assert server.closed == [-11]


def test_watchdog_gives_up_after_the_session_timeout() -> None:
    assert watch(session(free_port(), timeout_ms=1)) == watchdog.EXIT_NOT_ENDED
