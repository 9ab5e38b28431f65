import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.zookeeper_server import ZooKeeperServer


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """One for a test that stops it."""
    server = ZooKeeperServer(tmp_path / "own-zookeeper")
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(autouse=True)
def no_user_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands leave nothing of these clusters in the user's home."""
    monkeypatch.setenv("XDG_CACHE_HOME", f"{os.devnull}/cache")
