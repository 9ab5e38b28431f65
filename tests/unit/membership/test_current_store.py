"""A store that survives the end of its sessions."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import trio
import trio.testing

from pyrklog.membership.current_store import CurrentStore
from pyrklog.metastore.embedded import EmbeddedStore, open_store
from pyrklog.metastore.interface import Node, SessionExpiredError, Watch, WatchEvent


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    store = await open_store(tmp_path / "meta")
    yield store
    await store.close()


async def test_call_between_sessions_waits_for_the_next_session(opened: EmbeddedStore) -> None:
    first, second = opened.session(), opened.session()
    store = CurrentStore(first)
    await store.create("/a", b"1")
    reachable = [store.is_reachable]
    assert store.lose() is first
    reachable.append(store.is_reachable)
    found: list[Node] = []

    async def read() -> None:
        found.append(await store.get("/a"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        nursery.start_soon(store.set, "/a", b"2")
        await trio.testing.wait_all_tasks_blocked()
        assert not found
        store.take(second)
    assert (await store.get("/a")).data == b"2"
    assert store.session_id == second.session_id
    reachable.append(store.is_reachable)
    await second.expire()
    reachable.append(store.is_reachable)
    assert reachable == [True, False, True, False]


class Ending:
    session_id = 0

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        raise SessionExpiredError(paths[0])


async def test_read_is_retried_in_the_next_session(opened: EmbeddedStore) -> None:
    alive = opened.session()
    await alive.create("/a", b"1")
    store = CurrentStore(Ending())  # type: ignore[arg-type]
    found: list[bytes] = []

    async def read() -> None:
        found.append((await store.get("/a")).data)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        store.lose()
        await trio.testing.wait_all_tasks_blocked()
        store.take(alive)
    assert found == [b"1"]


async def test_watch_and_write_fail_when_their_session_ends(opened: EmbeddedStore) -> None:
    seen: list[WatchEvent] = []
    store = CurrentStore(Ending())  # type: ignore[arg-type]
    with pytest.raises(SessionExpiredError):
        await store.get("/a", seen.append)
    session = opened.session()
    store.take(session)
    await session.expire()
    with pytest.raises(SessionExpiredError):
        await store.create("/b")


async def test_wait_expired_returns_at_the_end_of_a_session_or_on_close(
    opened: EmbeddedStore,
) -> None:
    session = opened.session()
    store = CurrentStore(session)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.wait_expired)
        await trio.testing.wait_all_tasks_blocked()
        await session.expire()
    second = opened.session()
    store.take(second)
    await store.create("/e", ephemeral=True)
    await store.close()
    await store.close()
    assert await opened.session().exists("/e") is None
