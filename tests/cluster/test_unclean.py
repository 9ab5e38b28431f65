"""A machine that lost power: its broker's unwritten records are gone, and others know."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import consume, create, in_sync, leaders, produce
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jvm

STRICT = {"min.insync.replicas": "2"}


def lose_memory(cluster: BrokerCluster, number: int) -> None:
    data = cluster.brokers[number].data
    arenas = [
        Path(line.removeprefix("path="))
        for marker in data.glob("**/.pyrklog-arena")
        for line in marker.read_text().splitlines()
        if line.startswith("path=")
    ]
    assert arenas, "it had no block cache"
    for arena in arenas:
        arena.unlink()


def says(cluster: BrokerCluster, number: int, event: str) -> bool:
    return any(f'"event": "{event}"' in line for line in list(cluster.brokers[number].log))


def test_replica_that_lost_its_memory_does_not_lead_after_three_kills(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    """It returns first, is in every ISR, and must wait for one that has everything."""
    # Data stays in memory: the disk has none of it.
    cluster = new_cluster(**{"pyrklog.cache.flush.ms": 600_000}).start()
    create(cluster, topic, 6, 3, options=STRICT)
    values = [b"%d" % number for number in range(50)]
    produce(cluster, topic, 6, values)
    for broker in cluster.brokers.values():
        broker.signal(9)
    for broker in cluster.brokers.values():
        broker.wait()
    before = {
        partition: cluster.json(f"/brokers/topics/{topic}/partitions/{partition}/state")
        for partition in range(6)
    }
    lose_memory(cluster, 1)
    wait_until(lambda: not cluster.registered(), "their sessions do not end")
    cluster.brokers[1].start()
    assert says(cluster, 1, "unclean_start")
    first = AdminClient({"bootstrap.servers": cluster.brokers[1].bootstrap})
    # It may lead only where it was alone in sync.
    others = [partition for partition in before if before[partition]["isr"] != [1]]
    assert others

    def state(partition: int) -> tuple[int, list[int]]:
        found = cluster.json(f"/brokers/topics/{topic}/partitions/{partition}/state")
        return found["leader"], found["isr"]

    wanted = {partition: (-1, before[partition]["isr"]) for partition in others}
    # The broker serves before it has decided, as the controller, about each partition.
    wait_until(
        lambda: {partition: state(partition) for partition in others} == wanted,
        lambda: f"{[state(partition) for partition in others]}, not {wanted}",
    )
    wait_until(
        lambda: all(leaders(first, topic)[partition] == -1 for partition in others),
        "somebody is told as a leader",
    )
    cluster.brokers[2].start()
    cluster.brokers[3].start()
    assert not says(cluster, 2, "unclean_start")
    wait_until(
        lambda: all(isr == {1, 2, 3} for isr in in_sync(first, topic).values()),
        "not all are in sync",
    )
    assert sorted(consume(cluster, topic, 300, "g")) == sorted(values * 6)
    wait_until(lambda: cluster.store.exists("/pyrklog/unclean/1") is None, "its mark stays")


def test_two_of_three_replicas_that_lost_their_memory_go_on(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    """The third never returns, and is not waited for."""
    cluster = new_cluster(**{"pyrklog.cache.flush.ms": 600_000}).start()
    create(cluster, topic, 6, 3, options=STRICT)
    produce(cluster, topic, 6, [b"%d" % number for number in range(50)])
    for broker in cluster.brokers.values():
        broker.signal(9)
    for number, broker in cluster.brokers.items():
        broker.wait()
        lose_memory(cluster, number)
    wait_until(lambda: not cluster.registered(), "their sessions do not end")
    for number in (1, 2):
        cluster.brokers[number].start()
        assert says(cluster, number, "unclean_start")
    first = AdminClient({"bootstrap.servers": cluster.brokers[1].bootstrap})
    wait_until(
        lambda: all(isr == {1, 2} for isr in in_sync(first, topic).values()),
        "somebody is waited for who may never come",
    )
    # Log lines pass a pipe, so what they tell may be seen before.
    wait_until(
        lambda: any(says(cluster, number, "led_by_the_most") for number in (1, 2)),
        "nobody says why one leads",
    )
    values = [b"after %d" % number for number in range(50)]
    produce(cluster, topic, 6, values)
    cluster.brokers[3].start()
    wait_until(
        lambda: all(isr == {1, 2, 3} for isr in in_sync(first, topic).values()),
        "not all are in sync",
    )
    # Records from the disks come before it.
    assert any(value.startswith(b"after") for value in consume(cluster, topic, 300, "g"))


def test_killed_or_stopped_broker_registers_no_unclean_mark(
    cluster: BrokerCluster, topic: str
) -> None:
    create(cluster, topic, 3, 3)
    produce(cluster, topic, 3, [b"v"])
    cluster.brokers[2].kill()
    cluster.brokers[3].stop()
    for number in (2, 3):
        cluster.brokers[number].start()
        assert not says(cluster, number, "unclean_start")
