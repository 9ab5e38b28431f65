"""Reading, processing and writing exactly once, while brokers and clients are killed.

Two workers copy a topic in transactions. Nothing is lost, doubled or out of order, nothing of an
aborted transaction is read, and the group's offsets never are ahead of the output.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support import exactly_once_worker
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create
from tests.support.transactions import committed, read
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(60 * 60)]

ROUNDS = int(os.environ.get("EXACTLY_ONCE_ROUNDS", "20"))
SEED = int(os.environ.get("EXACTLY_ONCE_SEED", "0")) or random.randrange(2**32)
PARTITIONS = 4
EACH = 25
"""Records of a round in each partition."""
WORKERS = 2
PAUSE_MAX_S = 1.5
END_S = 180.0


class Workers:
    """Processes that are started again whenever they end."""

    def __init__(self, folder: Path, arguments: tuple[str, ...]) -> None:
        self._arguments = arguments
        self._outputs = [folder / f"worker{number}.log" for number in range(WORKERS)]
        self._running = [self._start(number) for number in range(WORKERS)]

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        bootstrap, *rest = self._arguments
        command = [sys.executable, exactly_once_worker.__file__, bootstrap, f"worker{number}"]
        with self._outputs[number].open("ab") as output:
            return subprocess.Popen([*command, *rest], stdout=output, stderr=output)

    def kill(self, number: int) -> None:
        self._running[number].kill()
        self._running[number].wait()

    def revive(self) -> None:
        for number, one in enumerate(self._running):
            if one.poll() is not None:
                self._running[number] = self._start(number)

    def close(self) -> None:
        for number in range(WORKERS):
            self.kill(number)

    def outputs(self) -> str:
        return "\n".join(f"{one.name}: {one.read_text()[-2000:]}" for one in self._outputs)


@contextmanager
def working(folder: Path, *arguments: str) -> Iterator[Workers]:
    workers = Workers(folder, arguments)
    try:
        yield workers
    finally:
        workers.close()


def disturb(cluster: BrokerCluster, workers: Workers, chance: random.Random) -> list[int]:
    """Kills something; returns the brokers among it."""
    what = chance.choice(["worker", "broker", "broker", "both", "all"])
    if what in ("worker", "both"):
        workers.kill(chance.randrange(WORKERS))
    brokers = list(cluster.brokers)
    killed = {"worker": [], "all": brokers}.get(what, [chance.choice(brokers)])
    for number in killed:
        cluster.brokers[number].kill()
    return killed


def test_records_are_copied_exactly_once(
    new_cluster: Callable[..., BrokerCluster], topic: str, tmp_path: Path
) -> None:
    print(f"EXACTLY_ONCE_SEED={SEED}")
    chance = random.Random(SEED)
    options = {
        "transaction.state.log.num.partitions": 3,
        "offsets.topic.num.partitions": 3,
        "group.initial.rebalance.delay.ms": 0,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    }
    cluster = new_cluster(**options).start()
    source, target, group = f"{topic}-in", f"{topic}-out", f"{topic}-group"
    for name in (source, target):
        create(cluster, name, PARTITIONS, 3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    written: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    with working(tmp_path, cluster.bootstrap, group, source, target) as workers:
        for number in range(ROUNDS):
            for index, values in enumerate(written):
                for each in range(EACH):
                    values.append(b"%d.%d" % (number, each))
                    producer.produce(source, values[-1], partition=index)
            producer.poll(chance.uniform(0, PAUSE_MAX_S))
            killed = disturb(cluster, workers, chance)
            producer.poll(chance.uniform(0, PAUSE_MAX_S))
            for one in killed:
                cluster.brokers[one].start()
            workers.revive()
        assert producer.flush(END_S) == 0

        def is_done() -> bool:
            workers.revive()
            ends = [committed(cluster.bootstrap, group, source, i) for i in range(PARTITIONS)]
            return ends == [len(values) for values in written]

        wait_until(is_done, workers.outputs, END_S)
        copied = [read(cluster.bootstrap, target, partition=i) for i in range(PARTITIONS)]
    assert copied == written
