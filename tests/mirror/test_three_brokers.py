"""Clusters of three brokers, Apache Kafka's and pyrklog's, at either side: one broker is killed in
the middle, and comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.testing import TestBroker
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import leaders
from tests.support.kafka_cluster import KafkaCluster
from tests.support.mirroring import (
    Pair,
    at_offsets,
    copied_more,
    fill,
    rows,
    values,
    wait_for_values,
)
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(400)]

RECORDS = 150_000
REPLICAS = 3
SLOW = ("--rate", "100kB/s", "--commit", "1", "--interval", "0.05")
"""All together take 24 s."""

Start = Callable[[int], object]


class Three:
    """A cluster of three, with what kills and starts a broker of it."""

    def __init__(self, bootstrap: str, kill: Start, start: Start) -> None:
        self.bootstrap, self.kill, self.start = bootstrap, kill, start


@pytest.fixture(params=["kafka", "pyrklog"])
def three(
    request: pytest.FixtureRequest, tmp_path: Path, new_cluster: Callable[..., BrokerCluster]
) -> Iterator[Three]:
    if request.param == "kafka":
        with KafkaCluster.running(tmp_path / "kafka") as kafka:
            yield Three(kafka.bootstrap, kafka.kill, kafka.start)
        return
    ours = new_cluster().start()
    yield Three(
        ours.bootstrap,
        lambda number: ours.brokers[number].kill(),
        lambda number: ours.brokers[number].start(),
    )


def make(bootstrap: str, topic: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, 3, replicas)
    admin.create_topics([new])[topic].result(PATIENCE_S)


def check(pair: Pair, topic: str, wanted: Counter[bytes]) -> None:
    wait_for_values(pair.target, f"east.{topic}", wanted)
    assert rows(pair.target, f"east.{topic}") == rows(pair.source, topic)
    pair.verified()


def wait_for_another(admin: AdminClient, topic: str, victim: int) -> None:
    wait_until(lambda: leaders(admin, topic)[0] not in (victim, -1), "no new leader")


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_broker_of_three_is_killed_in_the_middle(
    three: Three, new_broker: Callable[..., TestBroker], topic: str, side: str
) -> None:
    single = new_broker().start().bootstrap
    places = (three.bootstrap, single) if side == "source" else (single, three.bootstrap)
    pair = Pair(*places, topic)
    mine = topic if side == "source" else f"east.{topic}"
    make(pair.source, topic, REPLICAS if side == "source" else 1)
    wanted = fill(pair.source, topic, RECORDS)
    words = ("--topics", topic, "-r", "1" if side == "source" else str(REPLICAS))
    with pair.start(*words, *SLOW) as running:
        try:
            there = copied_more(pair, topic, 0)
            admin = AdminClient({"bootstrap.servers": three.bootstrap})
            victim = leaders(admin, mine)[0]
            three.kill(victim)
            wait_for_another(admin, mine, victim)
            assert values(pair.target, f"east.{topic}").total() < RECORDS, "killed too late"
            copied_more(pair, topic, there)
            three.start(victim)
            wanted += fill(pair.source, topic, 300, first=RECORDS)
            wait_for_values(pair.target, f"east.{topic}", wanted)
            assert running.poll() is None
        finally:
            running.kill()
    check(pair, topic, wanted)


def test_a_target_of_three_keeps_offsets_when_leaders_die(
    new_cluster: Callable[..., BrokerCluster], new_broker: Callable[..., TestBroker], topic: str
) -> None:
    """And the mirror with one of them."""
    ours = new_cluster().start()
    pair = Pair(new_broker().start().bootstrap, ours.bootstrap, topic)
    make(pair.source, topic, 1)
    wanted = fill(pair.source, topic, RECORDS)
    target = f"east.{topic}"
    admin = AdminClient({"bootstrap.servers": ours.bootstrap})
    words = ("--offsets", "keep", "--topics", topic, "-r", str(REPLICAS), *SLOW)
    there = 0
    for number in range(2):
        with pair.start(*words) as running:
            try:
                there = copied_more(pair, topic, there)
                victim = leaders(admin, target)[0]
                ours.brokers[victim].kill()
                if number == 0:
                    running.kill()
                    running.wait(PATIENCE_S)
                wait_for_another(admin, target, victim)
                if number == 1:
                    there = copied_more(pair, topic, there)
                    assert running.poll() is None
            finally:
                running.kill()
        ours.brokers[victim].start()
    assert values(pair.target, target).total() < RECORDS, "killed too late"
    pair.once("--offsets", "keep", "--topics", topic)
    assert values(pair.target, target) == wanted
    assert at_offsets(pair.target, target) == at_offsets(pair.source, topic)
    pair.verified()
