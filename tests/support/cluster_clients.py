from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from pyrklog.errors import ErrorCode
from tests.support.cluster import BrokerCluster
from tests.support.knowing import leaders_of, told_by
from tests.support.waiting import PATIENCE_S, wait_until


def create(
    cluster: BrokerCluster,
    topic: str,
    partitions: int,
    replicas: int = 1,
    *,
    bootstrap: str | None = None,
    options: Mapping[str, str] | None = None,
) -> AdminClient:
    """Creates a topic, even while the controller changes. Every running broker knows its leaders
    then."""
    admin = AdminClient({"bootstrap.servers": bootstrap or cluster.bootstrap})
    new = NewTopic(topic, partitions, replicas, config=dict(options or {}))
    _ask_controller(admin, lambda: admin.create_topics([new])[topic].result(30))
    _wait_until_known(cluster, topic, partitions)
    return admin


def _wait_until_known(cluster: BrokerCluster, topic: str, partitions: int) -> None:
    """The controller's answer comes before the others hear of the topic, and librdkafka asks
    anyone."""

    def is_known_to(address: str) -> bool:
        try:
            found = leaders_of(told_by(address), topic)
        except OSError:
            return True  # it does not run, so that no client is told by it
        return len(found) == partitions and -1 not in found.values()

    addresses = cluster.bootstrap.split(",")
    wait_until(
        lambda: all(map(is_known_to, addresses)), f"not all brokers know the leaders of {topic}"
    )


def survivor_of(bootstrap: str) -> AdminClient:
    """A client for while a broker hangs. librdkafka asks any broker that it is connected to, and
    one that hangs for as long as a request may take."""
    return AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 3_000})


def enlarge(admin: AdminClient, topic: str, partitions: int) -> None:
    """Adds partitions to a topic, even while the controller changes."""
    new = NewPartitions(topic, partitions)
    _ask_controller(admin, lambda: admin.create_partitions([new])[topic].result(30))


def _ask_controller(admin: AdminClient, ask: Callable[[], None]) -> None:
    """librdkafka does not look for the new controller by itself."""

    def is_done() -> bool:
        try:
            ask()
        except KafkaException as error:
            if error.args[0].code() != ErrorCode.NOT_CONTROLLER:
                raise
            admin.list_topics(timeout=30)
            return False
        return True

    wait_until(is_done, "no broker takes it")


def described(admin: AdminClient, topic: str) -> dict[int, Any]:
    """The partitions of a topic that exists, by number.

    librdkafka may wait for a broker that was just killed or hangs until the request times out, a
    minute later. A broker that has not heard of the topic yet tells of no partitions: a test would
    take what it says of all of them for true.
    """

    def told() -> dict[int, Any]:
        try:
            found: dict[int, Any] = admin.list_topics(topic, timeout=5).topics[topic].partitions
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TIMED_OUT:
                raise
            return {}
        return found

    return wait_until(told, f"nobody tells of {topic}", 60 + PATIENCE_S)


def leaders(admin: AdminClient, topic: str) -> dict[int, int]:
    return {index: item.leader for index, item in described(admin, topic).items()}


def in_sync(admin: AdminClient, topic: str) -> dict[int, set[int]]:
    return {index: set(item.isrs) for index, item in described(admin, topic).items()}


def end_offset(consumer: Consumer, place: TopicPartition, within_s: float = PATIENCE_S) -> int:
    """A partition's end offset, even while its leader moves."""
    return watermarks(consumer, place, within_s)[1]


def watermarks(
    consumer: Consumer, place: TopicPartition, within_s: float = PATIENCE_S
) -> tuple[int, int]:
    """Where a partition begins and ends, even while its leader moves.

    librdkafka asks the leader it last heard of. That broker may have lost the leadership, or not
    know the high watermark yet (KIP-207). After metadata without the leader's broker, as when all
    sessions have just ended, librdkafka drops the broker and calls the partition unknown without
    asking anybody (``rd_kafka_topic_partition_list_query_leaders``). This function then forces new
    metadata.
    """
    told = ""

    def found() -> tuple[int, int] | None:
        nonlocal told
        try:
            both: tuple[int, int] | None = consumer.get_watermark_offsets(place, timeout=5)
        except KafkaException as error:
            told = str(error)
            with suppress(KafkaException):
                consumer.list_topics(place.topic, timeout=5)
            return None
        return both

    return wait_until(found, lambda: f"{place} has no end: {told}", within_s)


def produce(
    cluster: BrokerCluster,
    topic: str,
    partitions: int,
    values: list[bytes],
    *,
    idempotent: bool = True,
) -> None:
    """Writes each value to each partition; fails unless all are acknowledged."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": idempotent})
    for value in values:
        for partition in range(partitions):
            producer.produce(
                topic,
                value,
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
    assert producer.flush(60) == 0
    assert not failed


def consume(cluster: BrokerCluster, topic: str, count: int, group: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count}"
        messages = consumer.consume(10_000, 0.5)
        found += [item.value() or b"" for item in messages if item.error() is None]
    consumer.close()
    return found
