"""Fixtures of all Python tests: a shared broker, brokers and clusters of a test's own, names."""

import itertools
import os
import secrets
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from pyrklog.testing import TestBroker
from pyrklog.testing.guard import guard
from tests.support.cluster import BrokerCluster
from tests.support.zookeeper_server import ZooKeeperServer

_SPARK = "tests/spark/"
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
    background job or under nohup). They leave no block cache in memory unless a test says so,
    and no profile of the user's chooses a broker. Brokers under test are those of production,
    without a door for faults."""
    os.environ["PYRKLOG_CACHE_KEEP"] = "false"
    os.environ["PYRKLOG_CONFIG"] = f"{os.devnull}/config.toml"
    os.environ.pop("PYRKLOG_PROFILE", None)
    TestBroker.faults_by_default = False
    # An example on a busy machine may take any time.
    hypothesis.settings.register_profile("without-deadline", deadline=None)
    hypothesis.settings.load_profile("without-deadline")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For ``--dist loadfile``: a process takes a file at a time, and all of Spark's. An application
    of Spark has a dozen processes, with ten seconds each to begin; two applications at the same
    time are too many for two cores."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class SparkAlone(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _SPARK if nodeid.startswith(_SPARK) else str(super()._split_scope(nodeid))

    return SparkAlone(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest share comes first."""
    items.sort(key=lambda item: not item.nodeid.startswith(_SPARK))


@pytest.fixture(autouse=True)
def _no_block_cache_is_left() -> Iterator[None]:
    """Those of brokers that a test has killed and closed would fill the memory."""
    yield
    guard().remove_left()


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
