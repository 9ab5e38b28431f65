"""Each row runs on one broker and, where it makes sense, on three.

``--against HOST:PORT`` runs the rows that need no broker of their own against any Kafka,
``--against kafka`` those and others against an Apache Kafka that the tests start.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyrklog.testing import TestBroker
from tests.acceptance.sites import (
    KAFKA,
    KAFKA_OPTIONS,
    ONE,
    OPTIONS,
    THREE,
    MakeSite,
    OwnSite,
    RestartableKafka,
    Site,
)
from tests.support.cluster import BrokerCluster
from tests.support.java_client import JavaMachine
from tests.support.kafka_broker import KafkaBroker
from tests.support.zookeeper_server import ZooKeeperServer

_OURS = {"cluster", "new_cluster", "new_broker", "fresh_broker", "broker"}
"""Fixtures that are pyrklog's."""
_OF_A_TEST = {"own_site", "aging"}
"""Fixtures that start brokers of either kind."""
SESSION_TIMEOUT_MS = 18_000
"""Of shared brokers, of which none is killed. The short sessions of other tests' brokers may expire
on a busy machine, and their leaders move."""


def _is_run(item: pytest.Item, against: str) -> bool:
    """Whether a test can run against another broker."""
    if not isinstance(item, pytest.Function):
        return True
    place = item.callspec.params if hasattr(item, "callspec") else {}
    if THREE in place.values() or _OURS & set(item._fixtureinfo.argnames):
        return False
    return against == KAFKA or not _OF_A_TEST & set(item.fixturenames)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    against = config.getoption("--against")
    if not against:
        return
    folder = Path(__file__).parent
    left_out = [
        item for item in items if folder in item.path.parents and not _is_run(item, against)
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaMachine]:
    machine = JavaMachine(tmp_path_factory.mktemp("java"))
    yield machine
    machine.close()


@pytest.fixture(scope="session")
def one_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """One broker, or the Kafka that ``--against`` names."""
    folder = tmp_path_factory.mktemp("one")
    against = request.config.getoption("--against")
    if against == KAFKA:
        given = {name: str(value) for name, value in OPTIONS.items()}
        with KafkaBroker(folder / "kafka", options={**KAFKA_OPTIONS, **given}) as kafka:
            yield Site(kafka.bootstrap, 1)
    elif against:
        yield Site(against, 1)
    else:
        with TestBroker(folder / "data", options=OPTIONS) as broker:
            yield Site(broker.bootstrap, 1)


@pytest.fixture(scope="session")
def three_brokers(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("three")
    options: dict[str, Any] = {**OPTIONS, "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS}
    cluster = BrokerCluster(f"{zookeeper.address}/acceptance", folder, **options)
    try:
        cluster.start()
        yield Site(cluster.bootstrap, len(cluster.brokers))
    finally:
        cluster.close()


@pytest.fixture(params=[ONE, THREE])
def site(request: pytest.FixtureRequest) -> Site:
    """Shared by all tests. Never kill one of its brokers.

    Both kinds stay to the end. Brokers that came and went with each file would find ZooKeeper as
    the last ones left it: topics whose records are gone, and leaders that move to their preferred
    replicas under the tests.
    """
    found: Site = request.getfixturevalue(
        {ONE: "one_broker", THREE: "three_brokers"}[request.param]
    )
    return found


@pytest.fixture(params=[ONE, THREE])
def own_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeSite]:
    """Starts brokers of the test's own."""
    if request.config.getoption("--against") == KAFKA:
        started: list[RestartableKafka] = []

        def start_kafka(**options: Any) -> OwnSite:
            started.append(RestartableKafka(tmp_path / "kafka", {**OPTIONS, **options}))
            return OwnSite(started)

        yield start_kafka
        for one in started:
            one.close()
    elif request.param == ONE:
        new_broker: Callable[..., TestBroker] = request.getfixturevalue("new_broker")
        yield lambda **options: OwnSite([new_broker(options={**OPTIONS, **options}).start()])
    else:
        new_cluster: Callable[..., BrokerCluster] = request.getfixturevalue("new_cluster")

        def start_cluster(**options: Any) -> OwnSite:
            return OwnSite(list(new_cluster(**{**OPTIONS, **options}).start().brokers.values()))

        yield start_cluster
