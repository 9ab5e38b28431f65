"""The plug-in of pytest (entry point ``pytest11``): docs/using/testing.md. Only pytest imports this
module."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from pyrklog.testing.broker import TestBroker
    from pyrklog.testing.cluster import TestCluster
    from pyrklog.testing.pool import Pool
    from pyrklog.testing.topics import Topic

MARKER = "pyrklog"
BROKERS = 3
KEEP = "--pyrklog-keep"
_CLUSTER = "pyrklog_cluster"
_FIXTURES = frozenset({"pyrklog", _CLUSTER})
_pool = pytest.StashKey["Pool"]()
_run = secrets.token_hex(3)
_kept = pytest.StashKey[list[str]]()
_KEPT = "pyrklog_kept"
"""What a worker of pytest-xdist hands over at its end."""
_numbers = itertools.count(1)


class _Wish(NamedTuple):
    """What a marker asks for."""

    config: Mapping[str, str | int | bool] = {}
    brokers: int = BROKERS

    def __str__(self) -> str:
        """For the test's id."""
        options = [f"{key}={value}" for key, value in sorted(self.config.items())]
        return ",".join([*options, *([] if self.brokers == BROKERS else [f"{self.brokers}"])])


_wishes: dict[str, _Wish] = {}
"""Each once: pytest sets a fixture up again for another parameter."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("pyrklog", "pyrklog: real brokers for tests").addoption(
        KEEP,
        action="store_true",
        help="keep the brokers' data below pytest's temporary directory, and name it at the end",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "pyrklog(config={}, brokers=3): options of the broker (fixture pyrklog) and of the brokers "
        "of the cluster (pyrklog_cluster), and how many these are",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A marked test gets the broker of these options, whatever the scope of its other fixtures."""
    marker = metafunc.definition.get_closest_marker(MARKER)
    if marker is None:
        return
    wish = _wish(marker, metafunc.definition.nodeid)
    is_own = marker in metafunc.definition.own_markers
    if is_own and "brokers" in marker.kwargs and _CLUSTER not in metafunc.fixturenames:
        test = metafunc.definition.nodeid
        said = f"{test}: brokers= of @pytest.mark.pyrklog is for the fixture {_CLUSTER}"
        pytest.fail(said, pytrace=False)
    if not str(wish):
        return
    for name in sorted(_FIXTURES.intersection(metafunc.fixturenames)):
        metafunc.parametrize(name, [wish], ids=[str(wish)], indirect=True, scope="session")


def _wish(marker: pytest.Mark, test: str) -> _Wish:
    unknown = sorted(set(marker.kwargs) - set(_Wish._fields))
    if marker.args or unknown:
        what = ", ".join(unknown) or "arguments without a name"
        said = f"{test}: @pytest.mark.pyrklog takes config= and brokers=, not {what}"
        pytest.fail(said, pytrace=False)
    wish = _Wish(**marker.kwargs)
    return _wishes.setdefault(str(wish), wish)


# --- fixtures ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def _pyrklog_pool(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pool]:
    from pyrklog.testing.pool import Pool

    pool = Pool(tmp_path_factory.mktemp, keeps=request.config.getoption(KEEP))
    request.config.stash[_pool] = pool
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def pyrklog(request: pytest.FixtureRequest, _pyrklog_pool: Pool) -> TestBroker:
    """A running broker: one a session, and one a worker of pytest-xdist. A test with
    ``@pytest.mark.pyrklog(config={...})`` gets one with these options."""
    wish: _Wish = getattr(request, "param", _Wish())
    return _pyrklog_pool.broker(wish.config)


@pytest.fixture(scope="session")
def pyrklog_cluster(request: pytest.FixtureRequest, _pyrklog_pool: Pool) -> TestCluster:
    """A running cluster of three brokers, or as many as ``@pytest.mark.pyrklog(brokers=N)`` says,
    with a real ZooKeeper: it needs Java."""
    wish: _Wish = getattr(request, "param", _Wish())
    return _pyrklog_pool.cluster(wish.brokers, wish.config)


@pytest.fixture
def pyrklog_topic(request: pytest.FixtureRequest, pyrklog: TestBroker) -> Iterator[Topic]:
    """A new topic with one partition, at the broker of ``pyrklog``; removed after the test."""
    stem = "".join(c if c.isascii() and c.isalnum() else "-" for c in request.node.name)
    topic = pyrklog.create_topic(f"{stem.strip('-')[:80]}-{_run}-{next(_numbers)}")
    yield topic
    if pyrklog.running and not request.config.getoption(KEEP):
        pyrklog.delete_topic(topic)


# --- a test's begin and end ----------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    pool = item.config.stash.get(_pool, None)
    if pool is not None:
        pool.begin_test()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    try:
        yield
    finally:
        pool = item.config.stash.get(_pool, None)
        if pool is not None:
            pool.end_test()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the brokers' logs of the test, and its topics' last records, to a failure's report."""
    report = yield
    pool = item.config.stash.get(_pool, None)
    if pool is not None and report.failed and report.when != "teardown":
        report.sections += _sections(pool, getattr(item, "funcargs", {}))
    return report


def _sections(pool: Pool, arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    from pyrklog.testing.asynchronous import AsyncTestBroker
    from pyrklog.testing.broker import TestBroker
    from pyrklog.testing.cluster import TestCluster
    from pyrklog.testing.pool import tail
    from pyrklog.testing.topics import Topic

    brokers: dict[TestBroker, None] = {}
    topics: dict[Topic, TestBroker | TestCluster] = {}
    for value in arguments.values():
        match value:
            case TestBroker():
                brokers[value] = None
            case AsyncTestBroker():
                brokers[value.sync] = None
            case TestCluster():
                brokers |= dict.fromkeys(value.brokers.values())
            case Topic() if isinstance(value.owner, TestBroker | TestCluster):
                topics[value] = value.owner
    found = [
        (f"pyrklog: broker {one.bootstrap}, data {one.data}", pool.log_of_test(one))
        for one in brokers
    ]
    return found + [
        (f"pyrklog: end of topic {topic}", tail(owner, topic)) for topic, owner in topics.items()
    ]


def pytest_sessionfinish(session: pytest.Session) -> None:
    pool = session.config.stash.get(_pool, None)
    kept = [] if pool is None else [str(path) for path in pool.kept]
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_KEPT] = kept
    else:
        session.config.stash.setdefault(_kept, []).extend(kept)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of pytest-xdist has ended."""
    node.config.stash.setdefault(_kept, []).extend(getattr(node, "workeroutput", {}).get(_KEPT, []))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for path in config.stash.get(_kept, []):
        terminalreporter.write_line(f"pyrklog kept {path}")
