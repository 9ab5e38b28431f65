"""A local TCP proxy that shows every frame, both ways, to a function."""

import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Self

import trio

from tests.support.waiting import PATIENCE_S

_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class Passing:
    """A frame without its 4-byte length: a request, or the answer to one."""

    is_request: bool
    api_key: int
    version: int
    payload: bytes


Watch = Callable[[Passing], None]


class LosesAnswers:
    """For an early :class:`WatchingProxy`: closes the connection instead of the nth answer of an
    API, for each n of ``lost``."""

    def __init__(self, api_key: int, *lost: int) -> None:
        self._api_key = api_key
        self._lost = frozenset(lost)
        self.seen = 0

    def __call__(self, passing: Passing) -> None:
        if passing.api_key == self._api_key and not passing.is_request:
            self.seen += 1
            if self.seen in self._lost:
                # What the proxy takes for the end of one side.
                raise trio.BrokenResourceError


class WatchingProxy:
    """Forwards connections to ``target`` (HOST:PORT) frame by frame.

    Calls ``watch`` in the proxy's thread after forwarding a frame (before, with ``early``); nothing
    else moves until it returns. A broker behind the proxy must advertise the proxy's address.
    """

    def __init__(self, target: str, port: int, watch: Watch, *, early: bool = False) -> None:
        host, target_port = target.rsplit(":", 1)
        self._target = (host, int(target_port))
        self._port = port
        self._watch = watch
        self._early = early
        self._ready = threading.Event()
        self._cancel = trio.CancelScope()
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = threading.Thread(target=trio.run, args=(self._serve,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(PATIENCE_S):
            raise RuntimeError("the proxy does not listen")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join()

    def stop(self) -> None:
        """Stops listening soon and closes all connections; ``watch`` may call it."""
        assert self._token is not None
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._cancel.cancel)

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
        asked: dict[int, tuple[int, int]] = {}
        async with broker, trio.open_nursery() as nursery:
            nursery.start_soon(self._forward, client, broker, partial(_request, asked), nursery)
            nursery.start_soon(self._forward, broker, client, partial(_answer, asked), nursery)

    async def _forward(
        self,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        read: Callable[[bytes], Passing | None],
        nursery: trio.Nursery,
    ) -> None:
        waiting = bytearray()
        try:
            while data := await source.receive_some(_CHUNK_BYTES):
                waiting += data
                while len(waiting) >= 4:
                    end = 4 + int.from_bytes(waiting[:4], "big")
                    if len(waiting) < end:
                        break
                    frame = bytes(waiting[:end])
                    del waiting[:end]
                    passing = read(frame[4:])
                    if passing is not None and self._early:
                        self._watch(passing)
                    await sink.send_all(frame)
                    if passing is not None and not self._early:
                        self._watch(passing)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # one side has gone; the other is closed with it
        nursery.cancel_scope.cancel()


def _request(asked: dict[int, tuple[int, int]], payload: bytes) -> Passing:
    api_key, version, correlation_id = struct.unpack_from(">hhi", payload)
    asked[correlation_id] = (api_key, version)
    return Passing(True, api_key, version, payload)


def _answer(asked: dict[int, tuple[int, int]], payload: bytes) -> Passing | None:
    (correlation_id,) = struct.unpack_from(">i", payload)
    known = asked.pop(correlation_id, None)
    return None if known is None else Passing(False, *known, payload)
