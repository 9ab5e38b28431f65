"""HTTP: the only module that knows hypercorn and starlette.

Connections, requests a second and their sizes are bounded, so that a flood costs the broker little.
Hypercorn shields its sends from being cancelled; a connection therefore ends by its socket's end.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import wrap_app
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pyrklog.base.logs import get_logger
from pyrklog.observability import health
from pyrklog.observability.exposition import Exposition
from pyrklog.observability.observer import BrokerObserver, DetailUnknownError

CONNECTIONS_MAX = 16
"""A further one ends the oldest."""
CONNECTION_SECONDS_MAX = 120
IDLE_SECONDS_MAX = 75
"""Of a connection without a request; Prometheus keeps its own until the next scrape."""
ACCEPT_PAUSE_SECONDS = 0.01
REQUESTS_A_SECOND_MAX = 50
"""Further ones wait."""
HEAD_BYTES_MAX = 8192
BODY_BYTES_MAX = 1024
NAME_MAX = 1024
"""Characters of a topic's or group's name that are looked up."""

Endpoint = Callable[[Request], Awaitable[Response]]

log = get_logger("http")


class _Pace:
    """Lets so many pass a second."""

    def __init__(self, a_second: int) -> None:
        self._interval = 1 / a_second
        self._burst = 1.0
        self._next = 0.0

    async def wait(self) -> None:
        now = trio.current_time()
        self._next = max(self._next, now - self._burst) + self._interval
        await trio.sleep(max(0.0, self._next - now))


class _Paths:
    """The answer of each path; starlette calls them."""

    def __init__(self, observer: BrokerObserver, *, is_loopback: bool) -> None:
        self._observer = observer
        self._is_loopback = is_loopback
        self._pace = _Pace(REQUESTS_A_SECOND_MAX)
        self._all: dict[str, Endpoint] = {
            "/metrics": self._metrics,
            "/metrics/detail": self._detail,
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
            await self._pace.wait()
            if self._is_loopback and not names_loopback(request.headers.get("host", "")):
                return _error(403, "this broker answers only requests to a loopback address")
            try:
                return await answer(request)
            except Exception as error:
                log.error("http_request_failed", path=request.url.path, exc_info=error)
                return _error(500, "the broker failed to answer; its log says why")

        return endpoint

    async def not_found(self, _request: Request, _error_: Exception) -> Response:
        await self._pace.wait()
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

    async def _live(self, _request: Request) -> Response:
        return _json(health.live())

    async def _ready(self, _request: Request) -> Response:
        return _json(self._observer.ready())

    async def _cluster(self, _request: Request) -> Response:
        return _json(await self._observer.cluster())

    async def _restart_safe(self, _request: Request) -> Response:
        return _json(await self._observer.restart_safe())


def application(observer: BrokerObserver, *, is_loopback: bool) -> Starlette:
    """``is_loopback``: only a loopback ``Host`` is answered."""
    paths = _Paths(observer, is_loopback=is_loopback)
    app = Starlette(routes=paths.routes(), exception_handlers={404: paths.not_found})
    app.router.redirect_slashes = False
    return app


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


def _json(answer: health.Answer) -> Response:
    return JSONResponse(answer.body, answer.status, headers={"cache-control": "no-store"})


def _error(status: int, what: str) -> Response:
    return JSONResponse({"error": what}, status)


class HttpServer:
    """Serves on sockets that listen already, until cancelled."""

    def __init__(self, observer: BrokerObserver, *, is_loopback: bool) -> None:
        self._observer = observer
        self._config = _config()
        app: Any = application(observer, is_loopback=is_loopback)
        self._app = wrap_app(app, BODY_BYTES_MAX, "asgi")
        self._context = WorkerContext(None)
        self._open: dict[socket.socket | trio.socket.SocketType, None] = {}
        """Oldest first."""

    async def run(self, listeners: Sequence[trio.SocketListener]) -> None:
        async with trio.open_nursery() as nursery:
            try:
                for listener in listeners:
                    nursery.start_soon(self._accept, listener, nursery)
                await trio.sleep_forever()
            finally:
                for one in list(self._open):
                    one.close()

    async def _accept(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        while True:
            try:
                stream = await listener.accept()
            except OSError as error:
                # For lack of descriptors, mostly.
                log.warning("http_accept_failed", reason=error.strerror or str(error))
                await trio.sleep(1)
                continue
            if len(self._open) >= CONNECTIONS_MAX:
                oldest = next(iter(self._open))
                del self._open[oldest]
                oldest.close()
            self._open[stream.socket] = None
            self._observer.http_connections = len(self._open)
            nursery.start_soon(self._serve, stream)
            await trio.sleep(ACCEPT_PAUSE_SECONDS)

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_close_late, stream.socket)
                server = TCPServer(
                    self._app,
                    self._config,
                    self._context,
                    ConnectionState({}),
                    stream,
                )
                await server.run()
                nursery.cancel_scope.cancel()
        except Exception as error:
            # Whatever a client sends, others are served.
            log.debug("http_connection_failed", exc_info=error)
        finally:
            stream.socket.close()
            self._open.pop(stream.socket, None)
            self._observer.http_connections = len(self._open)


async def _close_late(connection: trio.socket.SocketType) -> None:
    await trio.sleep(CONNECTION_SECONDS_MAX)
    connection.close()


def _config() -> Config:
    config = Config()
    config.accesslog = None
    config.errorlog = None
    config.include_server_header = False
    config.keep_alive_timeout = IDLE_SECONDS_MAX
    config.h11_max_incomplete_size = HEAD_BYTES_MAX
    config.h2_max_concurrent_streams = 1
    config.h2_max_header_list_size = HEAD_BYTES_MAX
    config.websocket_max_message_size = BODY_BYTES_MAX
    config.max_app_queue_size = 1
    return config
