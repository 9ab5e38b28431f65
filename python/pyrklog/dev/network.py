"""The network of a cluster: one process that forwards what its brokers send one another.

``python -m pyrklog.dev.network FOLDER``. A cut route forwards nothing, not even the end of a
connection, and refuses nothing, like a pulled cable. Data sent meanwhile arrives once the route is
mended, as with TCP's retransmission. If nobody listens behind a route, its connections are refused,
as the broker itself would: peers draw conclusions from that.
"""

from __future__ import annotations

import signal
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import trio

from pyrklog.dev.errors import DevError
from pyrklog.dev.origin import find_origin
from pyrklog.dev.ports import HOST
from pyrklog.dev.routes import APPLIED_FILE, Route, Routes, read_routes
from pyrklog.dev.state import Place, write_whole

CHUNK_BYTES = 256 << 10
EAGER_PAUSE_SECONDS = 0.02
"""Between checks whether a broker listens, while commands start some."""
EAGER_SECONDS = 60.0
IDLE_PAUSE_SECONDS = 1.0
TAKEN_PAUSE_SECONDS = 1.0
_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets the connection."""


class Door:
    """A route's port. ``doubt`` is set when the target may have stopped listening."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.doubt = trio.Event()

    def renew(self) -> None:
        self.doubt = trio.Event()


class Network:
    """See the module."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._place = Place(folder.parent, folder.name)
        self._known: set[Route] = set()
        self._isolated: frozenset[int] = frozenset()
        self._changed = trio.Event()
        self._eager_until = 0.0

    async def run(self) -> None:
        with trio.open_signal_receiver(signal.SIGHUP) as hangups:
            async with trio.open_nursery() as nursery:
                self._take(read_routes(self._folder), nursery)
                async for _ in hangups:
                    self._take(read_routes(self._folder), nursery)

    def _take(self, routes: Routes, nursery: trio.Nursery) -> None:
        self._isolated = frozenset(routes.isolated)
        self._eager_until = trio.current_time() + EAGER_SECONDS
        changed, self._changed = self._changed, trio.Event()
        changed.set()
        for route in routes.routes:
            if route not in self._known:
                self._known.add(route)
                nursery.start_soon(self._serve, Door(route), nursery)
        write_whole(self._folder / APPLIED_FILE, b"%d\n" % routes.revision)

    async def _serve(self, door: Door, nursery: trio.Nursery) -> None:
        """Listens while somebody listens behind the door."""

        async def pass_on(near: trio.SocketStream) -> None:
            try:
                await self._pass_on(door, near)
            except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                # One side has closed; the other is closed by now, and perhaps nobody listens any
                # more.
                door.doubt.set()

        while True:
            await self._until_there(door.route)
            door.renew()
            try:
                listeners = await trio.open_tcp_listeners(door.route.port, host=HOST)
            except OSError as error:
                print(f"{door.route}: {error}", flush=True)
                await trio.sleep(TAKEN_PAUSE_SECONDS)
                continue
            async with trio.open_nursery() as listening:
                # Existing connections outlive the door.
                listening.start_soon(_accept, pass_on, listeners, nursery)
                await self._until_gone(door)
                listening.cancel_scope.cancel()

    async def _until_there(self, route: Route) -> None:
        while not await _listens(route.target):
            is_eager = trio.current_time() < self._eager_until
            with trio.move_on_after(EAGER_PAUSE_SECONDS if is_eager else IDLE_PAUSE_SECONDS):
                await self._changed.wait()

    async def _until_gone(self, door: Door) -> None:
        while True:
            await door.doubt.wait()
            door.renew()
            # An isolated broker refuses nobody; the end of its process shows once it is healed.
            while door.route.broker in self._isolated:
                await self._changed.wait()
            if not await _listens(door.route.target):
                return

    async def _pass_on(self, door: Door, near: trio.SocketStream) -> None:
        ends = {door.route.broker, self._origin(door.route, near)}
        async with near:
            await self._until_open(ends)
            try:
                far = await trio.open_tcp_stream(HOST, door.route.target)
            except OSError:
                door.doubt.set()
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                return
            async with far, trio.open_nursery() as nursery:
                nursery.start_soon(self._pump, near, far, ends)
                await self._pump(far, near, ends)
                door.doubt.set()

    def _origin(self, route: Route, near: trio.SocketStream) -> int | None:
        """The broker that made the connection; None for others, which are never cut off."""
        if route.is_to_zookeeper:
            return route.broker
        try:
            brokers = self._place.load().brokers
            pids = {one.number: one.process.pid for one in brokers if one.process is not None}
            return find_origin(near.socket.getsockname(), near.socket.getpeername(), pids)
        except (DevError, OSError):
            return None

    async def _pump(
        self, source: trio.SocketStream, sink: trio.SocketStream, ends: set[int | None]
    ) -> None:
        while True:
            await self._until_open(ends)
            chunk = await source.receive_some(CHUNK_BYTES)
            await self._until_open(ends)
            if not chunk:
                await sink.send_eof()
                return
            await sink.send_all(chunk)

    async def _until_open(self, ends: set[int | None]) -> None:
        while self._isolated & ends:
            await self._changed.wait()


async def _accept(
    handler: object, listeners: Sequence[trio.SocketListener], nursery: trio.Nursery
) -> None:
    await trio.serve_listeners(handler, listeners, handler_nursery=nursery)  # type: ignore[arg-type]


async def _listens(port: int) -> bool:
    try:
        stream = await trio.open_tcp_stream(HOST, port)
    except OSError:
        return False
    await stream.aclose()
    return True


if __name__ == "__main__":
    trio.run(Network(Path(sys.argv[1])).run)
