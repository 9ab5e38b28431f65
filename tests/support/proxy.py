"""A TCP proxy on the loopback interface that keeps every request frame that clients send."""

import struct
import threading
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

import trio

_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class Frame:
    """One request as sent, without its 4-byte length; `label` is the proxy's at that time."""

    label: str
    api_key: int
    version: int
    payload: bytes


class CapturingProxy:
    """Forwards connections to `target` (HOST:PORT) and keeps the requests in `frames`.

    Runs in a thread of its own, so that blocking clients can be driven beside it. A broker behind
    it must advertise the proxy's address.
    """

    def __init__(self, target: str, port: int) -> None:
        host, target_port = target.rsplit(":", 1)
        self._target = (host, int(target_port))
        self._port = port
        self._ready = threading.Event()
        self._cancel = trio.CancelScope()
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = threading.Thread(target=trio.run, args=(self._serve,), daemon=True)
        self.frames: list[Frame] = []
        self.label = ""

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(10):
            raise RuntimeError("the proxy does not listen")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._token is not None
        self._token.run_sync_soon(self._cancel.cancel)
        self._thread.join()

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._cancel:
            async with trio.open_nursery() as nursery:
                serve = partial(trio.serve_tcp, self._connection, self._port, host="127.0.0.1")
                await nursery.start(serve)
                self._ready.set()

    async def _connection(self, client: trio.SocketStream) -> None:
        try:
            broker = await trio.open_tcp_stream(*self._target)
        except OSError:
            return
        async with broker, trio.open_nursery() as nursery:
            nursery.start_soon(self._forward, client, broker, _Splitter(self))
            await self._forward(broker, client, None)
            nursery.cancel_scope.cancel()

    async def _forward(
        self, source: trio.SocketStream, sink: trio.SocketStream, splitter: "_Splitter | None"
    ) -> None:
        try:
            while data := await source.receive_some(_CHUNK_BYTES):
                if splitter is not None:
                    splitter.feed(data)
                await sink.send_all(data)
            await sink.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return


class _Splitter:
    """Cuts one connection's stream into frames."""

    def __init__(self, proxy: CapturingProxy) -> None:
        self._proxy = proxy
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4:
            (length,) = struct.unpack_from(">i", self._data)
            if len(self._data) < 4 + length:
                return
            payload = bytes(self._data[4 : 4 + length])
            del self._data[: 4 + length]
            api_key, version = struct.unpack_from(">hh", payload)
            self._proxy.frames.append(Frame(self._proxy.label, api_key, version, payload))
