"""Sessions with a real ZooKeeper whose connection is lost, or that is absent."""

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
import trio
import trio.testing
from kazoo.client import KazooClient

from pyrklog.errors import TemporaryError
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import (
    CHANGED,
    CHILDREN,
    BadVersionError,
    Create,
    NodeExistsError,
    Set,
    WatchEvent,
)
from pyrklog.metastore.zookeeper import ZooKeeperAddress, ZooKeeperSession, connect
from pyrklog.start.identity import choose_member_id, create_paths
from pyrklog.testing.broker import free_port
from tests.support.flaky_pipe import FlakyPipe
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.jvm
PATIENCE_S = 20


@pytest.fixture
def pipe(zookeeper_server: ZooKeeperServer) -> Iterator[FlakyPipe]:
    with closing(FlakyPipe(zookeeper_server.port)) as piped:
        yield piped


def address(port: int, chroot: str) -> ZooKeeperAddress:
    return ZooKeeperAddress(f"127.0.0.1:{port}{chroot}", 10_000, 10_000)


@pytest.fixture
def chroot() -> str:
    return f"/of-a-test/{uuid4()}"


@pytest.fixture
async def session(pipe: FlakyPipe, chroot: str) -> AsyncIterator[ZooKeeperSession]:
    opened = await connect(address(pipe.port, chroot))
    yield opened
    await opened.close()


@pytest.fixture
async def witness(
    zookeeper_server: ZooKeeperServer, chroot: str
) -> AsyncIterator[ZooKeeperSession]:
    """Another session with the same tree, and a stable connection."""
    opened = await connect(address(zookeeper_server.port, chroot))
    yield opened
    await opened.close()


async def test_connect_fails_when_no_server_answers() -> None:
    nowhere = ZooKeeperAddress(f"127.0.0.1:{free_port()}", 10_000, 300)
    with trio.fail_after(PATIENCE_S), pytest.raises(TemporaryError, match="No ZooKeeper answers"):
        await connect(nowhere)


async def test_a_chroot_is_made(
    session: ZooKeeperSession, zookeeper_server: ZooKeeperServer
) -> None:
    await session.create("/a", b"x")
    above = await connect(address(zookeeper_server.port, ""))
    try:
        (name,) = [n for n in await above.children("/of-a-test") if await _has(above, n)]
        assert (await above.get(f"/of-a-test/{name}/a")).data == b"x"
    finally:
        await above.close()


async def _has(above: ZooKeeperSession, name: str) -> bool:
    return await above.exists(f"/of-a-test/{name}/a") is not None


async def test_a_session_outlives_its_connection(
    session: ZooKeeperSession, witness: ZooKeeperSession, pipe: FlakyPipe
) -> None:
    heard: list[WatchEvent] = []
    await session.create("/mine", b"x", ephemeral=True)
    await session.get("/mine", heard.append)
    await session.children("/", heard.append)
    pipe.cut()
    with trio.fail_after(PATIENCE_S):
        assert (await session.get("/mine")).data == b"x"
    assert set(heard) == {WatchEvent(CHANGED, "/mine"), WatchEvent(CHILDREN, "/")}
    stat = await witness.exists("/mine")
    assert stat is not None
    assert stat.ephemeral_owner == session.session_id


async def test_session_outlives_silent_connections(
    witness: ZooKeeperSession, pipe: FlakyPipe, chroot: str
) -> None:
    """A starting ZooKeeper may accept connections and be silent."""
    where = ZooKeeperAddress(f"127.0.0.1:{pipe.port}{chroot}", 9_000, 10_000)
    session = await connect(where)
    await session.create("/mine", b"x", ephemeral=True)
    pipe.mute_next(2)
    pipe.cut()
    with trio.fail_after(PATIENCE_S):
        assert (await session.get("/mine")).data == b"x"
    stat = await witness.exists("/mine")
    assert stat is not None
    assert stat.ephemeral_owner == session.session_id
    await session.close()


async def test_write_with_a_lost_answer_happens_once(
    session: ZooKeeperSession, witness: ZooKeeperSession, pipe: FlakyPipe
) -> None:
    await session.create("/n", b"0")
    pipe.lose_answers()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_set_once, session)
        await trio.to_thread.run_sync(pipe.wait_lost)
        pipe.cut()
    node = await witness.get("/n")
    assert (node.data, node.stat.version) == (b"1", 1)
    assert await witness.exists("/beside") is not None


async def _set_once(session: ZooKeeperSession) -> None:
    with trio.fail_after(PATIENCE_S):
        results = await session.multi([Set("/n", b"1", 0), Create("/beside", b"", True)])
    assert results[1] == "/beside"


async def test_no_two_brokers_get_the_same_number(
    session: ZooKeeperSession, witness: ZooKeeperSession, pipe: FlakyPipe
) -> None:
    """The first one's answer is lost, and a second one gets the next number meanwhile."""
    await create_paths(witness, [znodes.BROKER_SEQUENCE])
    numbers: list[int] = []

    async def choose(store: ZooKeeperSession) -> None:
        chosen = await choose_member_id(-1, [], store, reserved_max=1000, generates=True)
        numbers.append(chosen)

    pipe.lose_answers()
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(choose, session)
            await trio.to_thread.run_sync(pipe.wait_lost)
            await choose(witness)
            pipe.cut()
    assert len(set(numbers)) == 2


async def test_write_with_a_lost_refusal_is_refused(
    session: ZooKeeperSession, witness: ZooKeeperSession, pipe: FlakyPipe
) -> None:
    await witness.create("/n", b"theirs")
    await witness.set("/n", b"theirs again", 0)
    pipe.lose_answers()

    async def write() -> None:
        with trio.fail_after(PATIENCE_S):
            outcomes = await session.multis([[Set("/n", b"mine", 0)], [Create("/n", b"mine")]])
        assert [type(outcome) for outcome in outcomes] == [BadVersionError, NodeExistsError]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.to_thread.run_sync(pipe.wait_lost)
        pipe.cut()
    assert (await witness.get("/n")).data == b"theirs again"


async def _ephemeral_of(port: int, chroot: str, timeout_ms: int) -> ZooKeeperSession:
    session = await connect(ZooKeeperAddress(f"127.0.0.1:{port}{chroot}", timeout_ms, 10_000))
    await session.create("/mine", b"", ephemeral=True)
    return session


def _is_gone_within(port: int, path: str, seconds: float) -> bool:
    """Polls with a client of its own; blocks."""
    client = KazooClient(f"127.0.0.1:{port}")
    client.start()
    gone = threading.Event()
    try:
        if client.exists(path, watch=lambda _: gone.set()) is None:
            return True
        return gone.wait(seconds)
    finally:
        client.stop()
        client.close()


async def test_stalled_event_loop_loses_its_session(
    zookeeper_server: ZooKeeperServer, chroot: str
) -> None:
    """Another broker must become controller; kazoo's thread alone would keep the
    session for ever."""
    port = zookeeper_server.port
    session = await _ephemeral_of(port, chroot, 1_500)
    # No checkpoint from here on: the loop stands still.
    assert _is_gone_within(port, f"{chroot}/mine", PATIENCE_S)
    with trio.fail_after(PATIENCE_S):
        await session.wait_expired()
    await session.close()


async def test_event_loop_that_resumes_in_time_keeps_its_session(
    zookeeper_server: ZooKeeperServer, chroot: str
) -> None:
    port = zookeeper_server.port
    session = await _ephemeral_of(port, chroot, 6_000)
    for _ in range(3):
        assert not _is_gone_within(port, f"{chroot}/mine", 3.0)
        # In its turn the loop gives the sign of life.
        await trio.testing.wait_all_tasks_blocked()
    assert session.is_reachable
    await session.close()


async def test_calls_wait_for_a_server_that_is_restarted(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = ZooKeeperServer(tmp_path_factory.mktemp("restarted"))
    server.start()
    try:
        session = await connect(ZooKeeperAddress(server.address, 60_000, 10_000))
        await session.create("/kept", b"x", ephemeral=True)
        lost = trio.Event()
        await session.get("/kept", lambda _: lost.set())
        reachable = [session.is_reachable]
        server.kill()
        found: list[bytes] = []

        async def read() -> None:
            found.append((await session.get("/kept")).data)

        with trio.fail_after(3 * PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                await lost.wait()
                reachable.append(session.is_reachable)
                await trio.to_thread.run_sync(partial(server.start))
        assert found == [b"x"]
        reachable.append(session.is_reachable)
        await session.close()
        reachable.append(session.is_reachable)
        assert reachable == [True, False, True, False]
    finally:
        server.kill()


async def test_an_event_right_behind_an_answer_finds_its_watch(
    session: ZooKeeperSession, witness: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection's thread may have the answer, and the event, before the caller goes on."""
    await session.multi([Create("/parent", b"")])
    ask = session._client.get_children_async

    def ask_slowly(path: str, watch: Any) -> Any:
        answer = ask(path, watch)
        answer.wait(PATIENCE_S)
        witness._client.create("/parent/child")
        told.wait(0.2)
        return answer

    def take_event(event: Any) -> None:
        take(event)
        told.set()

    told = threading.Event()
    called = trio.Event()
    take = session._event_came
    monkeypatch.setattr(session, "_event_came", take_event)
    monkeypatch.setattr(session._client, "get_children_async", ask_slowly)
    assert await session.children("/parent", lambda _: called.set()) == []
    with trio.fail_after(PATIENCE_S):
        await called.wait()
