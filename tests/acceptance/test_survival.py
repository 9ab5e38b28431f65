"""Rows 8, 14, 39, 40: what three brokers keep while one dies.

Row 8 (franz-go's) is driven by librdkafka: the Go clients are not installed. Row 40 by Spark is
``tests/cluster/test_spark.py``.
"""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from pyrklog.groups.partitioner import OFFSETS_TOPIC, partition_for
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create, end_offset, in_sync, leaders, produce
from tests.support.verifiable import Verifiable, verifiable
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.jvm

ALL = {1, 2, 3}
STRICT = {"min.insync.replicas": "2"}
FAILOVER_S = 1.0
FAILOVERS_MAX = 4


def coordinator(admin: AdminClient, group: str) -> int:
    """The leader of the group's partition of the offsets topic."""
    found = leaders(admin, OFFSETS_TOPIC)
    return found[partition_for(group, len(found))]


def whole(admin: AdminClient, topic: str) -> bool:
    return all(isr == ALL for isr in in_sync(admin, topic).values())


def test_row_08_leader_epoch_of_a_commit_survives_moves_of_the_coordinator(
    cluster: BrokerCluster, topic: str
) -> None:
    admin = create(cluster, topic, 1, 3)
    produce(cluster, topic, 1, [b"v"] * 10)
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": topic}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    place = TopicPartition(topic, 0, 7, metadata="noted", leader_epoch=5)
    wait_until(lambda: commits(consumer, place), "nobody takes the commit")
    for _ in range(2):
        wait_until(lambda: whole(admin, OFFSETS_TOPIC), "the offsets have too few replicas")
        before = coordinator(admin, topic)
        cluster.brokers[before].kill()
        wait_until(lambda: coordinator(admin, topic) not in (before, -1), "nobody takes over")  # noqa: B023
        found: list[TopicPartition] = []
        wait_until(lambda: asks(consumer, place, found), "nobody knows the commit")  # noqa: B023
        assert (found[0].offset, found[0].metadata, found[0].leader_epoch) == (7, "noted", 5)
        cluster.brokers[before].start()
    consumer.close()


def commits(consumer: Consumer, place: TopicPartition) -> bool:
    try:
        return all(p.error is None for p in consumer.commit(offsets=[place], asynchronous=False))
    except KafkaException:
        return False


def asks(consumer: Consumer, place: TopicPartition, found: list[TopicPartition]) -> bool:
    """Whether the committed offset is told; stores it in ``found``."""
    try:
        found[:] = consumer.committed([TopicPartition(place.topic, place.partition)], timeout=5)
    except KafkaException:
        return False
    return found[0].error is None


def test_row_14_group_goes_on_without_a_rebalance_when_its_coordinator_is_killed(
    cluster: BrokerCluster, topic: str
) -> None:
    admin = create(cluster, topic, 3, 3, options=STRICT)
    produce(cluster, topic, 3, [b"v"] * 10)
    arguments = ["--bootstrap-server", cluster.bootstrap, "--topic", topic, "--group-id", topic]
    options = ["--reset-policy", "earliest", "--session-timeout", "30000"]
    with verifiable("VerifiableConsumer", *arguments, *options) as consumer:
        consumer.wait("offsets_committed")
        wait_until(lambda: consumed(consumer) == 30, "not everything is consumed")
        wait_until(lambda: whole(admin, OFFSETS_TOPIC), "the offsets have too few replicas")
        assigned = len(consumer.named("partitions_assigned"))
        before = coordinator(admin, topic)
        cluster.brokers[before].kill()
        wait_until(lambda: coordinator(admin, topic) not in (before, -1), "nobody takes over")
        produce(cluster, topic, 3, [b"w"] * 10)
        wait_until(lambda: consumed(consumer) == 60, "not everything is consumed")
        wait_until(lambda: committed(consumer) == {0: 20, 1: 20, 2: 20}, "not all is committed")
        assert consumer.named("partitions_revoked") == []
        assert len(consumer.named("partitions_assigned")) == assigned
        shares = wait_until(lambda: shares_of(admin, topic), "no coordinator tells of the group")
        assert shares == [3]


def shares_of(admin: AdminClient, group: str) -> list[int] | None:
    """How many partitions each member has; None while a coordinator is not found: librdkafka does
    not ask again where the dead one was named for a moment more."""
    try:
        described = admin.describe_consumer_groups([group])[group].result(30)
    except KafkaException:
        return None
    return [len(member.assignment.topic_partitions) for member in described.members]


def consumed(consumer: Verifiable) -> int:
    return sum(event["count"] for event in consumer.named("records_consumed"))


def committed(consumer: Verifiable) -> dict[int, int]:
    """The last offsets that it committed successfully."""
    return {
        place["partition"]: place["offset"]
        for event in consumer.named("offsets_committed")
        if event["success"]
        for place in event["offsets"]
    }


def test_row_39_records_of_an_isolated_leader_are_not_shown(
    cluster: BrokerCluster, topic: str
) -> None:
    """With acks=1 they are acknowledged; consumers get them once there are enough replicas."""
    admin = create(cluster, topic, 1, 3, options=STRICT)
    produce(cluster, topic, 1, [b"seen"])
    (leader,) = leaders(admin, topic).values()
    others = [broker for number, broker in cluster.brokers.items() if number != leader]
    for broker in others:
        broker.kill()
    wait_until(lambda: in_sync(admin, topic)[0] == {leader}, "the others are in sync still")
    bootstrap = cluster.brokers[leader].bootstrap
    places: list[int] = []
    careless = Producer({"bootstrap.servers": bootstrap, "acks": 1})
    careless.produce(topic, b"hidden", on_delivery=lambda error, m: places.append(m.offset()))
    assert careless.flush(30) == 0
    assert places == [1], "it is acknowledged"

    # Assigned by hand, because there may be no coordinator.
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "fetch.wait.max.ms": 100}
    consumer = Consumer({**settings, "auto.offset.reset": "error", "enable.partition.eof": True})
    place = TopicPartition(topic, 0, 0)
    consumer.assign([place])
    found: list[bytes] = []

    def read() -> bool:
        """Whether the end was reached."""
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
        return message is not None and message.error() is not None

    wait_until(read, "there is no end")
    assert found == [b"seen"]
    assert end_offset(consumer, place) == 1
    others[0].start()
    wait_until(lambda: not read() and len(found) == 2, "it stays hidden")
    assert found == [b"seen", b"hidden"]
    assert end_offset(consumer, place) == 2
    consumer.close()


def test_row_40_java_client_loses_nothing_when_leader_and_controller_are_killed(
    cluster: BrokerCluster, topic: str
) -> None:
    """Others lead within a second. A busy machine gets more tries."""
    admin = create(cluster, topic, 3, 3, options=STRICT)
    where = ["--bootstrap-server", cluster.bootstrap, "--topic", topic]
    taken_s: list[float] = []
    with verifiable("VerifiableProducer", *where, "--throughput", "1000", "--acks", "-1") as writer:
        writer.wait("producer_send_success", 500)
        while min(taken_s, default=PATIENCE_S) >= FAILOVER_S and len(taken_s) < FAILOVERS_MAX:
            wait_until(lambda: whole(admin, topic), "not everything is in sync")
            victim = cluster.controller()
            taken_s.append(kill_and_wait(cluster, topic, victim))
            known = len(writer.named("producer_send_success"))
            writer.wait("producer_send_success", known + 500)
            cluster.brokers[victim].start()
    # It does not retry: a failed record may be there or not.
    written = writer.named("producer_send_success")
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
    found: dict[tuple[int, int], str] = {}

    def is_read() -> bool:
        for message in reader.consume(1_000, 1):
            if message.error() is None:
                place = (message.partition(), message.offset())
                found[place] = (message.value() or b"").decode()
        return len(found) >= len(written)

    wait_until(is_read, "not everything is there")
    reader.close()
    for event in written:
        assert found[(event["partition"], event["offset"])] == event["value"]
    assert min(taken_s) < FAILOVER_S, taken_s


def kill_and_wait(cluster: BrokerCluster, topic: str, victim: int) -> float:
    """Kills a leader; returns the seconds until clients see other leaders of all its partitions."""
    rest = [broker.bootstrap for number, broker in cluster.brokers.items() if number != victim]
    survivors = AdminClient({"bootstrap.servers": ",".join(rest)})
    wait_until(lambda: has_led(survivors, topic, victim), "it leads nothing")
    began = time.monotonic()
    cluster.brokers[victim].kill()
    wait_until(lambda: not {victim, -1} & set(leaders(survivors, topic).values()), "not all is led")
    return time.monotonic() - began


def has_led(admin: AdminClient, topic: str, broker: int) -> bool:
    """Whether it leads some of the topic; elects it where it is the preferred leader."""
    if broker in leaders(admin, topic).values():
        return True
    admin.elect_leaders(ElectionType.PREFERRED, None).result(30)
    return False
