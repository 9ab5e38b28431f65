"""What a test process has started ends with it, and acknowledged records stay where they are."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from pyrklog.testing import TestBroker
from tests.support.waiting import wait_until

END_MS = 60_000
BROKERS = """
import json, signal, sys, threading
from pyrklog.testing import TestBroker

stopped, plain, killed = TestBroker(faults=True), TestBroker(faults=False), TestBroker()
given = TestBroker(sys.argv[1])
# Nothing depends on the thread that has started a broker.
threads = [threading.Thread(target=one.start) for one in (stopped, plain, killed, given)]
for one in threads:
    one.start()
for one in threads:
    one.join()
pids = [stopped.pid, plain.pid, given.pid]
arenas = [
    line.removeprefix("path=")
    for one in (stopped, plain, killed, given)
    for marker in one.data.glob("**/.pyrklog-arena")
    for line in marker.read_text().splitlines()
    if line.startswith("path=")
]
stopped.signal(signal.SIGSTOP)
killed.kill()
folders = [str(one.data) for one in (stopped, plain, killed)]
print(json.dumps({"pids": pids, "gone": [*folders, *arenas], "arenas": len(arenas)}), flush=True)
sys.stdin.read()
"""
CLUSTER = """
import json, signal, sys
from pyrklog.testing import TestCluster

cluster = TestCluster(1).start()
pids = [cluster.brokers[1].pid, cluster.zookeeper._process.pid]
cluster.zookeeper.pause()
print(json.dumps({"pids": pids, "gone": [str(cluster.data)]}), flush=True)
sys.stdin.read()
"""


@contextmanager
def started(program: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """A test process, and what it tells once its brokers run."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def check_gone(process: subprocess.Popen[str], told: Any, *, is_killed: bool) -> None:
    with ExitStack() as opened:
        ends = select.poll()
        for pid in told["pids"]:
            descriptor = os.pidfd_open(pid)
            opened.callback(os.close, descriptor)
            ends.register(descriptor, select.POLLIN)
        assert all(Path(one).exists() for one in told["gone"])
        if is_killed:
            process.kill()
        else:
            process.communicate()
        for left in range(len(told["pids"]), 0, -1):
            ended = ends.poll(END_MS)
            assert ended, f"{left} processes go on"
            ends.unregister(ended[0][0])
    wait_until(
        lambda: not any(Path(one).exists() for one in told["gone"]),
        lambda: str([one for one in told["gone"] if Path(one).exists()]),
    )


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "ended"])
def test_no_broker_outlives_its_test_process(tmp_path: Path, is_killed: bool) -> None:
    """Neither one that is stopped, nor one without a door; nor a killed one's memory."""
    with started(BROKERS, str(tmp_path / "given")) as (process, told):
        assert told["arenas"] == 4
        check_gone(process, told, is_killed=is_killed)
    assert (tmp_path / "given").exists()


@pytest.mark.jvm
def test_no_zookeeper_outlives_its_test_process() -> None:
    with started(CLUSTER) as (process, told):
        check_gone(process, told, is_killed=True)


def test_the_next_broker_has_what_a_killed_one_acknowledged(tmp_path: Path) -> None:
    """Records that were in its shared memory only."""
    with TestBroker(tmp_path / "data") as first:
        topic = str(first.create_topic())
        client = Producer({"bootstrap.servers": first.bootstrap, "log_level": 0})
        for number in range(100):
            client.produce(topic, b"%d" % number)
        assert client.flush(30) == 0
        first.kill()
    with TestBroker(tmp_path / "data") as second:
        assert len(second.records(topic)) == 100
