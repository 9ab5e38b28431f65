"""Commands whose run or output is interrupted, by Ctrl-C or by a broker that goes away."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyrklog.testing import TestBroker
from tests.support.processes import is_connected
from tests.support.waiting import wait_until

NOTE = "note: no broker can be reached; trying again\n"


@pytest.fixture
def broker_without_delay(new_broker: Callable[..., TestBroker]) -> TestBroker:
    return new_broker(options={"group.initial.rebalance.delay.ms": 0}).start()


@contextmanager
def run(broker: TestBroker, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a command; a failing test kills it."""
    with subprocess.Popen(
        [sys.executable, "-m", "pyrklog", "-b", broker.bootstrap, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def finished(broker: TestBroker, *arguments: str) -> str:
    with run(broker, *arguments) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    return out


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("group", [[], ["-g", "g"]], ids=["alone", "in a group"])
def test_a_reader_waits_for_a_broker_that_comes_back(
    broker_without_delay: TestBroker, topic: str, group: list[str]
) -> None:
    finished(broker_without_delay, "produce", topic, "one")
    with run(broker_without_delay, "consume", topic, *group) as process:
        assert line_of(process) == "one\n"
        broker_without_delay.kill()
        assert process.stderr is not None
        assert process.stderr.readline() == NOTE
        broker_without_delay.start()
        finished(broker_without_delay, "produce", topic, "two")
        assert line_of(process) == "two\n"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        assert (process.returncode, out) == (130, "")


@pytest.mark.parametrize("group", [[], ["-g", "g"]], ids=["alone", "in a group"])
def test_ctrl_c_while_no_broker_is_there(
    broker_without_delay: TestBroker, topic: str, group: list[str]
) -> None:
    finished(broker_without_delay, "produce", topic, "one")
    with run(broker_without_delay, "consume", topic, *group) as process:
        assert line_of(process) == "one\n"
        broker_without_delay.kill()
        assert process.stderr is not None
        assert process.stderr.readline() == NOTE
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130
        assert err in ("", "note: group g: offsets not committed: no broker can be reached\n")


def test_second_ctrl_c_ends_at_once(broker_without_delay: TestBroker, topic: str) -> None:
    finished(broker_without_delay, "produce", topic, "one")
    with run(broker_without_delay, "consume", topic, "-g", "g") as process:
        assert line_of(process) == "one\n"
        broker_without_delay.signal(signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.readline() == "note: group g: leaving it; Ctrl-C ends at once\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == -signal.SIGINT
    broker_without_delay.signal(signal.SIGCONT)


def test_ctrl_c_while_a_broker_does_not_answer(broker_without_delay: TestBroker) -> None:
    finished(broker_without_delay, "topic", "list")
    broker_without_delay.signal(signal.SIGSTOP)
    with run(broker_without_delay, "topic", "list", "--timeout", "600") as process:
        wait_until(
            lambda: is_connected(process.pid, broker_without_delay.port), "it does not connect"
        )
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        assert (abs(process.returncode), out) in [(130, ""), (signal.SIGINT, "")]
    broker_without_delay.signal(signal.SIGCONT)


def test_ctrl_c_loses_no_line_that_was_taken_in(
    broker_without_delay: TestBroker, topic: str
) -> None:
    with run(broker_without_delay, "produce", topic, "-v") as process:
        assert process.stdin is not None
        process.stdin.write("a\nb\nc\n")
        process.stdin.flush()
        assert finished(broker_without_delay, "topic", "create", topic, "--if-not-exists")
        assert finished(broker_without_delay, "consume", topic, "-c", "3") == "a\nb\nc\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert out == "".join(f"{topic} 0@{offset}\n" for offset in range(3))


@pytest.mark.parametrize(
    "command", [["topic", "list"], ["consume", "TOPIC", "-e"], ["--help"]], ids=" ".join
)
def test_output_that_cannot_be_written(
    broker_without_delay: TestBroker, topic: str, command: list[str]
) -> None:
    finished(broker_without_delay, "produce", topic, "one")
    words = [topic if word == "TOPIC" else word for word in command]
    line = [sys.executable, "-m", "pyrklog", "-b", broker_without_delay.bootstrap, *words]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error[PK50]: what was to be printed could not be written: No space"
    )
    assert done.stderr.count("\n") == 1
    script = 'exec "$@" <&- >&-'
    done = subprocess.run(
        ["bash", "-c", script, "-", *line], stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_records_that_could_not_be_printed_are_not_committed(
    broker_without_delay: TestBroker, topic: str
) -> None:
    finished(broker_without_delay, "produce", topic, "one")
    line = [sys.executable, "-m", "pyrklog", "-b", broker_without_delay.bootstrap]
    line += ["consume", topic, "-g", "g", "-e"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert finished(broker_without_delay, "consume", topic, "-g", "g", "-e") == "one\n"


def test_a_member_that_is_terminated_commits_and_leaves(
    broker_without_delay: TestBroker, topic: str
) -> None:
    """As containers and service managers end a process: the next member need not wait for it."""
    finished(broker_without_delay, "produce", topic, "one", "two")
    with run(broker_without_delay, "consume", topic, "-g", "g") as process:
        assert [line_of(process), line_of(process)] == ["one\n", "two\n"]
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (143, "", "")
    described = json.loads(finished(broker_without_delay, "group", "describe", "g", "-o", "json"))
    (group,) = described["items"]
    assert group["state"] == "Empty"
    assert [one["committed"] for one in group["partitions"]] == [2]


@pytest.mark.parametrize("group", [[], ["-g", "g"]], ids=["alone", "in a group"])
def test_a_reader_ends_when_its_topic_is_deleted(
    broker_without_delay: TestBroker, topic: str, group: list[str]
) -> None:
    broker = broker_without_delay
    finished(broker, "produce", topic, "one")
    with run(broker, "consume", topic, *group) as process:
        assert line_of(process) == "one\n"
        assert finished(broker, "topic", "delete", topic, "-y") == f"{topic}: deleted\n"
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (4, "")
    assert f"error[PK60]: topic {topic} was deleted while it was read\n  fix:" in err


def test_a_reader_ends_when_its_topic_is_created_anew(
    broker_without_delay: TestBroker, topic: str
) -> None:
    broker = broker_without_delay
    finished(broker, "produce", topic, "one", "two")
    with run(broker, "consume", topic) as process:
        assert [line_of(process), line_of(process)] == ["one\n", "two\n"]
        finished(broker, "topic", "delete", topic, "-y")
        finished(broker, "topic", "create", topic)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert f"error[PK64]: topic {topic} was deleted and created anew while it was read" in err
