"""One connection that speaks any API by its codec, in whatever version a test wants."""

from __future__ import annotations

import socket
import struct
from typing import Any, Self

from pyrklog.protocol.api import Api
from pyrklog.protocol.coordinators import FIND_COORDINATOR, FindCoordinatorRequest
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.groups import HEARTBEAT, HeartbeatRequest
from tests.support.waiting import PATIENCE_S, wait_until


class Asker:
    """Asks, one request at a time; connects again after the broker has closed the connection."""

    def __init__(self, bootstrap: str, timeout_s: float = PATIENCE_S) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._address = (host, int(port))
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None

    def ask(self, api: Api[Any, Any], version: int, request: Any) -> Any:
        """The decoded answer. Raises :class:`OSError` where there is none."""
        body = self.exchange(api, version, api.encode_request(request, version))
        return api.decode_response(body, version)

    def exchange(self, api: Api[Any, Any], version: int, body: bytes) -> bytes:
        """The same with bytes."""
        flexible = version >= api.flexible_since
        header = struct.pack(">hhih", api.key, version, 7, -1) + b"\0" * flexible
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=self._timeout_s)
        try:
            self._socket.sendall(struct.pack(">i", len(header + body)) + header + body)
            (size_bytes,) = struct.unpack(">i", self._receive(4))
            return self._receive(size_bytes)[4 + flexible :]
        except OSError:
            self.close()
            raise

    def _receive(self, count: int) -> bytes:
        assert self._socket is not None
        received = bytearray()
        while len(received) < count:
            part = self._socket.recv(count - len(received))
            if not part:
                raise ConnectionError("the broker closed the connection")
            received += part
        return bytes(received)

    def await_coordinator(self, group: str) -> None:
        """Returns when the broker coordinates the group and has read its past."""
        told = ErrorCode.NONE

        def has_loaded() -> bool:
            nonlocal told
            told = ErrorCode(
                self.ask(FIND_COORDINATOR, 2, FindCoordinatorRequest(group)).error_code
            )
            if told == ErrorCode.NONE:
                probe = self.ask(HEARTBEAT, 2, HeartbeatRequest(group, 1, "nobody"))
                told = ErrorCode(probe.error_code)
            return told == ErrorCode.UNKNOWN_MEMBER_ID

        wait_until(has_loaded, lambda: told.name)

    def close(self) -> None:
        """Ends the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
