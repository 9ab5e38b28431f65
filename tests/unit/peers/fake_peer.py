"""A local broker with a test's answers."""

import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

from pyrklog.peers.connection import Address

Answer = Callable[[bytes], Awaitable[bytes | None]]
"""Maps a request's frame to its answer's, both without length; None closes."""


class FakePeer:
    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.address: Address | None = None
        self.connections = 0

    async def _serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        received = bytearray()
        try:
            while chunk := await stream.receive_some(1000):
                received += chunk
                while len(received) >= 4:
                    (length,) = struct.unpack_from(">i", received)
                    if len(received) < 4 + length:
                        break
                    frame = bytes(received[4 : 4 + length])
                    del received[: 4 + length]
                    answer = await self._answer(frame)
                    if answer is None:
                        return
                    await stream.send_all(struct.pack(">i", len(answer)) + answer)
        except trio.BrokenResourceError:
            return

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncIterator[None]:
        """Listens on a port, a free one for 0; closes all connections at the end."""
        async with trio.open_nursery() as nursery:
            serve = partial(trio.serve_tcp, self._serve, host="127.0.0.1")
            listeners = await nursery.start(serve, port)
            self.address = listeners[0].socket.getsockname()[:2]
            yield
            nursery.cancel_scope.cancel()


def echo(frame: bytes) -> bytes:
    """The answer to a request: its correlation id, no tagged fields, its body."""
    (client_id_len,) = struct.unpack_from(">h", frame, 8)
    return frame[4:8] + b"\0" + frame[11 + client_id_len :]


API_VERSIONS = 18


def with_probes(answer: Answer) -> Answer:
    """Answers observers' probes, and all else as ``answer`` does."""

    async def probed(frame: bytes) -> bytes | None:
        if struct.unpack_from(">h", frame) == (API_VERSIONS,):
            return frame[4:8] + bytes(6)
        return await answer(frame)

    return probed


async def free_address() -> Address:
    """An address without a listener."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address: Address = listener.socket.getsockname()[:2]
    await listener.aclose()
    return address
