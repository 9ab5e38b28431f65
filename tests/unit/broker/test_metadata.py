"""Run-time options as a broker hears of them, over the embedded store."""

from pathlib import Path

import pytest
import trio

from pyrklog.config import load_config
from pyrklog.identity import create_paths
from pyrklog.membership.current_store import CurrentStore
from pyrklog.metadata import Metadata
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedSession, open_store
from pyrklog.metastore.interface import Create, Node, Watch
from pyrklog.testing.fake_plane import FakePlane

OPTIONS = znodes.broker_config_path(znodes.DEFAULT_ENTITY)


class Meddling(CurrentStore):
    """A store in which a broker option is set right behind the first read of a path."""

    def __init__(self, session: EmbeddedSession, path: str) -> None:
        super().__init__(session)
        self._other = session
        self._path: str | None = path

    async def _meddle(self, path: str) -> None:
        if path == self._path:
            self._path = None
            announcement = znodes.encode_config_change(f"brokers/{znodes.DEFAULT_ENTITY}")
            options = znodes.encode_config({"log.retention.ms": "5"})
            await self._other.multi(
                [
                    Create(OPTIONS, options),
                    Create(znodes.CONFIG_CHANGE_PREFIX, announcement, sequence=True),
                ]
            )

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        try:
            return await super().get(path, watch)
        finally:
            await self._meddle(path)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        found = await super().children(path, watch)
        await self._meddle(path)
        return found


@pytest.mark.parametrize("read", [OPTIONS, znodes.CONFIG_CHANGES])
async def test_no_broker_option_is_lost_that_is_set_during_a_start(
    tmp_path: Path, read: str
) -> None:
    store = await open_store(tmp_path)
    session = store.session()
    await create_paths(session, znodes.PERSISTENT_PATHS)
    metadata = Metadata(1, load_config(), Meddling(session, read), FakePlane())
    async with trio.open_nursery() as nursery:
        await nursery.start(metadata.run)
        with trio.fail_after(10):
            await metadata.changes.wait_until(
                lambda: "log.retention.ms" in metadata.config.dynamic_default
            )
        nursery.cancel_scope.cancel()
    await store.close()
