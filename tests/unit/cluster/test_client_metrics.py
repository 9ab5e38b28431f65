"""Options of client metrics reach each broker of a store."""

from pathlib import Path

import trio

from pyrklog.base.changes import Changes
from pyrklog.cluster.metadata import Metadata
from pyrklog.config.load import load_config
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedSession, open_store
from pyrklog.metastore.interface import Create, Delete, Operation, Set
from pyrklog.start.identity import create_paths
from pyrklog.testing.fake_plane import FakePlane

NAME = "a/b ..ä"
PATH = znodes.client_metrics_path(NAME)
PATHS = (*znodes.PERSISTENT_PATHS, *znodes.OWN_PATHS)


async def change(session: EmbeddedSession, operation: Operation) -> None:
    """With its announcement."""
    entity = f"client-metrics/{PATH.rpartition('/')[2]}"
    announcement = znodes.encode_config_change(entity)
    await session.multi(
        [operation, Create(znodes.CONFIG_CHANGE_PREFIX, announcement, sequence=True)]
    )


async def wait_for(metadata: Metadata, expected: dict[str, dict[str, str]]) -> None:
    changes: Changes = metadata.changes
    with trio.fail_after(10):
        await changes.wait_until(lambda: metadata.client_metrics.options == expected)


async def test_each_change_is_followed(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    session, other = store.session(), store.session()
    await create_paths(session, PATHS)
    metadata = Metadata(1, load_config(), session, FakePlane())
    async with trio.open_nursery() as nursery:
        await nursery.start(metadata.run)
        options = {"metrics": "a."}
        await change(other, Create(PATH, znodes.encode_config(options)))
        await wait_for(metadata, {NAME: options})
        version = metadata.client_metrics.version
        await change(other, Set(PATH, znodes.encode_config({"metrics": "b."})))
        await wait_for(metadata, {NAME: {"metrics": "b."}})
        assert metadata.client_metrics.version > version
        await change(other, Set(PATH, b"nonsense"))
        await wait_for(metadata, {})
        await change(other, Delete(PATH))
        version = metadata.client_metrics.version
        await change(other, Create(PATH, znodes.encode_config({})))
        await change(other, Set(PATH, znodes.encode_config(options)))
        await wait_for(metadata, {NAME: options})
        assert metadata.client_metrics.version == version + 1
        nursery.cancel_scope.cancel()
    await store.close()


async def test_a_start_and_a_new_session_read_all(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    session = store.session()
    await create_paths(session, PATHS)
    await session.create(PATH, znodes.encode_config({"metrics": "a."}))
    metadata = Metadata(1, load_config(), session, FakePlane())
    for expected in ({NAME: {"metrics": "a."}}, {}):
        async with trio.open_nursery() as nursery:
            await nursery.start(metadata.run)
            assert metadata.client_metrics.options == expected
            nursery.cancel_scope.cancel()
        if expected:
            await session.delete(PATH)
    await store.close()


async def test_the_store_of_an_earlier_version_has_none(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    session = store.session()
    await create_paths(session, znodes.PERSISTENT_PATHS)
    metadata = Metadata(1, load_config(), session, FakePlane())
    async with trio.open_nursery() as nursery:
        await nursery.start(metadata.run)
        assert metadata.client_metrics.options == {}
        nursery.cancel_scope.cancel()
    await store.close()
