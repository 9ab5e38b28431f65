"""Faults of a broker that :class:`TestBroker` has started; no other process loads this.

The door is a socket that the test process makes and the broker inherits: one JSON object a line
asks, one answers. ``DoorPlane`` takes the place of the plane: clients connect to a :class:`Relay`
here, and that to the data plane. When the test process has gone, the broker ends.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import trio

from pyrklog.base.logs import get_logger
from pyrklog.base.problems import Problem
from pyrklog.errors import ErrorCode, StartError, TemporaryError
from pyrklog.plane import clock
from pyrklog.plane.core_plane import Plane
from pyrklog.plane.seam import PlaneListener, PlaneSettings
from pyrklog.plane.start_errors import refuse_taken_port
from pyrklog.testing.faults import Fault, Faults
from pyrklog.testing.frames import api_name
from pyrklog.testing.relay import Relay

LOOPBACK = "127.0.0.1"
BACKLOG = 128
ACCEPT_PAUSE_SECONDS = 0.1
"""After a failed accept, as without free file descriptors."""
REQUEST_BYTES_MAX = 1 << 20
"""Of the test process, which is trusted: a bound on what a mistake costs."""

log = get_logger("testing")


class Door:
    def __init__(self, descriptor: int) -> None:
        """``descriptor``: of the inherited socket."""
        self._descriptor = descriptor
        self.faults = Faults(_log_fired)
        self._relays: set[Relay] = set()
        self._acts: dict[str, Callable[[Mapping[str, Any]], object]] = {
            "add": lambda asked: self.faults.add(asked["id"], Fault(**asked["fault"])),
            "remove": lambda asked: self.faults.remove(asked["id"]),
            "fired": lambda asked: self.faults.fired(asked["id"]),
            "clear": lambda asked: self.faults.clear(),
            "cut": lambda asked: self._cut(),
            "clock": lambda asked: clock.set_ahead_ms(asked["ahead_ms"]),
            "note": lambda asked: log.info("note", text=asked["text"], number=asked["note"]),
        }

    async def serve(self) -> None:
        """Answers the test process, and ends the broker with it."""
        stream = trio.SocketStream(
            trio.socket.from_stdlib_socket(socket.socket(fileno=self._descriptor))
        )
        try:
            await self._serve(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # it has gone
        log.warning("test_process_gone", consequence="the broker ends")
        os.kill(os.getpid(), signal.SIGTERM)

    async def _serve(self, stream: trio.SocketStream) -> None:
        waiting = bytearray()
        while data := await stream.receive_some():
            waiting += data
            while (end := waiting.find(b"\n")) >= 0:
                line = bytes(waiting[:end])
                del waiting[: end + 1]
                await stream.send_all(json.dumps(self._act(line)).encode() + b"\n")
            if len(waiting) > REQUEST_BYTES_MAX:
                return

    def _act(self, line: bytes) -> dict[str, object]:
        asked = json.loads(line)
        try:
            answer: dict[str, object] = {"result": self._acts[asked["do"]](asked)}
        except Exception as error:
            # A mistake of the test must not end the broker.
            log.error("door_failed", exc_info=error)
            answer = {"error": f"{type(error).__name__}: {error}"}
        return {"number": asked["number"], **answer}

    def _cut(self) -> int:
        """Closes all connections of clients; returns how many."""
        for relay in self._relays:
            relay.cut()
        return len(self._relays)

    async def pass_on(self, client: trio.SocketStream, port: int) -> None:
        """Passes a connection on to the data plane's ``port``, until either side closes."""
        try:
            broker = await trio.open_tcp_stream(LOOPBACK, port)
        except OSError:
            await client.aclose()  # the broker is ending
            return
        relay = Relay(client, broker, self.faults)
        self._relays.add(relay)
        try:
            await relay.run()
        except Exception as error:
            log.error("relay_failed", exc_info=error)
        finally:
            self._relays.discard(relay)


class DoorPlane(Plane):
    """The data plane behind a door. Listeners between brokers have none."""

    def __init__(self, door: Door, settings: PlaneSettings) -> None:
        super().__init__(settings)
        self._door = door
        self._send, self._bound = trio.open_memory_channel[tuple[socket.socket, int]](math.inf)

    def listen(self, listener: str, host: str, port: int, *, for_brokers: bool = False) -> int:
        if for_brokers:
            return super().listen(listener, host, port, for_brokers=True)
        refuse_taken_port(listener, host, port)
        try:
            bound = socket.create_server(
                (host, port),
                family=socket.AF_INET6 if ":" in host else socket.AF_INET,
                backlog=BACKLOG,
            )
        except OSError as error:
            what = f"Cannot listen on {host}:{port}: {error}."
            if port == 0:
                raise StartError(Problem.LISTEN_FAILED, what) from None
            raise TemporaryError(Problem.PORT_TAKEN, what) from None
        inner = super().listen(listener, LOOPBACK, 0)
        self._send.send_nowait((bound, inner))
        found: int = bound.getsockname()[1]
        return found

    async def run(self, listener: PlaneListener) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._door.serve)
            nursery.start_soon(self._accept, nursery)
            await super().run(listener)

    async def _accept(self, nursery: trio.Nursery) -> None:
        async for bound, port in self._bound:
            bound.setblocking(False)
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
            nursery.start_soon(self._accept_of, listener, port, nursery)

    async def _accept_of(
        self, listener: trio.SocketListener, port: int, nursery: trio.Nursery
    ) -> None:
        while True:
            try:
                client = await listener.accept()
            except OSError as error:
                log.warning("connection_not_accepted", reason=str(error))
                await trio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            nursery.start_soon(self._door.pass_on, client, port)


def _log_fired(fault: Fault, api_key: int, client_id: str) -> None:
    told: dict[str, object] = {}
    if fault.kind == "fail":
        told["error"] = ErrorCode(fault.error_code).name
    elif fault.kind == "delay":
        told["ms"] = fault.delay_ms
    else:
        told["after"] = fault.after
    if fault.times_left is not None:
        told["times_left"] = fault.times_left
    log.info("fault", kind=fault.kind, api=api_name(api_key), client_id=client_id, **told)


def door_plane(descriptor: int) -> Callable[[PlaneSettings], Plane]:
    """Makes the plane of a broker that inherited the socket."""
    return partial(DoorPlane, Door(descriptor))
