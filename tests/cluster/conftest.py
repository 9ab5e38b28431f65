"""A ZooKeeper for the tests of clusters."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import BrokerCluster
from tests.support.zookeeper_server import ZooKeeperServer


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One for all clusters, each with a chroot of its own. Never stop this one."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def new_cluster(
    zookeeper: ZooKeeperServer, tmp_path: Path, topic: str
) -> Iterator[Callable[..., BrokerCluster]]:
    """Makes clusters, not yet started, that are closed after the test."""
    made: list[BrokerCluster] = []

    def make(address: str = zookeeper.address, **arguments: Any) -> BrokerCluster:
        number = len(made)
        made.append(
            BrokerCluster(f"{address}/{topic}-{number}", tmp_path / f"cluster{number}", **arguments)
        )
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """One for a test that stops it."""
    server = ZooKeeperServer(tmp_path / "own-zookeeper")
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def cluster(new_cluster: Callable[..., BrokerCluster]) -> BrokerCluster:
    """Three brokers that run."""
    return new_cluster().start()
