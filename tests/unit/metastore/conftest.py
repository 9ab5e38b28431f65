from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pyrklog.metastore.embedded import EmbeddedStore, open_store
from tests.support.zookeeper_server import ZooKeeperServer


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One ZooKeeper for all tests; each has a chroot of its own."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    opened = await open_store(tmp_path / "meta")
    yield opened
    await opened.close()
