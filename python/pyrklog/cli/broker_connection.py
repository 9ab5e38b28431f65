"""Requests to one broker that confluent-kafka does not offer.

The connection blocks, without authentication or encryption.
"""

import socket
import struct
from typing import Self, TypeVar

from pyrklog.protocol import DecodeError
from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import Message
from pyrklog.protocol.primitives import read_unsigned_varint

FRAME_BYTES_MAX = 64 * 1024 * 1024
CLIENT_ID = "pyrklog-cli"

Req = TypeVar("Req", bound=Message)
Resp = TypeVar("Resp", bound=Message)


class BrokerConnection:
    def __init__(
        self, address: tuple[str, int], timeout_s: float, client_id: str = CLIENT_ID
    ) -> None:
        """``timeout_s`` limits connecting and each wait. Raises :class:`OSError`."""
        self._client_id = client_id.encode()
        self._socket = socket.create_connection(address, timeout=timeout_s)

    def ask(self, api: Api[Req, Resp], version: int, request: Req) -> Resp:
        """Sends a request and returns its answer.

        Raises :class:`OSError`, also for a malformed answer.
        """
        is_flexible = version >= api.flexible_since
        header = struct.pack(">hhih", api.key, version, 1, len(self._client_id)) + self._client_id
        frame = header + bytes(is_flexible) + api.encode_request(request, version)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size_bytes,) = struct.unpack(">i", self._receive(4))
        if not 4 <= size_bytes <= FRAME_BYTES_MAX:
            raise OSError(f"an answer of {size_bytes} bytes")
        answer = self._receive(size_bytes)
        try:
            return api.decode_response(answer[_body_start(answer, is_flexible) :], version)
        except DecodeError as error:
            raise OSError(str(error)) from None

    def _receive(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            part = self._socket.recv(min(count - len(received), 65536))
            if not part:
                raise OSError("the connection was closed")
            received += part
        return bytes(received)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _body_start(answer: bytes, is_flexible: bool) -> int:
    """After the correlation id and, in a flexible version, tagged fields (KIP-482)."""
    position = 4
    if not is_flexible:
        return position
    try:
        count, position = read_unsigned_varint(answer, position)
        for _ in range(count):
            _, position = read_unsigned_varint(answer, position)
            size, position = read_unsigned_varint(answer, position)
            position += size
    except IndexError:
        raise DecodeError("an answer without a header") from None
    return position
