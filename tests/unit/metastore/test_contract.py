"""The promises of ``metastore/interface.py``, for every metadata store.

A store under test opens sessions; ``STORES`` lists the kinds.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
import trio
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from pyrklog.metastore.embedded import EmbeddedSession, open_store
from pyrklog.metastore.interface import (
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    BadPathError,
    BadVersionError,
    Check,
    Create,
    Delete,
    Metastore,
    MetastoreError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    Set,
    WatchEvent,
    descendants_of,
    ensure_path,
)
from pyrklog.metastore.zookeeper import ZooKeeperAddress, ZooKeeperSession, connect
from tests.support.zookeeper_server import ZooKeeperServer


class StoreUnderTest:
    """Opens sessions of one store, and ends one as a loss of contact would."""

    def __init__(
        self,
        session: Callable[[], Awaitable[Metastore]],
        expire: Callable[[Metastore], Awaitable[None]],
    ) -> None:
        self.session = session
        self.expire = expire


async def told(session: Metastore) -> None:
    """Returns after the session's watches for earlier events: any read waits for them."""
    await session.exists("/")


@asynccontextmanager
async def embedded(directory: Path) -> AsyncIterator[StoreUnderTest]:
    store = await open_store(directory)

    async def session() -> Metastore:
        return store.session()

    async def expire(session: Metastore) -> None:
        assert isinstance(session, EmbeddedSession)
        await session.expire()

    try:
        yield StoreUnderTest(session, expire)
    finally:
        await store.close()


@asynccontextmanager
async def zookeeper(server: ZooKeeperServer) -> AsyncIterator[StoreUnderTest]:
    """A tree of its own on a shared server."""
    address = ZooKeeperAddress(f"{server.address}/{uuid4()}", 10_000, 10_000)
    opened: list[ZooKeeperSession] = []

    async def session() -> Metastore:
        opened.append(await connect(address))
        return opened[-1]

    def end(credentials: tuple[int, bytes]) -> None:
        client = KazooClient(server.address, client_id=credentials)
        client.start()
        client.stop()
        client.close()

    async def expire(session: Metastore) -> None:
        assert isinstance(session, ZooKeeperSession)
        is_expired = False
        while not is_expired:
            # Its own client may take the session back before it is closed here.
            with contextlib.suppress(KazooTimeoutError):
                await trio.to_thread.run_sync(end, session.credentials)
            with trio.move_on_after(2):
                await session.wait_expired()
                is_expired = True

    try:
        yield StoreUnderTest(session, expire)
    finally:
        for each in opened:
            await each.close()


@pytest.fixture(params=["embedded", pytest.param("zookeeper", marks=pytest.mark.jvm)])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreUnderTest]:
    manager: AbstractAsyncContextManager[StoreUnderTest]
    if request.param == "embedded":
        manager = embedded(tmp_path / "store")
    else:
        manager = zookeeper(request.getfixturevalue("zookeeper_server"))
    async with manager as under_test:
        yield under_test


@pytest.fixture
async def store(stores: StoreUnderTest) -> Metastore:
    return await stores.session()


class Heard:
    def __init__(self) -> None:
        self.events: list[WatchEvent] = []

    def __call__(self, event: WatchEvent) -> None:
        self.events.append(event)


async def test_a_node_keeps_data_and_counts_versions(store: Metastore) -> None:
    await store.create("/a", b"one")
    node = await store.get("/a")
    assert (node.data, node.stat.version, node.stat.ephemeral_owner) == (b"one", 0, 0)
    stat = await store.set("/a", b"two")
    assert stat.version == 1
    node = await store.get("/a")
    assert (node.data, node.stat) == (b"two", stat)
    assert node.stat.czxid < node.stat.mzxid


async def test_missing_and_existing_nodes(store: Metastore) -> None:
    for attempt in (store.get("/a"), store.children("/a"), store.delete("/a")):
        with pytest.raises(NoNodeError):
            await attempt
    with pytest.raises(NoNodeError):
        await store.set("/a", b"")
    with pytest.raises(NoNodeError):
        await store.create("/a/b")
    assert await store.exists("/a") is None
    await store.create("/a")
    with pytest.raises(NodeExistsError):
        await store.create("/a")
    stat = await store.exists("/a")
    assert stat is not None
    assert stat.version == 0


async def test_a_write_expects_a_version(store: Metastore) -> None:
    await store.create("/a")
    with pytest.raises(BadVersionError):
        await store.set("/a", b"x", version=1)
    await store.set("/a", b"x", version=0)
    with pytest.raises(BadVersionError):
        await store.delete("/a", version=0)
    await store.delete("/a", version=1)
    assert await store.exists("/a") is None


async def test_a_node_with_children_stays(store: Metastore) -> None:
    await store.create("/a")
    await store.create("/a/b")
    with pytest.raises(NotEmptyError):
        await store.delete("/a")
    await store.delete("/a/b")
    await store.delete("/a")


async def test_children_are_sorted_names(store: Metastore) -> None:
    await store.create("/p")
    for name in ("c", "a", "b"):
        await store.create(f"/p/{name}")
    assert await store.children("/p") == ["a", "b", "c"]
    assert "p" in await store.children("/")


@pytest.mark.parametrize("path", ["", "a", "/a/", "/a//b", "//", "/a\0b"])
async def test_bad_paths(store: Metastore, path: str) -> None:
    with pytest.raises(BadPathError):
        await store.create(path)
    with pytest.raises(BadPathError):
        await store.get(path)


async def test_get_many(store: Metastore) -> None:
    await store.create("/a", b"1")
    await store.create("/b", b"2")
    found = await store.get_many(["/b", "/none", "/a"])
    assert [node and node.data for node in found] == [b"2", None, b"1"]


async def test_sequence_numbers_rise_and_do_not_repeat(store: Metastore) -> None:
    await store.create("/q")
    first = await store.create("/q/n_", sequence=True)
    assert first == "/q/n_0000000000"
    await store.delete(first)
    second = await store.create("/q/n_", sequence=True)
    third = await store.create("/q/n_", sequence=True)
    assert first < second < third


async def test_ephemeral_nodes_end_with_their_session(stores: StoreUnderTest) -> None:
    mine, other = await stores.session(), await stores.session()
    await mine.create("/e", b"x", ephemeral=True)
    await other.create("/kept")
    assert (await other.get("/e")).stat.ephemeral_owner == mine.session_id
    with pytest.raises(NoChildrenForEphemeralsError):
        await other.create("/e/child")
    gone = Heard()
    await other.exists("/e", gone)
    await mine.close()
    assert await other.exists("/e") is None
    assert await other.exists("/kept") is not None
    assert gone.events == [WatchEvent(DELETED, "/e")]
    with pytest.raises(SessionExpiredError):
        await mine.get("/kept")


async def test_an_expired_session_is_told(stores: StoreUnderTest) -> None:
    mine, other = await stores.session(), await stores.session()
    await mine.create("/e", ephemeral=True)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mine.wait_expired)
            await trio.testing.wait_all_tasks_blocked()
            await stores.expire(mine)
    assert await other.exists("/e") is None
    with pytest.raises(SessionExpiredError):
        await mine.create("/f")


async def test_data_watches_are_called_once(stores: StoreUnderTest) -> None:
    reader, writer = await stores.session(), await stores.session()
    heard = Heard()
    await writer.create("/a")
    await reader.get("/a", heard)
    await writer.set("/a", b"1")
    await writer.set("/a", b"2")
    await told(reader)
    assert heard.events == [WatchEvent(CHANGED, "/a")]
    await reader.get("/a", heard)
    await writer.delete("/a")
    await told(reader)
    assert heard.events[1:] == [WatchEvent(DELETED, "/a")]


async def test_an_exists_watch_waits_for_creation(stores: StoreUnderTest) -> None:
    reader, writer = await stores.session(), await stores.session()
    heard = Heard()
    assert await reader.exists("/a", heard) is None
    await writer.create("/a")
    await told(reader)
    assert heard.events == [WatchEvent(CREATED, "/a")]


async def test_a_refused_get_leaves_no_watch(store: Metastore) -> None:
    heard = Heard()
    with pytest.raises(NoNodeError):
        await store.get("/a", heard)
    await store.create("/a")
    assert heard.events == []


async def test_child_watches(stores: StoreUnderTest) -> None:
    reader, writer = await stores.session(), await stores.session()
    heard = Heard()
    await writer.create("/p")
    await reader.children("/p", heard)
    await writer.set("/p", b"data is no child")
    await told(reader)
    assert heard.events == []
    await writer.create("/p/a")
    await writer.create("/p/b")
    await told(reader)
    assert heard.events == [WatchEvent(CHILDREN, "/p")]
    await reader.children("/p", heard)
    await writer.set("/p/a", b"nor is a child's data")
    await writer.delete("/p/a")
    await told(reader)
    assert heard.events[1:] == [WatchEvent(CHILDREN, "/p")]


async def test_a_watch_comes_before_the_change_is_read(stores: StoreUnderTest) -> None:
    reader, writer = await stores.session(), await stores.session()
    heard = Heard()
    await writer.create("/a", b"old")
    await reader.get("/a", heard)
    await writer.set("/a", b"new")
    assert (await reader.get("/a")).data == b"new"
    assert heard.events == [WatchEvent(CHANGED, "/a")]


async def test_a_closed_session_hears_nothing(stores: StoreUnderTest) -> None:
    reader, writer = await stores.session(), await stores.session()
    heard = Heard()
    await writer.create("/a")
    await reader.get("/a", heard)
    await reader.close()
    await writer.set("/a", b"1")
    await told(writer)
    assert heard.events == []


async def test_a_transaction_happens_as_a_whole(store: Metastore) -> None:
    await store.create("/a", b"0")
    results = await store.multi(
        [Check("/a", 0), Create("/a/b", b"x"), Set("/a", b"1", 0), Delete("/a/b")]
    )
    assert results[0] is None
    assert results[1] == "/a/b"
    assert results[3] is None
    with pytest.raises(BadVersionError) as refused:
        await store.multi([Create("/c"), Set("/a", b"2"), Check("/a", 1)])
    assert (refused.value.index, refused.value.path) == (2, "/a")
    assert await store.exists("/c") is None
    assert (await store.get("/a")).data == b"1"


async def test_a_refused_transaction_calls_no_watch(store: Metastore) -> None:
    heard = Heard()
    await store.create("/a")
    await store.get("/a", heard)
    with pytest.raises(NoNodeError):
        await store.multi([Set("/a", b"1"), Check("/none")])
    assert heard.events == []


async def test_registration_as_brokers_do_it(store: Metastore) -> None:
    """One transaction: an empty ephemeral node, then its data at version 0 (cluster.md)."""
    await store.create("/ids")
    results = await store.multi([Create("/ids/1", b"", True), Set("/ids/1", b"{}", 0)])
    node = await store.get("/ids/1")
    assert results[1] == node.stat
    assert (node.data, node.stat.version) == (b"{}", 1)


async def test_transaction_numbers_rise(store: Metastore) -> None:
    numbers = []
    for index in range(3):
        await store.create(f"/n{index}")
        stat = await store.exists(f"/n{index}")
        assert stat is not None
        numbers.append(stat.czxid)
    assert numbers == sorted(set(numbers))


async def test_independent_transactions_fail_alone(store: Metastore) -> None:
    await store.create("/a")
    results = await store.multis(
        [
            [Create("/b"), Set("/a", b"1", 0)],
            [Create("/c"), Set("/a", b"2", 0)],
            [Set("/a", b"3", 1)],
            [],
        ]
    )
    assert isinstance(results[0], list)
    assert isinstance(results[1], BadVersionError)
    assert results[1].index == 1
    assert isinstance(results[2], list)
    assert results[3] == []
    assert await store.exists("/c") is None
    assert (await store.get("/a")).data == b"3"


async def test_writers_at_the_same_time(stores: StoreUnderTest) -> None:
    """Twenty tasks increment one counter by compare-and-set; no step is lost."""
    await (await stores.session()).create("/n", b"0")

    async def step() -> None:
        session = await stores.session()
        while True:
            node = await session.get("/n")
            try:
                await session.set("/n", str(int(node.data) + 1).encode(), node.stat.version)
            except BadVersionError:
                continue
            return

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(step)
    assert (await (await stores.session()).get("/n")).data == b"20"


async def test_ensure_path_and_descendants(store: Metastore) -> None:
    await ensure_path(store, "/x/y/z")
    await ensure_path(store, "/x/y/z")
    await store.create("/x/w")
    found = await descendants_of(store, ["/x"])
    assert sorted(found) == ["/x/w", "/x/y", "/x/y/z"]
    assert found.index("/x/y/z") < found.index("/x/y")
    results = await store.multis([[Delete(path)] for path in found])
    assert not any(isinstance(result, MetastoreError) for result in results)
    assert await store.children("/x") == []
    assert await descendants_of(store, ["/none"]) == []
