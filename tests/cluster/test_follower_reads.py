"""Consumers read from the replica in their rack (KIP-392), with librdkafka and with Java."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from pyrklog.config.broker_options import RACK_AWARE_SELECTOR
from tests.support import jvm
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create, in_sync, leaders, produce
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.jvm

RACKS = {1: "a", 2: "b", 3: "c"}
ALL = set(RACKS)


@pytest.fixture
def racks(new_cluster: Callable[..., BrokerCluster]) -> BrokerCluster:
    options = {"replica.selector.class": RACK_AWARE_SELECTOR}
    return new_cluster(racks=RACKS, **options).start()


class Reader:
    """A consumer of one partition that knows which broker it reads from."""

    def __init__(self, cluster: BrokerCluster, topic: str, rack: str) -> None:
        self.values: list[int] = []
        self.broker = -1
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "nobody",
                "client.rack": rack,
                "enable.auto.commit": False,
                "statistics.interval.ms": 100,
                "stats_cb": self._look,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def _look(self, text: str) -> None:
        topics = json.loads(text)["topics"]
        if self._topic in topics:
            self.broker = int(topics[self._topic]["partitions"]["0"]["broker"])

    def read_until(self, condition: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"{otherwise}: {self.broker}, {len(self.values)}"
            for message in self._consumer.consume(1000, 0.2):
                if message.error() is None:
                    self.values.append(int(message.value() or b""))

    def close(self) -> None:
        self._consumer.close()


def _write(cluster: BrokerCluster, topic: str, begin: int, end: int) -> None:
    produce(cluster, topic, 1, [str(number).encode() for number in range(begin, end)])


def test_librdkafka_reads_in_its_rack_and_goes_on_without_it(
    racks: BrokerCluster, topic: str
) -> None:
    admin = create(racks, topic, 1, 3, options={"min.insync.replicas": "2"})
    wait_until(lambda: in_sync(admin, topic) == {0: ALL}, "not in sync")
    leader = leaders(admin, topic)[0]
    near, other = sorted(ALL - {leader})
    _write(racks, topic, 0, 500)
    reader = Reader(racks, topic, RACKS[near])
    reader.read_until(lambda: reader.broker == near, "it does not read from its rack")
    reader.read_until(lambda: len(reader.values) == 500, "records are missing")
    # New records come from there.
    _write(racks, topic, 500, 1000)
    reader.read_until(lambda: len(reader.values) == 1000, "news does not arrive")
    reader.read_until(lambda: reader.broker == near, "it left its rack")
    racks.brokers[near].kill()
    _write(racks, topic, 1000, 1500)
    reader.read_until(lambda: len(reader.values) == 1500, "it hangs on a dead replica")
    assert reader.values == list(range(1500))
    # The leader may name the dead replica again until its session has ended.
    reader.read_until(lambda: reader.broker in {leader, other}, "it stays at the dead replica")
    # It returns, and is read from again once it is in sync.
    racks.brokers[near].start()
    wait_until(lambda: in_sync(admin, topic) == {0: ALL}, "not in sync again")
    reader.read_until(lambda: reader.broker == near, "it does not come back to its rack")
    racks.brokers[leader].kill()
    _write(racks, topic, 1500, 2000)
    reader.read_until(lambda: len(reader.values) == 2000, "it hangs without the old leader")
    assert reader.values == list(range(2000)), "each once, in order"
    reader.close()


def test_java_reads_in_its_rack(racks: BrokerCluster, topic: str) -> None:
    admin = create(racks, topic, 1, 3)
    wait_until(lambda: in_sync(admin, topic) == {0: ALL}, "not in sync")
    leader = leaders(admin, topic)[0]
    near = min(ALL - {leader})
    _write(racks, topic, 0, 100)
    program = Path(__file__).with_name("RackReader.java")
    output = jvm.run(str(program), racks.bootstrap, topic, RACKS[near], "100").splitlines()
    assert output == [f"replica {near}", *(str(number) for number in range(100))]


def test_a_selector_that_is_not_known_is_refused(
    new_cluster: Callable[..., BrokerCluster],
) -> None:
    options = {"replica.selector.class": "com.example.Selector"}
    with pytest.raises(Exception, match=r"replica\.selector\.class.*classes cannot be loaded"):
        new_cluster(count=1, **options).start()
