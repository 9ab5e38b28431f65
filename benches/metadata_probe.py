"""The first Metadata reply that names a broker: from then on clients can use it.

Uses a plain socket, because a client library would add its own retry intervals.
"""

import socket
import struct
import time
from collections.abc import Callable

# Metadata v1: api key 3, correlation id 1, no client id, null = all topics.
_REQUEST = struct.pack(">hhihi", 3, 1, 1, -1, -1)
_POLL_INTERVAL_S = 0.002


class BrokerEnded(Exception):
    """The process ended before it answered."""


def wait_for_metadata(port: int, deadline: float, alive: Callable[[], bool]) -> float:
    """The ``time.monotonic()`` at which a Metadata reply named a broker at 127.0.0.1:``port``.

    TimeoutError after ``deadline`` (monotonic), ``BrokerEnded`` when ``alive()`` is false before.
    """
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
                while brokers_in_metadata(connection) == 0:
                    time.sleep(_POLL_INTERVAL_S)
                return time.monotonic()
        except OSError:
            pass  # refused, reset or closed: not yet
        if not alive():
            raise BrokerEnded
        time.sleep(_POLL_INTERVAL_S)
    raise TimeoutError(f"no Metadata reply on port {port} named a broker in time")


def brokers_in_metadata(connection: socket.socket) -> int:
    """Asks once; returns the number of brokers in the reply. OSError when the connection fails."""
    connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
    (length,) = struct.unpack(">i", _receive(connection, 4))
    reply = _receive(connection, length)
    _, brokers = struct.unpack_from(">ii", reply)  # correlation id, count
    return int(brokers)


def _receive(connection: socket.socket, length: int) -> bytes:
    received = b""
    while len(received) < length:
        part = connection.recv(length - len(received))
        if not part:
            raise ConnectionResetError("closed in the middle of a reply")
        received += part
    return received
