"""Fixtures of all Python tests: a shared broker, brokers and clusters of a test's own, names."""

import itertools
import os
import secrets
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyrklog.testing import TestBroker
from tests.support.cluster import BrokerCluster
from tests.support.zookeeper_server import ZooKeeperServer

_SHOWN_LOG_LINES = 200
_numbers = itertools.count()
_run = secrets.token_hex(3)  # a broker of ``--against`` remembers earlier runs


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--against HOST:PORT`` runs the client tests against any Kafka, to test the tests."""
    parser.addoption(
        "--against",
        help="bootstrap address of a broker to use instead of our own; for tests/acceptance "
        "also `kafka`, which starts Apache Kafka",
    )


def pytest_configure() -> None:
    """Child processes must accept signals, even if this run itself ignores some (as a shell's
    background job or under nohup). They leave no block cache in memory unless a test says so."""
    os.environ["PYRKLOG_CACHE_KEEP"] = "false"
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """One broker for tests that only need any broker. Never kill this one."""
    with TestBroker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of the session's broker, or the one given by ``--against``."""
    against: str | None = request.config.getoption("--against")
    if against:
        return against
    shared: TestBroker = request.getfixturevalue("broker")
    return shared.bootstrap


@pytest.fixture
def new_broker(tmp_path: Path) -> Iterator[Callable[..., TestBroker]]:
    """Makes brokers, not yet started, and closes them after the test; arguments as TestBroker's."""
    made: list[TestBroker] = []

    def make(data: Path | None = None, **arguments: Any) -> TestBroker:
        made.append(TestBroker(data or tmp_path / f"data{len(made)}", **arguments))
        return made[-1]

    make.made = made  # type: ignore[attr-defined]  # for the report of a failed test
    yield make
    for one in made:
        one.close()


@pytest.fixture
def fresh_broker(new_broker: Callable[..., TestBroker]) -> TestBroker:
    """A started broker of the test's own, on an empty data directory."""
    return new_broker().start()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One for all clusters, each with its own chroot. Never stop this one."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def new_cluster(
    zookeeper: ZooKeeperServer, tmp_path: Path, topic: str
) -> Iterator[Callable[..., BrokerCluster]]:
    """Makes clusters, not yet started, and closes them after the test."""
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
def cluster(new_cluster: Callable[..., BrokerCluster]) -> BrokerCluster:
    return new_cluster().start()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    stem = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return f"{stem.strip('-')[:80]}-{_run}-{next(_numbers)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attaches its brokers' logs to the report of a failed test."""
    report = yield
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            of_cluster = getattr(value, "brokers", None)
            several = of_cluster.values() if isinstance(of_cluster, dict) else ()
            for one in [value, *getattr(value, "made", []), *several]:
                if isinstance(one, TestBroker):
                    text = "\n".join(list(one.log)[-_SHOWN_LOG_LINES:])
                    report.sections.append((f"broker {one.bootstrap}, data {one.data}", text))
    return report
