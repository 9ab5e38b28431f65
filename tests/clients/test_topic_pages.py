"""DescribeTopicPartitions (KIP-966): Java's admin clients use it where it is advertised."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.protocol.topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from pyrklog.testing import TestBroker
from pyrklog.testing.broker import free_port
from tests.support import jvm, kafka_tools
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create
from tests.support.knowing import leaders_of, wait_until_each
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until
from tests.support.watching_proxy import Passing, WatchingProxy

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(180)]

JARS = pytest.mark.parametrize(
    "jars", [jvm.KAFKA_JARS, jvm.KAFKA4_JARS], ids=["java-3.9", "java-4.0"]
)
PARTITIONS = 75
PROGRAM = str(Path(__file__).with_name("TopicPages.java"))


@JARS
def test_java_describes_topics_in_pages(
    new_broker: Callable[..., TestBroker], topic: str, jars: Path
) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    options = {"advertised.listeners": f"PLAINTEXT://{address}"}
    broker = new_broker(options=options, arguments=["--broker-id", "1"]).start()
    asked: list[int] = []

    def watch(passing: Passing) -> None:
        if passing.is_request:
            asked.append(passing.api_key)

    with WatchingProxy(broker.bootstrap, port, watch):
        admin = AdminClient({"bootstrap.servers": address})
        made = admin.create_topics([NewTopic(f"{topic}-a", 5), NewTopic(f"{topic}-b", 2)])
        for future in made.values():
            future.result(30)
        asked.clear()
        names = f"{topic}-b,{topic}-none,{topic}-a"
        output = jvm.run(PROGRAM, address, names, "2", jars=jars)
    wanted = [f"{topic}-a {index} 1 [1] [1]" for index in range(5)]
    wanted += [f"{topic}-b {index} 1 [1] [1]" for index in range(2)]
    assert output.splitlines() == [*wanted, f"{topic}-none UnknownTopicOrPartitionException"]
    # Seven partitions, two a page; an unknown topic behind a full page has one of its own.
    assert asked.count(PARTITIONS) == 4


@JARS
def test_java_describes_topics_of_a_cluster(cluster: BrokerCluster, topic: str, jars: Path) -> None:
    create(cluster, topic, 6, 2)
    wait_until_each(
        cluster.bootstrap, lambda told: len(leaders_of(told, topic)) == 6, "not all know the topic"
    )
    wanted: list[str] = []

    def is_described() -> bool:
        """A session that a busy machine ends moves leaders between the two answers."""
        wanted[:] = [
            f"{topic} {index} {leader} {replicas} {isr}"
            for index, (leader, replicas, isr) in sorted(states(cluster.bootstrap, topic).items())
        ]
        output = jvm.run(PROGRAM, cluster.bootstrap, topic, "4", jars=jars)
        return output.splitlines() == wanted

    wait_until(is_described, lambda: f"not told: {wanted}")
    assert len({line.split()[2] for line in wanted}) == 3, "all brokers lead"


def states(bootstrap: str, topic: str) -> dict[int, tuple[int, list[int], list[int]]]:
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=30)
    partitions = found.topics[topic].partitions
    return {one.id: (one.leader, one.replicas, one.isrs) for one in partitions.values()}


def test_apaches_tool_describes_topics_in_pages(bootstrap: str, topic: str) -> None:
    create_command = f"topics --create --topic {topic} --partitions 5"
    limit = "--partition-size-limit-per-response 2"
    _, described = kafka_tools.run(
        bootstrap, [create_command, f"topics --describe --topic {topic} {limit}"]
    )
    lines = [line for line in described.lines if f"Topic: {topic} Partition:" in line]
    assert [line.split()[3] for line in lines] == ["0", "1", "2", "3", "4"]


def test_a_page_is_no_larger_than_the_broker_allows(
    new_broker: Callable[..., TestBroker], topic: str
) -> None:
    broker = new_broker(options={"max.request.partition.size.limit": "3"}).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 5)])[topic].result(30)
    with RawClient(broker.bootstrap) as raw:
        for topics in ([], [TopicRequest(topic)]):
            request = DescribeTopicPartitionsRequest(topics, 2**31 - 1)
            first = raw.ask(DESCRIBE_TOPIC_PARTITIONS, 0, request)
            assert [one.partition_index for one in first.topics[0].partitions] == [0, 1, 2]
            assert first.next_cursor == Cursor(topic, 3)
            request = DescribeTopicPartitionsRequest(topics, 2**31 - 1, first.next_cursor)
            second = raw.ask(DESCRIBE_TOPIC_PARTITIONS, 0, request)
            assert [one.partition_index for one in second.topics[0].partitions] == [3, 4]
            assert second.next_cursor is None
