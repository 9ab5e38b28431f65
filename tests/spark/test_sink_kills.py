"""The exactly-once sink while its driver, its Python workers and the broker are killed.

``SINK_ROUNDS`` sets the number of kills (default 10), ``SINK_SEED`` replays their choice.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyrklog.producing import ProducerSettings, Transactions
from pyrklog.spark.sink_slots import PREFIX
from pyrklog.testing import TestBroker
from tests.support.groups import create_topic, fill
from tests.support.sinking import values, wait_for_values

ROUNDS = int(os.environ.get("SINK_ROUNDS", "10"))
SEED = int(os.environ.get("SINK_SEED", str(random.randrange(1 << 30))))
PARTITIONS = 2
RECORDS_A_ROUND = 60
BATCHES_MAX = 3
BATCH_S = 1.0
WHAT = ("driver", "driver", "broker", "worker", "broker and driver")

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(300 + 60 * ROUNDS)]


@contextmanager
def driver(arguments: list[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """A driver that has started its query. It is killed with its Java virtual machine; its Python
    workers notice that, a little later."""
    command = [sys.executable, "-m", "tests.support.sink_driver", *arguments]
    with log.open("a") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
    try:
        wait_for_batch(process)
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def wait_for_batch(process: subprocess.Popen[str]) -> None:
    """Or for the end of the query."""
    assert process.stdout is not None
    process.stdout.readline()


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Process ids of the Python workers, which run tasks and the driver's commits."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat, command = (folder / "stat").read_text(), (folder / "cmdline").read_text()
        except OSError:
            continue
        parents[int(folder.name)] = int(stat.rsplit(")", 1)[1].split()[1])
        commands[int(folder.name)] = command

    def is_ours(pid: int) -> bool:
        while pid in parents:
            if pid == process.pid:
                return True
            pid = parents[pid]
        return False

    daemons = {pid for pid, command in commands.items() if "pyspark.daemon" in command}
    return [pid for pid in daemons if parents.get(pid) in daemons and is_ours(pid)]


def kill(
    what: str, process: subprocess.Popen[str], broker: TestBroker, choice: random.Random
) -> None:
    if what == "worker":
        found = sorted(workers_of(process))
        if found:
            try:
                os.kill(choice.choice(found), signal.SIGKILL)
            except ProcessLookupError:
                pass
        return
    if "broker" in what:
        broker.kill()
    if "driver" in what:
        os.killpg(process.pid, signal.SIGKILL)
    if "broker" in what:
        broker.start()


def test_kills(new_broker: Callable[..., TestBroker], topic: str, tmp_path: Path) -> None:
    """What readers of committed records see is what was put in, each record once."""
    print(f"SINK_SEED={SEED}")
    choice = random.Random(SEED)
    broker = new_broker().start()
    out, log = f"{topic}-out", tmp_path / "driver.log"
    create_topic(broker.bootstrap, topic, PARTITIONS)
    create_topic(broker.bootstrap, out, 3)
    arguments = [broker.bootstrap, topic, out, str(tmp_path / "checkpoint")]
    written, begin_s = 0, time.monotonic()
    for _ in range(ROUNDS):
        fill(broker.bootstrap, topic, PARTITIONS, RECORDS_A_ROUND, first=written)
        written += RECORDS_A_ROUND
        what = choice.choice(WHAT)
        with driver(arguments, log) as process:
            for _ in range(choice.randrange(BATCHES_MAX)):
                wait_for_batch(process)
            # At any moment of a batch: nothing is waited for.
            time.sleep(choice.uniform(0, BATCH_S))
            kill(what, process, broker, choice)
            if "driver" not in what:
                # The query goes on, or fails.
                wait_for_batch(process)
        copied, seconds = values(broker.bootstrap, out).total(), time.monotonic() - begin_s
        print(f"{seconds:.0f} s, {what}: {copied} of {PARTITIONS * written}")
    with driver(arguments, log) as process:
        while process.poll() is None:
            wait_for_batch(process)
        assert process.returncode == 0, log.read_text()[-3000:]
    expected = Counter(
        b"%d:%d" % (partition, number)
        for partition in range(PARTITIONS)
        for number in range(written)
    )
    wait_for_values(broker.bootstrap, out, expected)
    transactions = Transactions(ProducerSettings(broker.bootstrap, []))
    assert transactions.open_with_prefix(PREFIX) == []
