"""The server: paths, hosts, bounds, and an end that no client delays. The observer is fake."""

import json
import socket
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from pyrklog.observability import web
from pyrklog.observability.exposition import Exposition
from pyrklog.observability.health import Answer
from pyrklog.observability.http_places import SERVED_MAX
from pyrklog.observability.observer import DetailUnknownError
from pyrklog.observability.shared_bodies import SharedBody
from pyrklog.observability.web import HttpServer

PATHS = ["/metrics", "/metrics/detail", "/health/live", "/health/ready", "/health/cluster"]
PATHS += ["/metrics/latencies", "/metrics/clients", "/health/restart-safe"]


class FakeObserver:
    """Answers at once; ``body`` is that of /metrics."""

    def __init__(self) -> None:
        self.http_connections = 0
        self.asked: list[tuple[str | None, ...]] = []
        self.body = b"up 1\n"
        self.answers = trio.Event()
        """/metrics waits for it."""
        self.answers.set()
        self.waiting = 0
        self.filling = b""
        """Of the answer about clients."""
        self.shared: Callable[[], SharedBody | None] = lambda: None
        """The last one that lives."""

    async def metrics(self, accept: str) -> Exposition:
        self.asked.append((accept,))
        self.waiting += 1
        try:
            await self.answers.wait()
        finally:
            self.waiting -= 1
        return Exposition(self.body, "text/plain; charset=utf-8")

    async def detail(self, topic: str | None, group: str | None, accept: str) -> Exposition:
        self.asked.append((topic, group, accept))
        if topic == "gone":
            raise DetailUnknownError("there is no topic gone")
        return Exposition(b"detail 1\n", "text/plain")

    async def latencies(self, accept: str) -> Exposition:
        return Exposition(f"latencies {accept}".encode(), "text/plain")

    async def clients(self, accept: str) -> SharedBody:
        found = SharedBody(Exposition(f"clients {accept}".encode() + self.filling, "text/plain"))
        self.shared = weakref.ref(found)
        return found

    def ready(self) -> Answer:
        return Answer(503, {"ready": False})

    async def cluster(self) -> Answer:
        raise RuntimeError("a bug")

    async def restart_safe(self, broker: int | None = None) -> Answer:
        return Answer(200, {"safe": True} if broker is None else {"broker": broker})


class Running:
    def __init__(self, observer: FakeObserver, address: tuple[str, int]) -> None:
        self.observer = observer
        self.address = address

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream(*self.address)

    async def ask(self, target: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
        """Status and body."""
        given = {"host": f"127.0.0.1:{self.address[1]}", "connection": "close", **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        async with await self.connect() as stream:
            await stream.send_all(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode())
            answer = b"".join([piece async for piece in stream])
        heading, _, body = answer.partition(b"\r\n\r\n")
        return int(heading.split()[1]), body


@asynccontextmanager
async def serving(*, is_loopback: bool = True) -> AsyncIterator[Running]:
    observer: Any = FakeObserver()
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=32)
    server = HttpServer(observer, is_loopback=is_loopback)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run, listeners)
        yield Running(observer, listeners[0].socket.getsockname())
        nursery.cancel_scope.cancel()
    for one in listeners:
        one.socket.close()


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not condition():  # noqa: ASYNC110 - the server has no event for it
            await trio.sleep(0.01)


async def test_each_path_answers() -> None:
    async with serving() as running:
        assert await running.ask("/metrics", accept="x/y") == (200, b"up 1\n")
        assert await running.ask("/metrics/detail?topic=a&group=b%20c") == (200, b"detail 1\n")
        assert running.observer.asked == [("x/y",), ("a", "b c", "")]
        assert await running.ask("/metrics/latencies", accept="x/y") == (200, b"latencies x/y")
        assert await running.ask("/metrics/clients", accept="x/y") == (200, b"clients x/y")
        status, body = await running.ask("/health/live")
        assert (status, json.loads(body)) == (200, {"live": True})
        assert await running.ask("/health/ready") == (503, b'{"ready":false}')
        assert await running.ask("/health/restart-safe") == (200, b'{"safe":true}')


async def test_a_shared_body_lives_until_its_slowest_reader_has_it() -> None:
    async with serving() as running:
        observer = running.observer
        observer.filling = bytes(16 << 20)
        async with await running.connect() as stream:
            await stream.send_all(b"GET /metrics/clients HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n")
            assert await stream.receive_some(1)
            await trio.testing.wait_all_tasks_blocked()
            assert observer.shared() is not None
            while await stream.receive_some(1 << 20):
                pass
        await until(lambda: observer.shared() is None)


async def test_the_restart_of_another_broker_is_asked_for_by_its_number() -> None:
    async with serving() as running:
        assert await running.ask("/health/restart-safe?broker=3") == (200, b'{"broker":3}')
        for wrong in ("", "x", "-1", "%00", "9" * 5000):
            status, body = await running.ask(f"/health/restart-safe?broker={wrong}")
            assert (status, b"takes a broker's number" in body) == (400, True)
            assert len(body) < 200


async def test_a_failing_answer_is_an_error_of_its_own() -> None:
    async with serving() as running:
        status, body = await running.ask("/health/cluster")
        assert (status, b"its log says why" in body, b"a bug" in body) == (500, True, False)
        assert (await running.ask("/health/live"))[0] == 200


async def test_head_has_no_body_and_other_methods_are_refused() -> None:
    async with serving() as running:
        assert await running.ask("/metrics", "HEAD") == (200, b"")
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert (await running.ask("/metrics", method))[0] == 405


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/metrics/",
        "/metrics/../etc/passwd",
        "//metrics",
        "/health",
        "/%2e%2e/%2e%2e/x",
        "/METRICS",
    ],
)
async def test_there_is_nothing_elsewhere(target: str) -> None:
    async with serving() as running:
        status, body = await running.ask(target)
        assert status == 404
        assert all(path.encode() in body for path in PATHS)


async def test_detail_says_what_is_missing() -> None:
    async with serving() as running:
        assert (await running.ask("/metrics/detail"))[0] == 400
        assert (await running.ask("/metrics/detail?topic=&group="))[0] == 400
        status, body = await running.ask("/metrics/detail?topic=gone")
        assert (status, json.loads(body)) == (404, {"error": "there is no topic gone"})
        assert (await running.ask(f"/metrics/detail?group={'x' * 2000}"))[0] == 404


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:1", "127.0.0.1", "127.9.9.9:80", "[::1]:80"]
)
async def test_loopback_hosts_are_answered(host: str) -> None:
    async with serving() as running:
        assert (await running.ask("/health/live", host=host))[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "10.0.0.1:9192", "localhost.evil.example", "a@b", ""]
)
async def test_foreign_hosts_are_refused_on_loopback_only(host: str) -> None:
    async with serving() as running:
        assert (await running.ask("/metrics", host=host))[0] == 403
    async with serving(is_loopback=False) as running:
        assert (await running.ask("/metrics", host=host or "x"))[0] == 200


async def test_a_connection_is_kept_for_the_next_request() -> None:
    async with serving() as running, await running.connect() as stream:
        for _ in range(3):
            await stream.send_all(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
            answer = b""
            while not answer.endswith(b'{"live":true}'):
                piece = await stream.receive_some()
                assert piece, "it was closed"
                answer += piece


async def received(stream: trio.SocketStream) -> bytes:
    """Everything, until the server closes."""
    pieces = []
    try:
        while piece := await stream.receive_some():
            pieces.append(piece)
    except trio.BrokenResourceError:
        pass  # it was closed with a reset
    return b"".join(pieces)


@pytest.mark.parametrize("end", [b"connection: close\r\n", b""])
async def test_a_connection_ends_with_its_answer_or_with_its_client(end: bytes) -> None:
    """An answer is followed by the end of its request, and an idle connection by nothing."""
    with trio.fail_after(30):
        async with serving() as running:
            async with await running.connect() as stream:
                head = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n"
                await stream.send_all(head + end + b"\r\n")
                if end:
                    assert (await received(stream)).endswith(b'{"live":true}')
                else:
                    assert b"200" in await stream.receive_some()
            await until(lambda: running.observer.http_connections == 0)


async def test_a_client_that_ends_its_own_half_gets_the_answer() -> None:
    with trio.fail_after(30):
        async with serving() as running, await running.connect() as stream:
            running.observer.answers = trio.Event()
            await stream.send_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await stream.send_eof()
            await until(lambda: running.observer.waiting == 1)
            running.observer.answers.set()
            assert (await received(stream)).endswith(b"up 1\n")


async def test_requests_of_connections_that_were_ended_end_too() -> None:
    with trio.fail_after(30):
        async with serving() as running:
            running.observer.answers = trio.Event()
            streams: list[trio.SocketStream] = []
            while len(streams) < SERVED_MAX + 5:
                streams.append(await running.connect())
                await streams[-1].send_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
                await until(lambda: len(running.observer.asked) == len(streams))
            await until(lambda: running.observer.waiting == SERVED_MAX)
            for one in streams:
                await one.aclose()


async def test_a_client_that_takes_too_long_over_its_answer_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web, "ANSWER_SECONDS_MAX", 0.1)
    with trio.fail_after(30):
        async with serving() as running:
            running.observer.body = b"x" * 50_000_000
            slow = await running.connect()
            slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await slow.send_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await until(lambda: bool(running.observer.asked))
            await until(lambda: running.observer.http_connections == 0)
            await slow.aclose()


async def test_requests_that_come_together_wait_until_each_answer_is_taken() -> None:
    """Otherwise a client that takes none would have answers without end kept for it."""
    with trio.fail_after(30):
        async with serving() as running, await running.connect() as stream:
            running.observer.body = b"x" * 20_000_000
            many = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n" * 10
            await stream.send_all(many)
            await until(lambda: bool(running.observer.asked))
            # The other nine are at the server, which answers another client meanwhile.
            for _ in range(5):
                assert (await running.ask("/health/live"))[0] == 200
            assert len(running.observer.asked) == 1
            taken = 0
            while taken < 10 * len(running.observer.body):
                taken += len(await stream.receive_some(1 << 20))
            await until(lambda: len(running.observer.asked) == 10)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n", 413),
        (b"GET /metrics HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n", 413),
        (
            b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\n"
            b"upgrade: WebSocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: eA==\r\n\r\n",
            400,
        ),
        (b"PRI * HTTP/2.0\r\n\r\n", 505),
    ],
)
async def test_bodies_and_other_protocols_are_refused(sent: bytes, status: int) -> None:
    with trio.fail_after(30):
        async with serving() as running:
            async with await running.connect() as stream:
                await stream.send_all(sent)
                answer = await received(stream)
            assert int(answer.split()[1]) == status
            assert running.observer.asked == []
            assert (await running.ask("/health/live"))[0] == 200


async def test_an_offer_of_http2_is_left_unused_and_an_empty_body_is_none() -> None:
    async with serving() as running:
        offer = {"connection": "close, Upgrade, HTTP2-Settings", "upgrade": "h2c"}
        assert await running.ask("/metrics", **offer, **{"http2-settings": "AAMAAABk"}) == (
            200,
            b"up 1\n",
        )
        assert (await running.ask("/metrics", **{"content-length": "0"}))[0] == 200


async def test_connections_beyond_the_bound_end_the_oldest() -> None:
    async with serving() as running:
        streams = [await running.connect() for _ in range(SERVED_MAX + 3)]
        for one in streams[:3]:
            with trio.fail_after(30):
                assert await _is_closed(one)
        assert running.observer.http_connections == SERVED_MAX
        assert (await running.ask("/health/live"))[0] == 200
        for one in streams:
            await one.aclose()
        await until(lambda: running.observer.http_connections == 0)


async def _is_closed(stream: trio.SocketStream) -> bool:
    try:
        return await stream.receive_some() == b""
    except trio.BrokenResourceError:
        return True


async def test_a_client_that_does_not_read_delays_neither_others_nor_the_end() -> None:
    with trio.fail_after(30):
        async with serving() as running:
            running.observer.body = b"x" * 50_000_000
            slow = await running.connect()
            slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await slow.send_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await until(lambda: bool(running.observer.asked))
            assert (await running.ask("/health/live"))[0] == 200
        await slow.aclose()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 1000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500,
    ],
)
async def test_what_is_no_request_ends_its_own_connection_only(sent: bytes) -> None:
    with trio.fail_after(30):
        async with serving() as running:
            async with await running.connect() as stream:
                try:
                    await stream.send_all(sent)
                    await stream.send_eof()
                    while await stream.receive_some():
                        pass
                except trio.BrokenResourceError:
                    pass  # it was closed with a reset
            assert (await running.ask("/health/live"))[0] == 200
            await until(lambda: running.observer.http_connections == 0)


async def test_requests_beyond_the_pace_wait(autojump_clock: trio.testing.MockClock) -> None:
    pace = web._Pace(50)
    began = trio.current_time()
    for _ in range(250):
        await pace.wait()
    assert 3.5 < trio.current_time() - began < 5.5


async def test_who_gives_up_takes_nobodys_turn(autojump_clock: trio.testing.MockClock) -> None:
    pace = web._Pace(50)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(10_000):
            nursery.start_soon(pace.wait)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    await pace.wait()
    assert trio.current_time() - began < 1.5


@pytest.mark.parametrize(("method", "path"), [("POST", "/metrics"), ("GET", "/"), ("GET", "/x")])
async def test_refused_requests_are_paced_too(
    autojump_clock: trio.testing.MockClock, method: str, path: str
) -> None:
    observer: Any = FakeObserver()
    app = web.application(observer, is_loopback=True)
    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
    statuses: list[int] = []

    async def receive() -> Any:
        raise AssertionError("there is no body to read")

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    began = trio.current_time()
    for _ in range(150):
        await app(dict(scope), receive, send)
    assert set(statuses) == {405 if method == "POST" else 404}
    assert trio.current_time() - began > 1.5
