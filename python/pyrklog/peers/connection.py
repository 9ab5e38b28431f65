"""A connection to another broker, with one request at a time.

It connects at the first use and after each failure. All requests between brokers have flexible
versions and headers (KIP-482).
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import trio

from pyrklog.protocol.api import Api
from pyrklog.protocol.primitives import DecodeError, read_unsigned_varint

Address = tuple[str, int]
CONNECT_TIMEOUT_SECONDS = 5.0
ANSWER_BYTES_MAX = 100 << 20
_RECEIVE_BYTES = 64 << 10
_NOT_TRIED = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH})
"""This machine has no route to such an address, such as IPv6 where it only has IPv4."""


class PeerError(Exception):
    """A broker cannot be reached, or gave no readable answer in time."""


class PeerRefusedError(PeerError):
    """Nothing listens there: the process is gone or does not listen yet."""


class PeerConnection:
    """For one task at a time."""

    def __init__(
        self,
        address: Callable[[], Address | None],
        *,
        client_id: str,
        timeout_seconds: float,
    ) -> None:
        """``address`` is called at each connecting; None while the broker is unknown.

        ``timeout_seconds`` bounds one request with its answer.
        """
        self._address = address
        self._client_id = client_id.encode()
        self._timeout_seconds = timeout_seconds
        self._stream: trio.SocketStream | None = None
        self._received = bytearray()
        self._correlation_id = 0

    async def call(self, api: Api[Any, Any], version: int, body: bytes) -> bytes:
        """Sends a request; returns the response's body.

        Raises :class:`PeerError` and closes the connection; the other broker may have seen the
        request. Cancelling also closes the connection.
        """
        assert version >= api.flexible_since, f"{api.name} v{version} has another header"
        try:
            with trio.fail_after(self._timeout_seconds):
                stream = await self._connected()
                self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
                await stream.send_all(self._frame(api.key, version, body))
                return self._body(await self._receive(stream))
        except trio.TooSlowError:
            await self.close()
            raise PeerError(f"no answer within {self._timeout_seconds:g} s") from None
        except (OSError, trio.BrokenResourceError, DecodeError) as error:
            await self.close()
            raise PeerError(str(error) or type(error).__name__) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        stream, self._stream = self._stream, None
        self._received.clear()
        if stream is not None:
            with suppress(trio.BrokenResourceError):
                await trio.aclose_forcefully(stream)

    async def _connected(self) -> trio.SocketStream:
        if self._stream is None:
            address = self._address()
            if address is None:
                raise PeerError("its address is not known")
            self._stream = await connect(*address)
        return self._stream

    def _frame(self, api_key: int, version: int, body: bytes) -> bytes:
        header = struct.pack(
            f">hhih{len(self._client_id)}sb",
            api_key,
            version,
            self._correlation_id,
            len(self._client_id),
            self._client_id,
            0,
        )
        return struct.pack(">i", len(header) + len(body)) + header + body

    async def _receive(self, stream: trio.SocketStream) -> bytes:
        await self._fill(stream, 4)
        (length,) = struct.unpack_from(">i", self._received)
        if not 0 <= length <= ANSWER_BYTES_MAX:
            raise DecodeError(f"an answer of {length} bytes")
        await self._fill(stream, 4 + length)
        answer = bytes(self._received[4 : 4 + length])
        del self._received[: 4 + length]
        return answer

    async def _fill(self, stream: trio.SocketStream, wanted: int) -> None:
        while len(self._received) < wanted:
            # Memory grows with what arrives, not with what was announced.
            chunk = await stream.receive_some(_RECEIVE_BYTES)
            if not chunk:
                raise PeerError("it closed the connection")
            self._received += chunk

    def _body(self, answer: bytes) -> bytes:
        if len(answer) < 5:
            raise DecodeError("an answer without a header")
        (correlation_id,) = struct.unpack_from(">i", answer)
        if correlation_id != self._correlation_id:
            raise DecodeError(f"answer {correlation_id} to request {self._correlation_id}")
        return answer[_skip_tagged_fields(answer, 4) :]


def _skip_tagged_fields(answer: bytes, position: int) -> int:
    try:
        count, position = read_unsigned_varint(answer, position)
        for _ in range(count):
            _, position = read_unsigned_varint(answer, position)
            size, position = read_unsigned_varint(answer, position)
            position += size
            if position > len(answer):
                raise DecodeError("a tagged field ends too late")
    except IndexError:
        raise DecodeError("an answer without a header") from None
    return position


def _is_refused(error: OSError) -> bool:
    """Whether all addresses refuse that can be tried from here."""
    # Trio wraps the error of each address.
    said = getattr(error.__cause__, "exceptions", (error.__cause__ or error,))
    tried = [one for one in said if getattr(one, "errno", None) not in _NOT_TRIED]
    return bool(tried) and all(isinstance(one, ConnectionRefusedError) for one in tried)


async def connect(host: str, port: int) -> trio.SocketStream:
    """Raises :class:`PeerRefusedError` and :class:`PeerError`."""
    try:
        with trio.fail_after(CONNECT_TIMEOUT_SECONDS):
            return await trio.open_tcp_stream(host, port)
    except trio.TooSlowError:
        raise PeerError(f"{host}:{port} does not answer") from None
    except OSError as error:
        if _is_refused(error):
            raise PeerRefusedError(f"{host}:{port} refuses connections") from None
        raise PeerError(f"{host}:{port}: {error}") from None
    except (ValueError, OverflowError) as error:
        # Not a name that can be looked up, or not a port.
        raise PeerError(f"{host}:{port} is no address: {error}") from None
