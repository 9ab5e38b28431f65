import socket
import struct

ANSWER_TIMEOUT_S = 3.0
WITHOUT_TLS = "speaks PLAINTEXT, without TLS"
HTTP = "speaks HTTP, not Kafka's protocol"
_API_VERSIONS = 18
_CORRELATION_ID = 1
_CLIENT_ID = b"pyrklog-cli"
_ANSWER_BYTES_MAX = 1024 * 1024
_HEAD_BYTES = 8
_TLS_ALERT = 0x15
_TLS_HANDSHAKE = 0x16
_TLS_MAJOR = 0x03


def foreign(connection: socket.socket) -> str | None:
    """Words for a peer that does not speak Kafka, to follow its address; None for Kafka.

    Sends ApiVersions 0, which every broker answers without authentication. A peer that is silent
    for ``ANSWER_TIMEOUT_S`` (or the socket's shorter timeout) may be a busy broker: None. Raises
    :class:`OSError` if the connection ends.
    """
    try:
        return _protocol_told(connection)
    except TimeoutError:
        return None


def is_without_tls(address: tuple[str, int], timeout_s: float) -> bool:
    """Whether a broker without TLS answers at an address.

    False for a silent or unknown peer. Raises :class:`OSError` without a connection.
    """
    with socket.create_connection(address, timeout=timeout_s) as connection:
        if _answers_tls(connection):
            return False
    with socket.create_connection(address, timeout=timeout_s) as connection:
        try:
            return _protocol_told(connection) is None
        except OSError:
            return False


def _answers_tls(connection: socket.socket) -> bool:
    """Whether the peer answers the start of a TLS handshake, or is silent.

    The handshake stops there: a broker that requires a certificate would log a missing one.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    except ssl.SSLWantReadError:
        pass  # the peer has answered, and waits
    _limit(connection)
    try:
        connection.sendall(outgoing.read())
        head = connection.recv(1)
    except TimeoutError:
        return True
    except OSError:
        return False
    return head[:1] in (bytes([_TLS_HANDSHAKE]), bytes([_TLS_ALERT]))


def _limit(connection: socket.socket) -> None:
    timeout_s = connection.gettimeout()
    connection.settimeout(min(ANSWER_TIMEOUT_S, timeout_s or ANSWER_TIMEOUT_S))


def _protocol_told(connection: socket.socket) -> str | None:
    """As :func:`foreign`, but raises :class:`TimeoutError` for a silent peer."""
    _limit(connection)
    header = struct.pack(">hhih", _API_VERSIONS, 0, _CORRELATION_ID, len(_CLIENT_ID))
    request = header + _CLIENT_ID
    connection.sendall(struct.pack(">i", len(request)) + request)
    head = _received(connection, _HEAD_BYTES)
    found = _protocol_of(head)
    if found is None:
        # Closing a connection with unread bytes resets it, which brokers log.
        _received(connection, struct.unpack_from(">i", head)[0] - 4)
    return found


def _received(connection: socket.socket, count: int) -> bytes:
    """Receives ``count`` bytes, or fewer if the connection ends."""
    received = bytearray()
    while len(received) < count:
        part = connection.recv(min(count - len(received), 65536))
        if not part:
            break
        received += part
    return bytes(received)


def _protocol_of(head: bytes) -> str | None:
    if not head:
        return "closes the connection: it speaks TLS, or not Kafka's protocol"
    if head[0] == _TLS_ALERT and head[1:2] == bytes([_TLS_MAJOR]):
        return "speaks TLS"
    if head.startswith(b"HTTP"):
        return HTTP
    if head.startswith(b"SSH-"):
        return "speaks SSH, not Kafka's protocol"
    if len(head) == _HEAD_BYTES:
        size_bytes, correlation_id = struct.unpack(">ii", head)
        if 4 <= size_bytes <= _ANSWER_BYTES_MAX and correlation_id == _CORRELATION_ID:
            return None
    return "does not speak Kafka's protocol"


def fix_for(foreign: str, security_protocol: str) -> str:
    if foreign == WITHOUT_TLS:
        given = f"-X security.protocol={security_protocol}"
        if security_protocol.lower().startswith("sasl"):
            return f"the broker speaks without TLS: leave out {given}, or give sasl_plaintext"
        return f"the broker speaks PLAINTEXT: leave out {given}"
    if "TLS" in foreign:
        return "give -X security.protocol=ssl, or the port of a plain listener with -b"
    return "give the port of a broker's Kafka listener with -b"
