"""Three replicas of everything: what all have acknowledged survives any one broker."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import consume, create, in_sync, leaders, produce
from tests.support.cluster_load import Writer, check
from tests.support.faults.driver import FaultDriver
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jvm

ALL = {1, 2, 3}
STRICT = {"min.insync.replicas": "2"}
PATIENT = {
    "zookeeper.session.timeout.ms": 600_000,
    "pyrklog.failover.suspicion": False,
    "replica.lag.time.max.ms": 600_000,
}


def whole(admin: AdminClient, topic: str) -> Callable[[], bool]:
    return lambda: all(isr == ALL for isr in in_sync(admin, topic).values())


def test_each_broker_is_killed_once_under_load(cluster: BrokerCluster, topic: str) -> None:
    admin = create(cluster, topic, 6, 3, options=STRICT)
    writer = Writer(cluster, topic, 6)
    writer.go_on()
    try:
        for number, broker in cluster.brokers.items():
            broker.kill()
            wait_until(
                lambda number=number: number not in leaders(admin, topic).values(),  # type: ignore[misc]
                "it still leads",
            )
            writer.go_on()
            broker.start()
            wait_until(whole(admin, topic), f"{in_sync(admin, topic)} after {number}")
            writer.go_on()
    finally:
        writer.stop()
    check(cluster, topic, writer)


def test_orderly_end_of_a_broker_interrupts_no_client(cluster: BrokerCluster, topic: str) -> None:
    admin = create(cluster, topic, 6, 3, options=STRICT)
    writer = Writer(cluster, topic, 6)
    writer.go_on()
    try:
        for broker in cluster.brokers.values():
            # A disk too busy to sync within eight seconds is reported, and the broker recovers.
            said = "" if broker.stop() == 0 else '"event": "not_flushed"'
            lines = list(broker.log)
            assert any(said in line for line in lines), "".join(lines[-20:])
            assert any('"event": "left"' in line for line in lines)
            writer.go_on()
            broker.start()
            wait_until(whole(admin, topic), "not all are in sync again")
    finally:
        writer.stop()
    check(cluster, topic, writer)


def test_too_few_replicas_are_refused_and_taken_again(cluster: BrokerCluster, topic: str) -> None:
    admin = create(cluster, topic, 1, 3, options=STRICT)
    produce(cluster, topic, 1, [b"first"])
    (leader,) = leaders(admin, topic).values()
    others = [broker for number, broker in cluster.brokers.items() if number != leader]
    for broker in others:
        broker.kill()
    wait_until(lambda: in_sync(admin, topic)[0] == {leader}, "the others are in sync still")
    errors: list[str] = []
    strict = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "delivery.timeout.ms": 3_000}
    )
    strict.produce(topic, b"refused", on_delivery=lambda e, _: errors.append(e.name() if e else ""))
    strict.flush(30)
    assert errors in (["_MSG_TIMED_OUT"], ["NOT_ENOUGH_REPLICAS"])
    for broker in others:
        broker.start()
    wait_until(whole(admin, topic), "not all are in sync again")
    produce(cluster, topic, 1, [b"second"])
    found = consume(cluster, topic, 2, "g")
    assert found == [b"first", b"second"]


def test_new_replica_starts_at_the_leaders_log_start(cluster: BrokerCluster, topic: str) -> None:
    admin = create(cluster, topic, 1, 3)
    produce(cluster, topic, 1, [b"x" * 20_000] * 5)
    wait_until(whole(admin, topic), "not all are in sync")
    (leader,) = leaders(admin, topic).values()
    away = next(number for number in cluster.brokers if number != leader)
    cluster.brokers[away].kill()
    wait_until(lambda: away not in in_sync(admin, topic)[0], "it is in sync still")
    produce(cluster, topic, 1, [b"y" * 20_000] * 100)
    admin.delete_records([_at(topic, 60)])[_at(topic, 60)].result(30)
    cluster.brokers[away].start()
    wait_until(whole(admin, topic), "not all are in sync again")
    # Log lines pass a pipe, so what they tell may be seen before.
    wait_until(
        lambda: any("replica_restarted" in line for line in list(cluster.brokers[away].log)),
        "it does not say that it has begun anew",
    )
    produce(cluster, topic, 1, [b"z"])


def test_deleted_records_are_gone_at_all_live_replicas_when_the_answer_comes(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    # The paused replica counts as alive for longer than the request waits.
    cluster = new_cluster(**PATIENT).start()
    admin = create(cluster, topic, 1, 3)
    produce(cluster, topic, 1, [b"x"] * 10)
    wait_until(whole(admin, topic), "not all are in sync")
    (leader,) = leaders(admin, topic).values()
    slow = next(number for number in cluster.brokers if number != leader)
    with FaultDriver(cluster).fault("pause", slow):
        future = admin.delete_records([_at(topic, 4)], operation_timeout=1)[_at(topic, 4)]
        with pytest.raises(KafkaException) as late:
            future.result(30)
        assert late.value.args[0].code() == KafkaError.REQUEST_TIMED_OUT
    for offset in (4, 6):
        future = admin.delete_records([_at(topic, offset)], operation_timeout=20)[_at(topic, 4)]
        assert future.result(30).low_watermark == offset


def _at(topic: str, offset: int) -> object:
    from confluent_kafka import TopicPartition

    return TopicPartition(topic, 0, offset)
