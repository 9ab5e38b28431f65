"""A broker that lost its last records leads in a new leader epoch (KIP-320)."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from pyrklog.testing import TestBroker
from tests.support import wire
from tests.support.faults.driver import FaultDriver
from tests.support.faults.machine import arena_files
from tests.support.faults.site import Lone

DEADLINE_S = 30
BEFORE = [b"before %d" % number for number in range(100)]
AFTER = [b"after %d" % number for number in range(110)]


def produce(broker: TestBroker, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(DEADLINE_S) == 0


def read(consumer: Any, kind: bytes, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        (message, *_) = consumer.consume(1, DEADLINE_S) or [None]
        assert message is not None, f"only {len(found)} records came"
        assert message.error() is None, message.error()
        if message.value().startswith(kind):
            found.append(message.value())
    return found


def epochs(broker: TestBroker, topic: str) -> set[int]:
    return {batch.leader_epoch for batch in wire.fetch_batches(broker.bootstrap, topic)}


def test_consumer_learns_that_records_it_has_read_are_lost(
    new_broker: Callable[..., TestBroker], topic: str
) -> None:
    """Other records have its offsets by then: without an epoch it would continue after them."""
    # Data stays in memory: the disk has none of it.
    broker = new_broker(options={"pyrklog.cache.flush.ms": 600_000}).start()
    produce(broker, topic, BEFORE)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reads",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert read(consumer, b"before", len(BEFORE)) == BEFORE
    assert epochs(broker, topic) == {0}
    (arena,) = arena_files(broker.data)
    assert arena.exists()
    with FaultDriver(Lone(broker)).fault("machine_crash", 1):
        assert not arena.exists()
    produce(broker, topic, AFTER)
    assert max(epochs(broker, topic)) == 1
    assert read(consumer, b"after", len(AFTER)) == AFTER
    consumer.close()


def test_broker_without_losses_keeps_its_leader_epoch(
    new_broker: Callable[..., TestBroker], topic: str
) -> None:
    broker = new_broker().start()
    produce(broker, topic, BEFORE)
    broker.kill()
    broker.start()
    broker.stop()
    broker.start()
    produce(broker, topic, AFTER)
    assert epochs(broker, topic) == {0}
