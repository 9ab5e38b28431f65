"""The plug-in, in runs of pytest of their own."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.own_pytest import OwnPytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> OwnPytest:
    return OwnPytest(pytester, monkeypatch)


def test_one_broker_serves_a_session_and_each_test_has_its_topic(run: OwnPytest) -> None:
    result = run(
        """
        import pytest

        seen = []

        @pytest.fixture(scope="session")
        def app(pyrklog):
            return pyrklog.bootstrap

        @pytest.mark.parametrize("number", range(3))
        def test_it(pyrklog, pyrklog_topic, app, number):
            seen.append((pyrklog.pid, str(pyrklog_topic)))
            assert app == pyrklog.bootstrap
            assert send(app, pyrklog_topic, "a", "b") == [None, None]
            assert [one.value for one in pyrklog_topic.wait_for(2)] == [b"a", b"b"]
            assert len({pid for pid, _ in seen}) == 1
            assert len({topic for _, topic in seen}) == number + 1

        def test_topics_are_removed(pyrklog):
            for _, topic in seen:
                with pytest.raises(LookupError):
                    pyrklog.records(topic)
        """
    )
    result.assert_outcomes(passed=4)


def test_a_marker_gives_a_test_a_broker_with_its_options(run: OwnPytest) -> None:
    result = run(
        """
        import pytest

        pids = {}

        def test_default(pyrklog, pyrklog_topic):
            pids["default"] = pyrklog.pid
            assert send(pyrklog.bootstrap, pyrklog_topic, "x" * 600_000) == [None]

        @pytest.mark.pyrklog(config={"message.max.bytes": 1000})
        def test_small(pyrklog, pyrklog_topic):
            pids["small"] = pyrklog.pid
            assert send(pyrklog.bootstrap, pyrklog_topic, "x" * 2000) == ["MSG_SIZE_TOO_LARGE"]

        @pytest.mark.pyrklog(config={"message.max.bytes": 1000})
        def test_small_again(pyrklog):
            assert pyrklog.pid == pids["small"] != pids["default"]

        @pytest.mark.pyrklog
        def test_default_again(pyrklog):
            assert pyrklog.pid == pids["default"]
        """,
        "-v",
        "--strict-markers",
    )
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["*test_small?message.max.bytes=1000? PASSED*"])


def test_a_mistaken_marker_is_named(run: OwnPytest) -> None:
    result = run(
        """
        import pytest

        @pytest.mark.pyrklog(options={"a": 1})
        def test_it(pyrklog):
            pass
        """
    )
    result.stdout.fnmatch_lines(["*::test_it: @*pyrklog takes config= and brokers=, not options*"])
    result.stdout.no_fnmatch_line("*plugin.py:*")
    assert result.ret != 0


def test_brokers_beside_the_lone_brokers_fixture_are_refused(run: OwnPytest) -> None:
    result = run(
        """
        import pytest

        @pytest.mark.pyrklog(brokers=3)
        def test_it(pyrklog):
            pass
        """
    )
    result.stdout.fnmatch_lines(["*::test_it: brokers= of @*pyrklog is for*pyrklog_cluster"])
    assert result.ret != 0


def test_faults_kills_and_pauses_end_with_their_test(run: OwnPytest) -> None:
    result = run(
        """
        import signal

        def test_faults(pyrklog, pyrklog_topic):
            pyrklog.fail_next("Produce", "MESSAGE_TOO_LARGE", times=100)
            assert send(pyrklog.bootstrap, pyrklog_topic, "a") == ["MSG_SIZE_TOO_LARGE"]

        def test_none_is_left(pyrklog, pyrklog_topic):
            assert send(pyrklog.bootstrap, pyrklog_topic, "a") == [None]

        def test_kill(pyrklog, pyrklog_topic):
            pyrklog.kill()

        def test_it_runs_again(pyrklog, pyrklog_topic):
            assert send(pyrklog.bootstrap, pyrklog_topic, "a") == [None]

        def test_pause(pyrklog):
            pyrklog.signal(signal.SIGSTOP)

        def test_it_goes_on(pyrklog, pyrklog_topic):
            assert send(pyrklog.bootstrap, pyrklog_topic, "a") == [None]
        """
    )
    result.assert_outcomes(passed=6)


def test_the_report_of_a_failure_has_the_log_of_this_test_and_the_end_of_its_topic(
    run: OwnPytest,
) -> None:
    result = run(
        """
        def test_before(pyrklog):
            pyrklog.note("of another test")

        def test_fails(pyrklog, pyrklog_topic):
            pyrklog.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
            send(pyrklog.bootstrap, pyrklog_topic, *(f"value {n}" for n in range(9)))
            pyrklog.note("of this test")
            assert not pyrklog_topic.records()
        """
    )
    result.assert_outcomes(passed=1, failed=1)
    output = result.stdout.str()
    section = output[output.index("- pyrklog: broker") :]
    assert "of this test" in section
    assert "of another test" not in section
    assert '"error": "NOT_LEADER_OR_FOLLOWER"' in section
    end = section[section.index("- pyrklog: end of topic test-fails-") :]
    # Where a variable CI is set, pytest's summary repeats the whole assertion behind it.
    end = end[: end.index("short test summary info")]
    values = re.findall(r"b'value (\d)'", end)
    assert values == ["4", "5", "6", "7", "8"]


def test_the_report_of_a_broker_that_was_killed_has_its_log(run: OwnPytest) -> None:
    result = run(
        """
        def test_fails(pyrklog, pyrklog_topic):
            pyrklog.kill()
            raise AssertionError("after the kill")
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*pyrklog: broker*", '*"event": "ready"*', "*pyrklog: end of topic*", "not readable:*"]
    )


def test_data_is_kept_when_asked(run: OwnPytest) -> None:
    result = run(
        """
        def test_it(pyrklog, pyrklog_topic):
            assert send(pyrklog.bootstrap, pyrklog_topic, "a") == [None]
        """,
        "--pyrklog-keep",
    )
    result.assert_outcomes(passed=1)
    kept = re.findall(r"^pyrklog kept (\S+)", result.stdout.str(), re.M)
    assert len(kept) == 1
    assert list(Path(kept[0]).glob("logs/test-it-*-0/00000000000000000000.log"))


def test_each_worker_of_xdist_has_a_broker(run: OwnPytest) -> None:
    result = run(
        """
        import os
        import pytest

        @pytest.mark.parametrize("number", range(6))
        def test_it(pyrklog, pyrklog_topic, number, record_property):
            assert send(pyrklog.bootstrap, pyrklog_topic, "a") == [None]
            assert len(pyrklog_topic.wait_for(1)) == 1
            print("at", os.environ["PYTEST_XDIST_WORKER"], pyrklog.port, end=".")

        def test_fails(pyrklog):
            raise AssertionError
        """,
        "-p",
        "xdist",
        "-n2",
        "-rA",
        "--pyrklog-keep",
    )
    result.assert_outcomes(passed=6, failed=1)
    output = result.stdout.str()
    found = set(re.findall(r"at (gw\d) (\d+)\.", output))
    assert sorted(worker for worker, _ in found) == ["gw0", "gw1"]
    assert len({port for _, port in found}) == 2
    assert "- pyrklog: broker" in output
    assert len(re.findall(r"^pyrklog kept ", output, re.M)) == 2


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_tests_under_asyncio_and_trio_use_the_same_broker(run: OwnPytest, loop: str) -> None:
    result = run(
        f"""
        import asyncio
        import trio
        from pyrklog.testing import AsyncTestBroker

        def test_it(pyrklog, pyrklog_topic):
            async def use():
                broker = AsyncTestBroker(pyrklog)
                topic = await broker.create_topic(partitions=2)
                assert send(broker.bootstrap, topic, "a", "b", "c") == [None] * 3
                return [one.value for one in await broker.wait_for(topic, 3)]

            found = trio.run(use) if {loop!r} == "trio" else asyncio.run(use())
            assert sorted(found) == [b"a", b"b", b"c"]
        """
    )
    result.assert_outcomes(passed=1)


def test_a_session_that_uses_no_broker_starts_and_loads_none(run: OwnPytest) -> None:
    result = run(
        """
        import sys

        def test_it():
            loaded = [name for name in sys.modules if name.startswith("pyrklog")]
            assert sorted(loaded) == ["pyrklog", "pyrklog.testing", "pyrklog.testing.plugin"]
        """
    )
    result.assert_outcomes(passed=1)


def test_the_plugin_is_declared_and_nothing_else_needs_pytest() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"pyrklog": "pyrklog.testing.plugin"}
    assert import_module("pyrklog.testing.plugin").MARKER == "pyrklog"
    assert not [one for one in project["dependencies"] if one.startswith("pytest")]
    for path in sorted((ROOT / "python").rglob("*.py")):
        if path.name != "plugin.py":
            assert not re.search(r"^\s*(import|from) pytest", path.read_text(), re.M), path
