"""What speaks at an address that is said to be a broker's."""

import socket
import struct

ANSWER_TIMEOUT_S = 3.0
_API_VERSIONS = 18
_CORRELATION_ID = 1
_CLIENT_ID = b"pyrklog-cli"
_ANSWER_BYTES_MAX = 1024 * 1024
_HEAD_BYTES = 8
_TLS_ALERT = 0x15
_TLS_MAJOR = 0x03


def foreign(connection: socket.socket) -> str | None:
    """What the other side is instead of Kafka, in words that follow an address; None for Kafka.

    Asks for ApiVersions 0, which every broker answers without authentication. None also for a side
    that says nothing within ``ANSWER_TIMEOUT_S``, or the socket's own time-out if that is less: it
    may be a busy broker. Raises :class:`OSError` for a connection that ends.
    """
    timeout_s = connection.gettimeout()
    connection.settimeout(min(ANSWER_TIMEOUT_S, timeout_s or ANSWER_TIMEOUT_S))
    header = struct.pack(">hhih", _API_VERSIONS, 0, _CORRELATION_ID, len(_CLIENT_ID))
    request = header + _CLIENT_ID
    connection.sendall(struct.pack(">i", len(request)) + request)
    try:
        head = _received(connection, _HEAD_BYTES)
        found = _protocol_of(head)
        if found is None:
            # What is left unread when a connection is closed resets it, which brokers log.
            _received(connection, struct.unpack_from(">i", head)[0] - 4)
    except TimeoutError:
        return None
    return found


def _received(connection: socket.socket, count: int) -> bytes:
    """So many bytes, or fewer where the connection ends."""
    received = bytearray()
    while len(received) < count:
        part = connection.recv(min(count - len(received), 65536))
        if not part:
            break
        received += part
    return bytes(received)


def _protocol_of(head: bytes) -> str | None:
    """The same of the first bytes of an answer."""
    if not head:
        return "closes the connection: it speaks TLS, or not Kafka's protocol"
    if head[0] == _TLS_ALERT and head[1:2] == bytes([_TLS_MAJOR]):
        return "speaks TLS"
    if head.startswith(b"HTTP"):
        return "speaks HTTP, not Kafka's protocol"
    if head.startswith(b"SSH-"):
        return "speaks SSH, not Kafka's protocol"
    if len(head) == _HEAD_BYTES:
        size_bytes, correlation_id = struct.unpack(">ii", head)
        if 4 <= size_bytes <= _ANSWER_BYTES_MAX and correlation_id == _CORRELATION_ID:
            return None
    return "does not speak Kafka's protocol"


def fix_for(foreign: str) -> str:
    """What to do about it."""
    if "TLS" in foreign:
        return "give -X security.protocol=ssl, or the port of a plain listener with -b"
    return "give the port of a broker's Kafka listener with -b"
