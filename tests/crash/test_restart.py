"""Clients that return as soon as the broker listens again."""

from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.testing import TestBroker

PARTITIONS = 20


def test_partitions_are_led_when_it_listens(new_broker: Callable[..., TestBroker]) -> None:
    """librdkafka's watermark look-up does not retry after NOT_LEADER_OR_FOLLOWER."""
    broker = new_broker().start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("kept", PARTITIONS, 1)])["kept"].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(PARTITIONS):
        producer.produce("kept", b"here", partition=partition)
    assert producer.flush(30) == 0
    for _ in range(5):
        broker.kill()
        broker.start()
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
        for partition in range(PARTITIONS):
            place = TopicPartition("kept", partition)
            assert consumer.get_watermark_offsets(place, timeout=10) == (0, 1)
        consumer.close()
