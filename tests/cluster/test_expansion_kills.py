"""Kills amid expansions, back-fills and drains: nothing that was acknowledged is lost, and replicas
are equal. ``EXPANSION_ROUNDS`` sets the number of rounds, ``EXPANSION_SEED`` whom they kill, and
when."""

import os
import random
from collections.abc import Callable

import pytest

from pyrklog.cli.throttles import FILL_RATE
from tests.cluster.test_expansion import run
from tests.support.balancing import RECORDS, delete, moving_of, place, replicas, wait_until_told
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import consume, produce
from tests.support.cluster_load import Writer
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.wire import ConnectionClosed

ROUNDS = int(os.environ.get("EXPANSION_ROUNDS", "2"))
SEED = int(os.environ.get("EXPANSION_SEED", "1"))

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300 + 240 * ROUNDS)]

NEW = 4
BEFORE = [[1, 2], [2, 3], [3, 1]]
PARTITIONS = len(BEFORE)
LARGE = [b"1" * 10_000] * 4
"""Fit in a segment, as one batch."""
PARTS = 10
OLD = PARTITIONS * (len(RECORDS) + PARTS * len(LARGE))
"""Records before the writer's."""
SLOW, FAST = 100_000, 500_000_000
"""Bytes a second of back-fills."""
OPTIONS = {"zookeeper.session.timeout.ms": 10_000, "log.segment.bytes": 50_000}
ARRIVAL_S = 4 * PATIENCE_S
"""Sessions of killed brokers end, and replicas come back into sync, before a move ends."""


class Round:
    """A topic of its own, and the kills."""

    def __init__(self, cluster: BrokerCluster, topic: str, chosen: random.Random) -> None:
        self._cluster, self._topic, self._chosen = cluster, topic, chosen
        self.killed: list[str] = []

    def run(self) -> None:
        place(self._cluster, self._topic, BEFORE)
        for _ in range(PARTS):
            produce(self._cluster, self._topic, PARTITIONS, LARGE)
        writer = Writer(self._cluster, self._topic, PARTITIONS)
        try:
            writer.go_on()
            self._set_rate(SLOW)
            run(self._cluster, "cluster", "expand", "--broker", str(NEW), "-t", self._topic)
            self._kill(writer, self._chosen.randint(2, 4))
            self._set_rate(FAST)
            self._wait_until_arrived()
            assert any(NEW in members for members in replicas(self._cluster, self._topic))
            run(self._cluster, "cluster", "drain", "--broker", str(NEW), "-y")
            self._kill(writer, self._chosen.randint(1, 2))
            self._wait_until_arrived()
            assert all(NEW not in members for members in replicas(self._cluster, self._topic))
            writer.go_on()
        finally:
            writer.stop()
        run(self._cluster, "log", "verify", self._topic)
        self._check(writer)
        delete(self._cluster, self._topic)

    def _set_rate(self, rate: int) -> None:
        run(self._cluster, "config", "alter", "broker", str(NEW), "--set", f"{FILL_RATE}={rate}")

    def _kill(self, writer: Writer, count: int) -> None:
        for _ in range(count):
            writer.go_on(self._chosen.randint(1, 2_000))
            victims = self._victims()
            for number in victims:
                self._cluster.brokers[number].kill()
            for number in victims:
                self._cluster.brokers[number].start()

    def _victims(self) -> set[int]:
        """One broker by its part in the move, and sometimes another one."""
        index = self._chosen.randrange(PARTITIONS)
        path = f"/brokers/topics/{self._topic}/partitions/{index}/state"
        leader = self._cluster.json(path)["leader"]
        parts = {
            "leader": leader if leader >= 0 else NEW,
            "new": NEW,
            "controller": self._cluster.controller(),
            "source": self._chosen.choice(replicas(self._cluster, self._topic)[index]),
        }
        part = self._chosen.choice(list(parts))
        found = {parts[part]}
        if self._chosen.random() < 0.3:
            found.add(self._chosen.choice(list(self._cluster.brokers)))
        self.killed.append(f"{part} {sorted(found)}")
        return found

    def _wait_until_arrived(self) -> None:
        def is_still() -> bool:
            try:
                return not moving_of(self._cluster, self._topic)
            except (OSError, ConnectionClosed, AssertionError):
                return False  # the controller has just changed

        wait_until(is_still, lambda: f"it moves still, after {self.killed}", ARRIVAL_S)
        wait_until_told(self._cluster, self._topic, replicas(self._cluster, self._topic))

    def _check(self, writer: Writer) -> None:
        count = writer.count + OLD
        values = consume(self._cluster, self._topic, count, f"{self._topic}-checker")
        found = [int(value) for value in values if len(value) < len(RECORDS[0])]
        assert len(values) - len(found) == OLD
        assert len(found) == len(set(found)), "some are there twice"
        missing = set().union(*writer.acknowledged) - set(found)
        assert not missing, f"{len(missing)} are lost, after {self.killed}"
        for index in range(PARTITIONS):
            own = [number for number in found if number % PARTITIONS == index]
            assert own == sorted(own)


def test_nothing_is_lost_by_kills_amid_expansion_back_fill_and_drain(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    cluster = new_cluster(count=4, **OPTIONS).start()
    chosen = random.Random(SEED)
    for number in range(ROUNDS):
        one = Round(cluster, f"{topic}-{number}", chosen)
        one.run()
        print(f"round {number} of seed {SEED}: killed {one.killed}", flush=True)
