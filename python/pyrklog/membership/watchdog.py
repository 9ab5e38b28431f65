"""A small process beside a broker; it ends the broker's ZooKeeper session when the broker is gone.

Without it a dead broker seems alive until its session expires. The proof of death is a pipe: the
broker holds the other end, and the kernel closes it when the broker's last thread has ended. A
stopped or hanging broker keeps it open.

Started by :mod:`.guard` as a script without pyrklog and kazoo: it needs little memory and loads
nothing late. It reads lines from standard input:

- a JSON object: the current session (``WatchedSession``);
- ``end``: the broker ends cleanly and closes its session itself.

ZooKeeper lets a client with a session's id and password take it over, and then close it.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from typing import Any, NamedTuple

_CLOSE_SESSION = -11
"""ZooKeeper's operation code."""
_ANSWER_BYTES_MAX = 4096
_CONNECT_SECONDS = 1.0
_RETRY_SECONDS = 0.02
EXIT_ENDED = 0
EXIT_NOT_ENDED = 1
"""No ZooKeeper answered while the session could still live."""


class WatchedSession(NamedTuple):
    servers: list[tuple[str, int]]
    """Host and port of each ZooKeeper."""
    session_id: int
    password: str
    """Hexadecimal."""
    timeout_ms: int
    """Without its broker it expires after this."""
    tls: dict[str, Any] | None
    """``ca``, ``certificate``, ``key``, ``key_password`` (PEM files) and ``verifies_host``."""


def end_session(session: WatchedSession) -> bool:
    """False when no ZooKeeper answers while the session can live."""
    deadline = time.monotonic() + session.timeout_ms / 1000
    while True:
        for host, port in session.servers:
            try:
                _end_at(host, port, session)
            except (OSError, ValueError):
                continue
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_RETRY_SECONDS)


def _end_at(host: str, port: int, session: WatchedSession) -> None:
    with _connect(host, port, session.tls) as connection:
        password = bytes.fromhex(session.password)
        # Protocol version, last transaction seen, time-out, session, password, read-only.
        _send(
            connection,
            struct.pack(">iqiqi", 0, 0, session.timeout_ms, session.session_id, len(password))
            + password
            + b"\0",
        )
        _, timeout_ms = struct.unpack_from(">ii", _receive(connection))
        if timeout_ms <= 0:
            return  # it has ended already
        _send(connection, struct.pack(">ii", 1, _CLOSE_SESSION))
        _receive(connection)


def _connect(host: str, port: int, tls: dict[str, Any] | None) -> socket.socket:
    connection = socket.create_connection((host, port), timeout=_CONNECT_SECONDS)
    if tls is None:
        return connection
    import ssl

    context = ssl.create_default_context(cafile=tls["ca"])
    if not tls["verifies_host"]:
        context.check_hostname = False
    if tls["certificate"] is not None:
        context.load_cert_chain(tls["certificate"], tls["key"], tls["key_password"])
    return context.wrap_socket(connection, server_hostname=host)


def _send(connection: socket.socket, message: bytes) -> None:
    connection.sendall(struct.pack(">i", len(message)) + message)


def _receive(connection: socket.socket) -> bytes:
    (length,) = struct.unpack(">i", _receive_exactly(connection, 4))
    if not 8 <= length <= _ANSWER_BYTES_MAX:
        raise ValueError(f"an answer of {length} bytes")
    return _receive_exactly(connection, length)


def _receive_exactly(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            raise ConnectionError("the connection ended")
        received += piece
    return received


def main() -> int:
    session: WatchedSession | None = None
    for line in sys.stdin:
        if line.rstrip("\n") == "end":
            return EXIT_ENDED
        session = WatchedSession(**json.loads(line))
    if session is None or end_session(session):
        return EXIT_ENDED
    return EXIT_NOT_ENDED


if __name__ == "__main__":
    sys.exit(main())
