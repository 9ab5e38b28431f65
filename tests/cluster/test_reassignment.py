"""Partitions move to other brokers under load; no acknowledged record is lost."""

import json
from collections.abc import Callable, Iterator, Sequence

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from pyrklog.metastore import znodes
from tests.support import reassigning
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import in_sync, leaders
from tests.support.cluster_load import Writer, check
from tests.support.faults.driver import FaultDriver
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jvm

PARTITIONS = 4
STRICT = {"min.insync.replicas": "2"}


@pytest.fixture
def cluster(new_cluster: Callable[..., BrokerCluster]) -> BrokerCluster:
    return new_cluster(count=4).start()


@pytest.fixture
def client(cluster: BrokerCluster) -> Iterator[KafkaAdminClient]:
    """An admin client that finds the controller by itself."""
    found = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    yield found
    found.close()


def admin_of(cluster: BrokerCluster, *numbers: int) -> AdminClient:
    """librdkafka's, which asks these brokers."""
    bootstrap = [cluster.brokers[number].bootstrap for number in numbers] or [cluster.bootstrap]
    return AdminClient({"bootstrap.servers": ",".join(bootstrap)})


def create_on(cluster: BrokerCluster, topic: str, *assignment: Sequence[int]) -> None:
    """A topic whose partition p has ``assignment[p]``; every replica in sync."""
    new = NewTopic(
        topic,
        len(assignment),
        replica_assignment=[list(item) for item in assignment],
        config=STRICT,
    )
    admin = admin_of(cluster)
    admin.create_topics([new])[topic].result(30)
    wanted = {index: set(item) for index, item in enumerate(assignment)}
    wait_until(lambda: in_sync(admin, topic) == wanted, "not all are in sync")


def move(
    client: KafkaAdminClient, topic: str, partitions: int, targets: Sequence[int] | None
) -> None:
    """Requests a reassignment, which must be accepted."""
    wanted = {TopicPartition(topic, index): targets for index in range(partitions)}
    assert client.alter_partition_reassignments(wanted) == dict.fromkeys(wanted)


def has_arrived(cluster: BrokerCluster, topic: str, *targets: int) -> Callable[[], bool]:
    """Whether ZooKeeper has exactly these replicas, in sync and with one as leader."""

    def look() -> bool:
        node = cluster.json(f"/brokers/topics/{topic}")
        if node["adding_replicas"] or node["removing_replicas"]:
            return False
        states = [
            cluster.json(f"/brokers/topics/{topic}/partitions/{index}/state")
            for index in range(len(node["partitions"]))
        ]
        return all(item == list(targets) for item in node["partitions"].values()) and all(
            set(state["isr"]) == set(targets) and state["leader"] in targets for state in states
        )

    return look


def folders(cluster: BrokerCluster, topic: str, number: int) -> list[str]:
    found = cluster.brokers[number].data.glob(f"logs/{topic}-*")
    return sorted(path.name for path in found if not path.name.endswith("-delete"))


def test_a_topic_moves_to_other_brokers_under_load(
    cluster: BrokerCluster, topic: str, client: KafkaAdminClient
) -> None:
    create_on(cluster, topic, *[(1, 2)] * PARTITIONS)
    writer = Writer(cluster, topic, PARTITIONS)
    writer.go_on(2_000)
    try:
        move(client, topic, PARTITIONS, (3, 4))
        wait_until(has_arrived(cluster, topic, 3, 4), "it does not arrive")
        # The controller hears of its last write after ZooKeeper has it.
        wait_until(lambda: client.list_partition_reassignments() == {}, "it is under way still")
        writer.go_on()
        admin = admin_of(cluster)
        wait_until(
            lambda: set(leaders(admin, topic).values()) <= {3, 4}, "clients are told of others"
        )
        for number in (1, 2):
            wait_until(lambda n=number: not folders(cluster, topic, n), "old replicas stay")  # type: ignore[misc]
        for number in (3, 4):
            assert len(folders(cluster, topic, number)) == PARTITIONS
    finally:
        writer.stop()
    check(cluster, topic, writer)


@pytest.mark.parametrize("has_it", [True, False])
def test_reassignment_survives_a_killed_controller(
    cluster: BrokerCluster, topic: str, client: KafkaAdminClient, has_it: bool
) -> None:
    """It has the topic, or is to get it."""
    killed = cluster.controller()
    first, second, third = (number for number in cluster.brokers if number != killed)
    sources, targets = (killed, first), (second, third)
    if not has_it:
        sources, targets = targets, sources
    create_on(cluster, topic, *[sources] * PARTITIONS)
    writer = Writer(cluster, topic, PARTITIONS)
    writer.go_on(2_000)
    try:
        move(client, topic, PARTITIONS, targets)
        cluster.brokers[killed].kill()
        wait_until(lambda: cluster.is_gone(killed), "its session does not end")
        cluster.brokers[killed].start()
        wait_until(has_arrived(cluster, topic, *targets), "it does not arrive")
        writer.go_on()
    finally:
        writer.stop()
    check(cluster, topic, writer)


def test_reassignment_to_a_stalled_broker_is_cancelled(cluster: BrokerCluster, topic: str) -> None:
    controller = cluster.controller()
    still, first, second, third = sorted(cluster.brokers, key=lambda number: number == controller)
    create_on(cluster, topic, (first, second))
    asked = cluster.brokers[controller].bootstrap
    with FaultDriver(cluster).fault("pause", still):
        reassigning.move(asked, topic, (third, still))
        whole = [third, still, first, second]
        assert reassigning.moving(asked) == {(topic, 0): (whole, [third, still], [first, second])}
        state = f"/brokers/topics/{topic}/partitions/0/state"
        wait_until(lambda: third in cluster.json(state)["isr"], "it does not catch up")
        reassigning.move(asked, topic, None)
        wait_until(has_arrived(cluster, topic, first, second), "it is not as before")
        wait_until(lambda: reassigning.moving(asked) == {}, "it is under way still")
        wait_until(lambda: not folders(cluster, topic, third), "the new replica stays")


def test_the_legacy_znodes_are_honoured(cluster: BrokerCluster, topic: str) -> None:
    create_on(cluster, topic, (1, 2))
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [3, 4]}]}
    cluster.store.create(znodes.REASSIGN_PARTITIONS, json.dumps(wanted).encode())
    wait_until(has_arrived(cluster, topic, 3, 4), "it does not arrive")
    path = znodes.REASSIGN_PARTITIONS
    wait_until(lambda: cluster.store.exists(path) is None, "the znode stays")
    admin = admin_of(cluster)
    wanted["partitions"][0]["replicas"] = [4, 3]  # type: ignore[index]
    cluster.store.create(path, json.dumps(wanted).encode())
    wait_until(lambda: cluster.store.exists(path) is None, "the second one stays")
    (led_by,) = leaders(admin, topic).values()
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0}]}
    cluster.store.create(znodes.PREFERRED_ELECTION, json.dumps(wanted).encode())
    path = znodes.PREFERRED_ELECTION
    wait_until(lambda: cluster.store.exists(path) is None, "the znode stays")
    wait_until(lambda: leaders(admin, topic) == {0: 4}, f"{led_by} leads still")
