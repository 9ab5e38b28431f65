"""Brokers with a wrong address, or that fall silent: reported, in time and quietly."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyrklog.testing import TestBroker

NOWHERE = "127.0.0.1:1"
TOLD = (
    f"no broker answers where it tells clients to connect: broker 1 at {NOWHERE} "
    "(Connection refused)\n  fix: set advertised.listeners"
)


def pyrklog(broker: TestBroker, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pyrklog", "-b", broker.bootstrap, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def misnamed(new_broker: Callable[..., TestBroker], tmp_path: Path) -> TestBroker:
    """A broker with a record in the topic ``t`` that advertises a port without a listener."""
    data = tmp_path / "data"
    good = new_broker(data).start()
    assert pyrklog(good, "produce", "t", "one").returncode == 0
    assert good.stop() == 0
    return new_broker(data, options={"advertised.listeners": f"PLAINTEXT://{NOWHERE}"}).start()


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "create", "x"],
        ["topic", "describe", "t"],
        ["consume", "t", "-e"],
        ["consume", "t", "-e", "-g", "g"],
        ["group", "list"],
        ["produce", "t", "two"],
    ],
    ids=" ".join,
)
def test_an_address_that_leads_nowhere_is_named(misnamed: TestBroker, arguments: list[str]) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = pyrklog(misnamed, *arguments, "--timeout", "5")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode in (3, 7), done
    assert TOLD in done.stderr
    assert done.stderr.count("\n") == 2
    # Retrying without a pause would take most of a processor.
    used_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    assert used_s < 1.5


def test_the_health_of_such_a_cluster(misnamed: TestBroker) -> None:
    done = pyrklog(misnamed, "cluster", "health")
    assert done.returncode == 8
    # One line each: several findings are told.
    assert done.stdout.startswith("NOT SAFE  " + TOLD.replace("\n  fix", "; fix"))


@pytest.mark.parametrize("group", [[], ["-g", "g"]], ids=["alone", "in a group"])
def test_a_reader_that_is_to_end_does_not_wait_for_ever(
    new_broker: Callable[..., TestBroker], topic: str, group: list[str]
) -> None:
    broker = new_broker(options={"group.initial.rebalance.delay.ms": 0}).start()
    values = [f"{number:0990}" for number in range(2000)]
    written = subprocess.run(
        [sys.executable, "-m", "pyrklog", "-b", broker.bootstrap, "produce", topic],
        input="\n".join(values),
        text=True,
        timeout=60,
        check=False,
    )
    assert written.returncode == 0
    # It has read little when the broker stops answering.
    little = ["-X", "queued.min.messages=1", "-X", "fetch.message.max.bytes=1000"]
    command = ["consume", topic, "-e", "--timeout", "3", *little, *group]
    with subprocess.Popen(
        [sys.executable, "-m", "pyrklog", "-b", broker.bootstrap, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{values[0]}\n"
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            # Not for the length of a session, which librdkafka would wait for at its end.
            out, err = process.communicate(timeout=30)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
    assert len(out.splitlines()) < len(values) - 1
    assert process.returncode == 7, err
    assert "error[PK32]: no broker has answered for 3 s" in err


def test_missing_topic_is_reported_at_once(new_broker: Callable[..., TestBroker]) -> None:
    broker = new_broker(options={"auto.create.topics.enable": False}).start()
    done = pyrklog(broker, "produce", "nowhere", "hi")
    assert done.returncode == 4
    assert done.stderr == (
        "error[PK60]: topic nowhere does not exist, and the broker creates none by itself\n"
        "  fix: `pyrklog topic create nowhere`\n"
    )
