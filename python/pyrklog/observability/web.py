"""HTTP: the only module that knows hypercorn and starlette.

Connections, requests a second and their sizes are bounded, so that a flood costs the broker little.
Of hypercorn only HTTP/1.1 without bodies is used: in HTTP/2 one connection starts as many requests
as it likes by taking each back, and a WebSocket has nothing to talk to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from math import inf
from typing import TYPE_CHECKING, Any

import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState
from hypercorn.utils import wrap_app
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pyrklog.base.client_places import client_of
from pyrklog.base.logs import get_logger
from pyrklog.observability import health
from pyrklog.observability.exposition import Exposition
from pyrklog.observability.http_places import Places
from pyrklog.observability.observer import BrokerObserver, DetailUnknownError
from pyrklog.observability.shared_bodies import SharedBody

if TYPE_CHECKING:
    import h11

ANSWER_SECONDS_MAX = 120
"""From a request's head to the last byte that its client takes."""
IDLE_SECONDS_MAX = 75
"""Of a connection without a whole request; Prometheus keeps its own until the next scrape."""
SERVE_PAUSE_SECONDS = 0.02
"""Not more connections a second than requests: each new one may have a head to parse."""
ACCEPTS_A_SECOND_MAX = 250
"""More than are served: which clients they are of is known only once they are accepted."""
REQUESTS_A_SECOND_MAX = 50
"""Further ones wait."""
HEAD_BYTES_MAX = 8192
RECEIVE_BYTES_MAX = 2048
"""At once; a head may be so much longer."""
NO_BODY = b"0"
MESSAGES_MAX = 2
"""To a request: its empty body, and its end. Nobody takes them, so both need a place: the task that
has answered waits for one."""
NAME_MAX = 1024
"""Characters of a topic's or group's name that are looked up."""

Endpoint = Callable[[Request], Awaitable[Response]]

log = get_logger("http")


class _Pace:
    """Lets so many pass a second, in their order. One that is cancelled takes nobody's turn."""

    def __init__(self, a_second: int) -> None:
        self._interval = 1 / a_second
        self._burst = 1.0
        self._next = 0.0
        self._turn = trio.Lock()

    async def wait(self) -> None:
        async with self._turn:
            self._next = max(self._next, trio.current_time() - self._burst)
            await trio.sleep_until(self._next)
            self._next += self._interval


class _Paths:
    """The answer of each path; starlette calls them."""

    def __init__(self, observer: BrokerObserver, *, is_loopback: bool) -> None:
        self._observer = observer
        self._is_loopback = is_loopback
        self._all: dict[str, Endpoint] = {
            "/metrics": self._metrics,
            "/metrics/detail": self._detail,
            "/metrics/latencies": self._latencies,
            "/metrics/clients": self._clients,
            "/health/live": self._live,
            "/health/ready": self._ready,
            "/health/cluster": self._cluster,
            "/health/restart-safe": self._restart_safe,
        }

    def routes(self) -> list[Route]:
        return [
            Route(path, self._guarded(answer), methods=["GET"])
            for path, answer in self._all.items()
        ]

    def _guarded(self, answer: Endpoint) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            if self._is_loopback and not names_loopback(request.headers.get("host", "")):
                return _error(403, "this broker answers only requests to a loopback address")
            try:
                return await answer(request)
            except Exception as error:
                log.error("http_request_failed", path=request.url.path, exc_info=error)
                return _error(500, "the broker failed to answer; its log says why")

        return endpoint

    async def not_found(self, _request: Request, _error_: Exception) -> Response:
        return _error(404, f"there is nothing here; there are {', '.join(self._all)}")

    async def _metrics(self, request: Request) -> Response:
        return _text(await self._observer.metrics(request.headers.get("accept", "")))

    async def _detail(self, request: Request) -> Response:
        topic = request.query_params.get("topic") or None
        group = request.query_params.get("group") or None
        if topic is None and group is None:
            return _error(400, "give topic, group, or both: /metrics/detail?topic=T&group=G")
        if any(name is not None and len(name) > NAME_MAX for name in (topic, group)):
            return _error(404, "no name is so long")
        accept = request.headers.get("accept", "")
        try:
            return _text(await self._observer.detail(topic, group, accept))
        except DetailUnknownError as error:
            return _error(404, str(error))

    async def _latencies(self, request: Request) -> Response:
        return _text(await self._observer.latencies(request.headers.get("accept", "")))

    async def _clients(self, request: Request) -> Response:
        return _Shared(await self._observer.clients(request.headers.get("accept", "")))

    async def _live(self, _request: Request) -> Response:
        return _json(health.live())

    async def _ready(self, _request: Request) -> Response:
        return _json(self._observer.ready())

    async def _cluster(self, _request: Request) -> Response:
        return _json(await self._observer.cluster())

    async def _restart_safe(self, request: Request) -> Response:
        text = request.query_params.get("broker")
        try:
            number = None if text is None else health.broker_number(text)
        except ValueError as error:
            return _error(400, str(error))
        return _json(await self._observer.restart_safe(number))


def application(observer: BrokerObserver, *, is_loopback: bool) -> ASGIApp:
    """``is_loopback``: only a loopback ``Host`` is answered."""
    paths = _Paths(observer, is_loopback=is_loopback)
    app = Starlette(routes=paths.routes(), exception_handlers={404: paths.not_found})
    app.router.redirect_slashes = False
    pace = _Pace(REQUESTS_A_SECOND_MAX)

    async def paced(scope: Scope, receive: Receive, send: Send) -> None:
        """All requests, the refused ones too."""
        await pace.wait()
        await app(scope, receive, send)

    return paced


def names_loopback(host: str) -> bool:
    """Whether a ``Host`` header names this machine by itself, which no foreign web page's does."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    if name.lower() == "localhost":
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _text(exposition: Exposition) -> Response:
    return Response(exposition.body, headers={"content-type": exposition.content_type})


class _Shared(Response):
    """Keeps the body until its client has taken it."""

    def __init__(self, body: SharedBody) -> None:
        text = body.exposition
        super().__init__(text.body, headers={"content-type": text.content_type})
        self._shared = body


def _json(answer: health.Answer) -> Response:
    return JSONResponse(answer.body, answer.status, headers={"cache-control": "no-store"})


def _error(status: int, what: str) -> Response:
    return JSONResponse({"error": what}, status)


class _RefusedError(Exception):
    """The request's answer says why; its connection ends."""


class _Http1(H11Protocol):
    """HTTP/1.1 without bodies."""

    async def _check_protocol(self, event: h11.Request) -> None:
        """Instead of changing to HTTP/2. An offer of it (``Upgrade: h2c``) may be left unused."""
        upgrades = [value.lower() for name, value in event.headers if name == b"upgrade"]
        bodies = [value for name, value in event.headers if name == b"content-length"]
        if any(name == b"transfer-encoding" for name, _ in event.headers) or any(
            value != NO_BODY for value in bodies
        ):
            await self._refuse(413)
        elif b"websocket" in upgrades:
            await self._refuse(400)
        elif event.http_version not in (b"1.1", b"1.0"):
            await self._refuse(505)

    async def _refuse(self, status: int) -> None:
        await self._send_error_response(status)
        raise _RefusedError(status)


class _Connection(TCPServer):
    """One connection, until its client or :meth:`end` ends it.

    Hypercorn shields its sends from being cancelled: only the end of the socket ends those.
    """

    def __init__(
        self, app: AppWrapper, config: Config, context: WorkerContext, stream: trio.SocketStream
    ) -> None:
        plain: Any = stream  # its type is that of TLS only
        super().__init__(app, config, context, ConnectionState({}), plain)
        self._socket = stream.socket
        self._scope = trio.CancelScope()
        self._ends_at = inf

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self._ends_at == inf

    def end(self) -> None:
        """At once, whatever it does."""
        self._scope.cancel()
        self._socket.close()

    async def run(self) -> None:
        with self._scope:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._end_late)
                    await self._talk()
                    nursery.cancel_scope.cancel()
            finally:
                self._socket.close()

    async def _talk(self) -> None:
        async with TaskGroup() as group:
            self._task_group = group
            protocol: Any = _Http1(
                self.app,
                self.config,
                self.context,
                group,
                ConnectionState({}),
                False,
                self._socket.getpeername()[:2],
                self._socket.getsockname()[:2],
                self.protocol_send,
            )
            self.protocol = protocol
            await self.idle_task.restart(group, self._idle_timeout)
            await self._read_data()
            # The client has ended; an answer under way still comes. Hypercorn's own server would
            # keep an idle connection for the whole of its time.
            await self.idle_task.stop()

    async def _read_data(self) -> None:
        """As hypercorn's, in smaller pieces."""
        data = b"-"
        while data:
            try:
                data = bytes(await self.stream.receive_some(RECEIVE_BYTES_MAX))
            except (trio.ClosedResourceError, trio.BrokenResourceError):
                break
            await self.protocol.handle(RawData(data))
        await self.protocol.handle(Closed())

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, Updated):
            self._ends_at = inf if event.idle else trio.current_time() + ANSWER_SECONDS_MAX
        await super().protocol_send(event)

    async def _end_late(self) -> None:
        while (left := self._ends_at - trio.current_time()) > 0:  # noqa: ASYNC110 - the end moves
            await trio.sleep(min(left, ANSWER_SECONDS_MAX))
        self.end()


class HttpServer:
    """Serves on sockets that listen already, until cancelled."""

    def __init__(self, observer: BrokerObserver, *, is_loopback: bool) -> None:
        self._observer = observer
        self._config = _config()
        app: Any = application(observer, is_loopback=is_loopback)
        self._app = wrap_app(app, 0, "asgi")
        self._context = WorkerContext(None)
        self._places: Places[trio.SocketStream, _Connection] = Places()
        self._arrived = trio.Event()
        self._accepting = _Pace(ACCEPTS_A_SECOND_MAX)

    async def run(self, listeners: Sequence[trio.SocketListener]) -> None:
        async with trio.open_nursery() as nursery:
            try:
                for listener in listeners:
                    nursery.start_soon(self._accept, listener)
                await self._serve_in_turn(nursery)
            finally:
                while (waiting := self._places.next()) is not None:
                    waiting[1].socket.close()
                for one in self._places.served:
                    one.end()

    async def _accept(self, listener: trio.SocketListener) -> None:
        while True:
            await self._accepting.wait()
            try:
                stream = await listener.accept()
            except OSError as error:
                # For lack of descriptors, mostly.
                log.warning("http_accept_failed", reason=error.strerror or str(error))
                await trio.sleep(1)
                continue
            try:
                client = client_of(stream.socket.getpeername()[0])
            except OSError:
                stream.socket.close()  # its client is gone
                continue
            surplus = self._places.arrive(client, stream)
            if surplus is not None:
                surplus.socket.close()
            self._arrived.set()

    async def _serve_in_turn(self, nursery: trio.Nursery) -> None:
        while True:
            found = self._places.next()
            if found is None:
                self._arrived = trio.Event()
                await self._arrived.wait()
                continue
            client, stream = found
            surplus = self._places.surplus(client)
            if surplus is not None:
                self._places.leave(surplus)
                surplus.end()
            connection = _Connection(self._app, self._config, self._context, stream)
            self._places.serve(client, connection)
            self._count()
            nursery.start_soon(self._serve, connection)
            await trio.sleep(SERVE_PAUSE_SECONDS)

    def _count(self) -> None:
        self._observer.http_connections = len(self._places.served)

    async def _serve(self, connection: _Connection) -> None:
        try:
            await connection.run()
        except* Exception as errors:
            # Whatever a client sends, others are served.
            log.debug("http_connection_failed", exc_info=errors)
        finally:
            self._places.leave(connection)
            self._count()


def _config() -> Config:
    config = Config()
    config.accesslog = None
    config.errorlog = None
    config.include_server_header = False
    config.keep_alive_timeout = IDLE_SECONDS_MAX
    config.h11_max_incomplete_size = HEAD_BYTES_MAX
    config.max_app_queue_size = MESSAGES_MAX
    return config
