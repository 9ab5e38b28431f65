"""Transactions whose coordinator, partitions and offsets are at different brokers, and what a
killed broker leaves of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from pyrklog.errors import ErrorCode
from pyrklog.groups.partitioner import OFFSETS_TOPIC, partition_for
from pyrklog.protocol.transaction_admin import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    DescribeProducersTopic,
    ProducerState,
)
from pyrklog.transactions.manager import TRANSACTION_TOPIC
from tests.support import kafka_tools
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create, in_sync, leaders
from tests.support.raw_client import RawClient
from tests.support.transactions import committed, producer_of, read, read_committed_when
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(240)]

ALL = {1, 2, 3}
PATIENT = {"transaction.timeout.ms": 600_000}
"""For a transaction that stays open while virtual machines start: by default it has a minute."""
PARTITIONS = 6
STATE_PARTITIONS = 3
OPTIONS: dict[str, Any] = {
    "transaction.state.log.num.partitions": STATE_PARTITIONS,
    "offsets.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}


@pytest.fixture
def cluster(new_cluster: Callable[..., BrokerCluster]) -> BrokerCluster:
    return new_cluster(**OPTIONS).start()


@pytest.fixture
def admin(cluster: BrokerCluster, topic: str) -> AdminClient:
    """With a topic whose partitions have their leaders at all brokers."""
    made = create(cluster, topic, PARTITIONS, 3)
    wait_until(lambda: set(leaders(made, topic).values()) == ALL, "not all lead")
    return made


def write(producer: Any, topic: str, value: bytes) -> None:
    """A transaction with the value in every partition."""
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(topic, value, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def check(cluster: BrokerCluster, topic: str, wanted: list[bytes]) -> None:
    for partition in range(PARTITIONS):
        read_committed_when(cluster.bootstrap, topic, wanted, partition=partition)


def coordinator(admin: AdminClient, name: str) -> int:
    return leaders(admin, TRANSACTION_TOPIC)[partition_for(name, STATE_PARTITIONS)]


def await_replicas(admin: AdminClient, topic: str) -> None:
    wait_until(
        lambda: all(isr == ALL for isr in in_sync(admin, topic).values()), f"{topic} is not in sync"
    )


def named_at(admin: AdminClient, number: int, topic: str) -> str:
    """A transactional id that this broker coordinates."""
    names = (f"{topic}-{index}" for index in range(1000))
    return next(name for name in names if coordinator(admin, name) == number)


def test_transactions_over_all_brokers(
    cluster: BrokerCluster, admin: AdminClient, topic: str
) -> None:
    group = f"{topic}-group"
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), "no partitions")
    for number in range(3):
        producer = producer_of(cluster.bootstrap, f"{topic}-{number}")
        for end in ("abort", "commit"):
            write(producer, topic, b"%d.%s" % (number, end.encode()))
            offset = TopicPartition(topic, number, 10 * number + (end == "commit"))
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([offset], metadata, PATIENCE_S)
            if end == "commit":
                producer.commit_transaction(PATIENCE_S)
            else:
                producer.abort_transaction(PATIENCE_S)
    consumer.close()
    check(cluster, topic, [b"0.commit", b"1.commit", b"2.commit"])
    assert set(leaders(admin, OFFSETS_TOPIC).values()) == ALL
    for number in range(3):
        assert committed(cluster.bootstrap, group, topic, number) == 10 * number + 1


def test_each_replica_tells_of_its_own_producers(
    cluster: BrokerCluster, admin: AdminClient, topic: str
) -> None:
    producer = producer_of(cluster.bootstrap, topic, **PATIENT)
    write(producer, topic, b"open")
    await_replicas(admin, topic)
    asked = DescribeProducersRequest([DescribeProducersTopic(topic, list(range(PARTITIONS)))])

    def told_by(number: int) -> list[tuple[int, list[ProducerState]]]:
        with RawClient(cluster.brokers[number].bootstrap) as client:
            [told] = client.ask(DESCRIBE_PRODUCERS, 0, asked).topics
        return [(one.error_code, one.active_producers) for one in told.partitions]

    def agrees(number: int) -> bool:
        return told_by(number) == first

    # Replicas in sync may be a moment behind.
    wait_until(lambda: all(found for _, found in told_by(1)), "it tells of no producers")
    first = told_by(1)
    for error, found in first:
        assert error == ErrorCode.NONE
        assert [one.current_txn_start_offset for one in found] == [0]
    for number in ALL - {1}:
        wait_until(partial(agrees, number), f"{number} tells something else")
    commands = [
        f"transactions describe-producers --broker-id {number} --topic {topic} --partition 0"
        for number in sorted(ALL)
    ]
    commands += [f"transactions find-hanging --broker-id {number}" for number in sorted(ALL)]
    outputs = kafka_tools.run(cluster.bootstrap, commands)
    assert [one.status for one in outputs] == [0] * len(commands), outputs
    described, hanging = outputs[: len(ALL)], outputs[len(ALL) :]
    producer_id = first[0][1][0].producer_id
    assert all(one.lines[-1].startswith(f"{producer_id} ") for one in described), described
    assert len({tuple(one.lines) for one in hanging}) == 1
    producer.commit_transaction(PATIENCE_S)


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_the_coordinator_is_killed_within_a_transaction(
    cluster: BrokerCluster, admin: AdminClient, topic: str, is_commit: bool
) -> None:
    """Its successor knows the transaction, and ends it at the partitions' new leaders."""
    producer = producer_of(cluster.bootstrap, topic)
    write(producer, topic, b"before")
    producer.commit_transaction(PATIENCE_S)
    await_replicas(admin, topic)
    await_replicas(admin, TRANSACTION_TOPIC)
    write(producer, topic, b"open")
    cluster.brokers[coordinator(admin, topic)].kill()
    if is_commit:
        producer.commit_transaction(PATIENCE_S)
    else:
        producer.abort_transaction(PATIENCE_S)
    wanted = [b"before", b"open"] if is_commit else [b"before"]
    check(cluster, topic, wanted)
    write(producer, topic, b"after")
    producer.commit_transaction(PATIENCE_S)
    check(cluster, topic, [*wanted, b"after"])


def test_the_coordinator_is_killed_right_after_a_decision(
    cluster: BrokerCluster, admin: AdminClient, topic: str
) -> None:
    """EndTxn is answered before the markers are written: the next coordinator writes those that
    are missing."""
    producer = producer_of(cluster.bootstrap, topic)
    write(producer, topic, b"first")
    producer.commit_transaction(PATIENCE_S)
    await_replicas(admin, topic)
    await_replicas(admin, TRANSACTION_TOPIC)
    victim = cluster.brokers[coordinator(admin, topic)]
    write(producer, topic, b"second")
    producer.commit_transaction(PATIENCE_S)
    victim.kill()
    check(cluster, topic, [b"first", b"second"])


def test_a_leader_is_killed_while_its_partition_waits_for_a_marker(
    cluster: BrokerCluster, admin: AdminClient, topic: str
) -> None:
    write_once = producer_of(cluster.bootstrap, topic)
    write(write_once, topic, b"first")
    write_once.commit_transaction(PATIENCE_S)
    await_replicas(admin, topic)
    await_replicas(admin, TRANSACTION_TOPIC)
    name = named_at(admin, 1, topic)
    producer = producer_of(cluster.bootstrap, name)
    write(producer, topic, b"second")
    cluster.brokers[2].kill()
    producer.commit_transaction(PATIENCE_S)
    check(cluster, topic, [b"first", b"second"])


def test_a_zombie_is_fenced_by_the_next_coordinator(
    cluster: BrokerCluster, admin: AdminClient, topic: str
) -> None:
    zombie = producer_of(cluster.bootstrap, topic)
    write(zombie, topic, b"of the zombie")
    await_replicas(admin, topic)
    await_replicas(admin, TRANSACTION_TOPIC)
    cluster.brokers[coordinator(admin, topic)].kill()
    heir = producer_of(cluster.bootstrap, topic)
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(PATIENCE_S)
    assert caught.value.args[0].fatal()
    write(heir, topic, b"of the heir")
    heir.commit_transaction(PATIENCE_S)
    check(cluster, topic, [b"of the heir"])


def test_a_transaction_outlasts_all_brokers(
    cluster: BrokerCluster, admin: AdminClient, topic: str
) -> None:
    """All are killed while one transaction is open; it times out after their return."""
    # A busy machine may need seconds for the first transaction.
    producer = producer_of(cluster.bootstrap, topic, **{"transaction.timeout.ms": 10_000})
    write(producer, topic, b"committed")
    producer.commit_transaction(PATIENCE_S)
    write(producer, topic, b"left open")
    for broker in cluster.brokers.values():
        broker.kill()
    for broker in cluster.brokers.values():
        broker.start()
    check(cluster, topic, [b"committed"])
    heir = producer_of(cluster.bootstrap, f"{topic}-heir")
    write(heir, topic, b"next")
    heir.commit_transaction(PATIENCE_S)
    check(cluster, topic, [b"committed", b"next"])
    assert len(read(cluster.bootstrap, topic, isolation="read_uncommitted")) == 3
