"""Repeated kill -9 under load: acknowledged records are there, in order, once.

A record is acknowledged (acks=all) when every in-sync replica has it; on one broker, when the
operating system has its bytes. An idempotent producer numbers its batches, sends up to five at a
time and repeats unanswered ones. After a kill the broker must know from its files alone which of
these it already has: forgetting one writes it twice, imagining one loses it. One producer lives
through all kills, so a single slip shows at the end.
"""

import os
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.testing import TestBroker
from tests.support.faults.driver import FaultDriver
from tests.support.faults.site import Lone
from tests.support.waiting import wait_until

KILLS = int(os.environ.get("LOADED_KILLS", "15"))
PARTITIONS = 4
ACKNOWLEDGED_PER_LIFE = 400
QUEUED_MAX = 600
PATIENCE_S = 60
NOT_YET = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)


class Load:
    """A producer that writes 0, 1, 2, ... to each partition and counts acknowledgements."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._next = [0] * PARTITIONS
        self.acknowledged = [0] * PARTITIONS
        self.errors: list[Any] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 5,
                "batch.num.messages": 20,
                "linger.ms": 0,
                "compression.type": "lz4",
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
            }
        )

    def run_until(self, acknowledged: int) -> None:
        """Keeps the producer's queue full until ``acknowledged`` more records are acknowledged."""
        target = sum(self.acknowledged) + acknowledged
        deadline = time.monotonic() + PATIENCE_S
        while sum(self.acknowledged) < target:
            assert time.monotonic() < deadline, "the producer makes no progress"
            self._fill()
            self._producer.poll(0.001)
        # Records must be under way when the broker dies.
        self._fill()

    def _fill(self) -> None:
        while len(self._producer) < QUEUED_MAX:
            partition = random.randrange(PARTITIONS)
            self._producer.produce(
                self._topic,
                b"%d " % self._next[partition] + bytes(random.randrange(200)),
                partition=partition,
                on_delivery=self._delivered,
            )
            self._next[partition] += 1

    def in_flight(self) -> int:
        return len(self._producer)

    def settle(self) -> None:
        """Takes the reports of acknowledgements before the broker died."""
        while self._producer.poll(0):
            pass

    def finish(self) -> list[int]:
        assert self._producer.flush(PATIENCE_S) == 0
        assert self.acknowledged == self._next
        return self._next

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(error)
            return
        partition, offset = message.partition(), message.offset()
        if offset != self.acknowledged[partition]:
            self.errors.append(f"{partition}: offset {offset} acknowledged out of turn")
        if message.value().split(b" ", 1)[0] != b"%d" % offset:
            self.errors.append(f"{partition}: offset {offset} acknowledged for another record")
        self.acknowledged[partition] = offset + 1


def watermarks(consumer: Any, place: TopicPartition) -> tuple[int, int]:
    """Start and end; librdkafka does not retry this while the partition has no leader."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            found: tuple[int, int] = consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
            return found
        except KafkaException as error:
            if error.args[0].code() not in NOT_YET or time.monotonic() > deadline:
                raise


def check_records(bootstrap: str, topic: str, at_least: list[int]) -> list[int]:
    """Reads every partition to its end: record N holds N, and no acknowledged one is missing."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "reconnect.backoff.max.ms": 100,
        }
    )
    ends = []
    for partition in range(PARTITIONS):
        place = TopicPartition(topic, partition)
        low, high = watermarks(consumer, place)
        assert low == 0
        assert high >= at_least[partition], "acknowledged records are gone"
        ends.append(high)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    read = [0] * PARTITIONS
    deadline = time.monotonic() + PATIENCE_S
    while any(done < end for done, end in zip(read, ends, strict=True)):
        assert time.monotonic() < deadline, f"only {read} of {ends} could be read"
        for message in consumer.consume(10_000, 0.05):
            if message.error() is not None:
                raise KafkaException(message.error())
            partition = message.partition()
            assert message.offset() == read[partition], "an offset was skipped or repeated"
            assert message.value().split(b" ", 1)[0] == b"%d" % read[partition]
            read[partition] += 1
    consumer.close()
    return read


@pytest.mark.timeout(120 + 20 * KILLS)
def test_kills_under_load(new_broker: Callable[..., TestBroker], topic: str) -> None:
    # Small segments: kills fall into rolls, index writes and producer snapshots.
    broker = new_broker(options={"log.segment.bytes": 60_000, "log.index.interval.bytes": 512})
    broker.start()
    faults = FaultDriver(Lone(broker))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(PATIENCE_S)
    load = Load(broker.bootstrap, topic)
    for turn in range(KILLS):
        load.run_until(ACKNOWLEDGED_PER_LIFE + random.randrange(100))
        with faults.fault("kill", 1):
            assert load.in_flight() > 0
            load.settle()
            acknowledged = list(load.acknowledged)
        check_records(broker.bootstrap, topic, acknowledged)
        assert load.errors == [], f"after kill {turn + 1}"
    total = load.finish()
    assert load.errors == []
    assert check_records(broker.bootstrap, topic, total) == total
    assert sum(total) >= KILLS * ACKNOWLEDGED_PER_LIFE


def _is_led(admin: AdminClient) -> bool:
    """By the only broker, a moment after its start."""
    found = admin.list_topics(timeout=PATIENCE_S)
    partitions = [part for one in found.topics.values() for part in one.partitions.values()]
    return {part.leader for part in partitions} == {found.controller_id}


def test_acknowledged_topics_survive(new_broker: Callable[..., TestBroker], topic: str) -> None:
    """Answered creations, enlargements, options and deletions are as durable as records."""
    broker = new_broker().start()
    expected: dict[str, int] = {}
    for turn in range(8):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        name = f"{topic}-{turn}"
        admin.create_topics([NewTopic(name, 1 + turn, 1)])[name].result(PATIENCE_S)
        expected[name] = 1 + turn
        if turn % 3 == 2:
            gone = f"{topic}-{turn - 1}"
            admin.delete_topics([gone])[gone].result(PATIENCE_S)
            del expected[gone]
        broker.restart()
        fresh = AdminClient({"bootstrap.servers": broker.bootstrap})
        found = fresh.list_topics(timeout=PATIENCE_S)
        assert {name: len(one.partitions) for name, one in found.topics.items()} == expected
        wait_until(partial(_is_led, fresh), "not all partitions are led by their only replica")
    folders = {path.name for path in (broker.data / "logs").iterdir() if path.is_dir()}
    served = {f"{name}-{number}" for name, count in expected.items() for number in range(count)}
    assert served <= folders
    assert not [name for name in folders - served if not name.endswith("-delete")]
