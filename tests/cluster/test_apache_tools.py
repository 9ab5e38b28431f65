"""Apache Kafka's own tools against three of our brokers, and against three of Apache's.

The same session runs on both: tools must print the same, and ZooKeeper must hold the same, except
ids, addresses and times.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient

from tests.support import kafka_tools, reassigning, zookeeper_kafka
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import consume, create, in_sync, produce
from tests.support.faults.driver import FaultDriver
from tests.support.knowing import leaders_of, wait_until_each
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

BROKERS = (1, 2, 3)
OPTIONS = {
    "auto.leader.rebalance.enable": "false",
    "zookeeper.session.timeout.ms": "30000",
}
PLAN = {0: (3, 1), 1: (1, 3)}
BEFORE = {0: (1, 2), 1: (2, 3)}
EMPTY = {"/consumers", "/latest_producer_id_block", "/config/client-metrics"}
"""Znodes that brokers create at their first start and may never fill; the last is only ours, since
Apache's brokers have client metrics without ZooKeeper only."""
WORDS = ("throttle limit was set to", "Successfully started", "is completed", "Clearing")


class Told(NamedTuple):
    outputs: dict[str, kafka_tools.Output]
    throttled: dict[str, bytes]
    """ZooKeeper, below the chroot, while the throttle was set."""
    znodes: dict[str, bytes]
    """The same at the end."""


class Place(NamedTuple):
    bootstrap: str
    zookeeper: str

    @contextmanager
    def store(self) -> Iterator[KazooClient]:
        client = KazooClient(self.zookeeper)
        client.start()
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def dump(self) -> dict[str, bytes]:
        with self.store() as store:
            return dict(_nodes(store, "/"))

    def arrive(self, topic: str) -> None:
        """Waits until nothing of the topic moves."""
        with self.store() as store:

            def rests() -> bool:
                node = json.loads(store.get(f"/brokers/topics/{topic}")[0])
                return not node["adding_replicas"] and not node["removing_replicas"]

            wait_until(rests, "it moves for ever")


def _nodes(store: KazooClient, path: str) -> Iterator[tuple[str, bytes]]:
    yield path, store.get(path)[0] or b""
    for name in sorted(store.get_children(path)):
        yield from _nodes(store, f"{path.rstrip('/')}/{name}")


def plan_file(folder: Path, topic: str, replicas: Mapping[int, tuple[int, ...]]) -> Path:
    """A plan as kafka-reassign-partitions reads it."""
    partitions = [
        {"topic": topic, "partition": index, "replicas": members, "log_dirs": ["any", "any"]}
        for index, members in replicas.items()
    ]
    path = folder / "plan.json"
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return path


def play(place: Place, folder: Path) -> Told:
    outputs: dict[str, kafka_tools.Output] = {}

    def go(*commands: str) -> None:
        found = kafka_tools.run(place.bootstrap, commands)
        outputs.update(zip(commands, found, strict=True))

    plan = plan_file(folder, "t", PLAN)
    go("topics --create --topic t --replica-assignment 1:2,2:3 --config retention.ms=100000")
    producer = Producer({"bootstrap.servers": place.bootstrap, "acks": "all"})
    for partition in PLAN:
        producer.produce("t", b"value", partition=partition)
    assert producer.flush(60) == 0
    go(
        f"reassign-partitions --execute --reassignment-json-file {plan} --throttle 10000000 "
        "--replica-alter-log-dirs-throttle 5000000"
    )
    place.arrive("t")
    go(
        "reassign-partitions --list",
        f"reassign-partitions --verify --reassignment-json-file {plan} --preserve-throttles",
    )
    throttled = place.dump()
    go(
        f"reassign-partitions --verify --reassignment-json-file {plan}",
        "leader-election --election-type preferred --topic t --partition 0",
        "leader-election --election-type preferred --all-topic-partitions",
        "leader-election --election-type unclean --topic t --partition 1",
        "leader-election --election-type preferred --topic u --partition 0",
        "topics --describe",
        "topics --describe --under-replicated-partitions",
        "topics --alter --topic t --partitions 4",
        "configs --alter --entity-type brokers --entity-name 1 "
        "--add-config replica.alter.log.dirs.io.max.bytes.per.second=77",
    )
    describe = "configs --describe --entity-type brokers --entity-name 1"

    def is_described() -> bool:
        go(describe)
        return "per.second=77" in outputs[describe].text

    # Apache's broker hears of it through ZooKeeper, after the tool has succeeded.
    wait_until(is_described, "the option is not described", 2 * PATIENCE_S)
    go("topics --create --topic gone --replica-assignment 1:2:3")
    wait_until_each(place.bootstrap, lambda told: leaders_of(told, "gone") != {}, "it is unknown")
    go("topics --delete --topic gone")
    with place.store() as store:
        wait_until(lambda: store.exists("/brokers/topics/gone") is None, "the topic stays")
        wait_until(lambda: not store.get_children("/admin/delete_topics"), "its mark stays")
        states = [f"/brokers/topics/t/partitions/{index}/state" for index in range(4)]
        wait_until(lambda: all(map(store.exists, states)), "the new partitions are not led")
    go(
        "topics --describe --topic t",
        "log-dirs --describe --topic-list t",
        f"reassign-partitions --cancel --reassignment-json-file {plan}",
    )
    return Told(outputs, throttled, place.dump())


@contextmanager
def apache(address: str, folder: Path) -> Iterator[Place]:
    options = [f"{name}={value}" for name, value in OPTIONS.items()]
    with contextlib.ExitStack() as stack:
        started = []
        for number in BROKERS:
            (folder / str(number)).mkdir(parents=True)
            broker = zookeeper_kafka.kafka(folder / str(number), address, number, options)
            started.append(stack.enter_context(broker).bootstrap)
        yield Place(",".join(started), address)


def comparable(output: kafka_tools.Output) -> list[str]:
    """A tool's output without ids, directories and the broker's own sentences."""
    text = "\n".join(output.lines)
    text = re.sub(r"TopicId: \S+", "TopicId: ID", text)
    # With ZooKeeper Apache's brokers do not serve DescribeTopicPartitions.
    text = re.sub(r"Elr: N/A", "Elr:", text)
    text = re.sub(r'"logDir":"[^"]+"', '"logDir":"DIR"', text)
    text = re.sub(r"Exception: .*", "Exception", text)
    lines = [line for line in text.splitlines() if not line.startswith(("at ", "Suppressed"))]
    return [json.dumps(_sorted(json.loads(x))) if x.startswith("{") else x for x in lines]


def _sorted(found: Any) -> Any:
    if isinstance(found, list):
        return sorted(map(_sorted, found), key=json.dumps)
    if isinstance(found, dict):
        return {key: _sorted(value) for key, value in sorted(found.items())}
    return found


def contents(znodes: dict[str, bytes]) -> dict[str, Any]:
    """JSON as values, without what must differ. Announcements arrive in the order of
    the network."""
    shown: dict[str, Any] = {}
    announced = []
    for path, data in znodes.items():
        content: Any = json.loads(data) if data.startswith(b"{") else data
        if path.startswith("/pyrklog") or (path in EMPTY and not data):
            continue
        if path.startswith("/config/changes/"):
            announced.append(content["entity_path"])
            continue
        if path.startswith("/brokers/ids/"):
            content["endpoints"] = len(content["endpoints"])
        if isinstance(content, dict):
            for name in ("timestamp", "port", "id", "topic_id"):
                if name in content:
                    content[name] = type(content[name]).__name__
        shown[path] = content
    return {**shown, "announced": sorted(announced)}


def test_tools_and_zookeeper_tell_no_difference(
    zookeeper: ZooKeeperServer,
    new_cluster: Callable[..., BrokerCluster],
    topic: str,
    tmp_path: Path,
) -> None:
    with apache(f"{zookeeper.address}/{topic}-apache", tmp_path / "apache") as place:
        theirs = play(place, tmp_path)
    cluster = new_cluster(**OPTIONS).start()
    ours = play(Place(cluster.bootstrap, cluster.zookeeper), tmp_path)
    for command, reference in theirs.outputs.items():
        assert comparable(ours.outputs[command]) == comparable(reference), command
        assert ours.outputs[command].status == reference.status, command
    everything = "\n".join(output.text for output in theirs.outputs.values())
    assert all(word in everything for word in WORDS), "Apache's session was another one"
    assert contents(ours.throttled) == contents(theirs.throttled)
    assert contents(ours.znodes) == contents(theirs.znodes)
    rate = "leader.replication.throttled.rate"
    assert contents(ours.throttled)["/config/brokers/1"]["config"][rate] == "10000000"
    assert rate not in contents(ours.znodes)["/config/brokers/1"]["config"]


def test_a_plan_is_made_and_another_is_cancelled(
    cluster: BrokerCluster, topic: str, tmp_path: Path
) -> None:
    controller = cluster.controller()
    still, first = sorted(number for number in BROKERS if number != controller)
    create_on = f"topics --create --topic {topic} --replica-assignment {controller}:{first}"
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generate = f"reassign-partitions --generate --topics-to-move-json-file {topics} --broker-list"
    (made,) = kafka_tools.run(cluster.bootstrap, [create_on])
    assert made.status == 0
    wait_until_each(cluster.bootstrap, lambda told: leaders_of(told, topic) != {}, "it is unknown")
    (generated,) = kafka_tools.run(cluster.bootstrap, [f"{generate} {first},{still}"])
    proposed = json.loads(generated.lines[-1])
    assert {*proposed["partitions"][0]["replicas"]} == {first, still}
    # A paused broker delays the reassignment; tools must not ask it.
    with FaultDriver(cluster).fault("pause", still):
        reassigning.move(cluster.brokers[controller].bootstrap, topic, (first, still))
        wait_until(lambda: cluster.is_gone(still), "its session does not end")
        plan = plan_file(tmp_path, topic, {0: (first, still)})
        bootstrap = cluster.brokers[controller].bootstrap
        listed, verified, described, cancelled, after = kafka_tools.run(
            bootstrap,
            [
                "reassign-partitions --list",
                f"reassign-partitions --verify --reassignment-json-file {plan} "
                "--preserve-throttles",
                f"topics --describe --topic {topic}",
                f"reassign-partitions --cancel --reassignment-json-file {plan} "
                "--preserve-throttles",
                "reassign-partitions --list",
            ],
        )
    assert listed.lines == [
        "Current partition reassignments:",
        f"{topic}-0: replicas: {first},{still},{controller}. adding: {still}. "
        f"removing: {controller}.",
    ]
    assert f"Reassignment of partition {topic}-0 is still in progress." in verified.lines
    assert f"Adding Replicas: {still} Removing Replicas: {controller}" in described.lines[-1]
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in cancelled.lines
    assert after.lines == ["No partition reassignments found."]
    node = cluster.json(f"/brokers/topics/{topic}")
    assert {*node["partitions"]["0"]} == {controller, first}


def test_leaders_are_elected_cleanly_and_uncleanly(cluster: BrokerCluster, topic: str) -> None:
    admin = create(cluster, topic, 1, 2)
    node = cluster.json(f"/brokers/topics/{topic}")
    head, other = node["partitions"]["0"]
    cluster.brokers[other].kill()
    wait_until(lambda: in_sync(admin, topic)[0] == {head}, "it is in sync still")
    cluster.brokers[head].kill()
    (third,) = set(BROKERS) - {head, other}
    wait_until(lambda: cluster.is_gone(head), "its session does not end")
    cluster.brokers[other].start()
    election = f"leader-election --topic {topic} --partition 0 --election-type"
    state = f"/brokers/topics/{topic}/partitions/0/state"
    wait_until(lambda: cluster.is_registered(other), "it does not come back")
    wait_until(lambda: cluster.json(state)["leader"] == -1, "somebody leads")
    bootstrap = f"{cluster.brokers[third].bootstrap},{cluster.brokers[other].bootstrap}"
    refused, elected = kafka_tools.run(bootstrap, [f"{election} preferred", f"{election} unclean"])
    assert refused.status == 1
    assert "PreferredLeaderNotAvailable" in refused.text
    assert elected.status == 0, elected.text
    assert cluster.json(state)["leader"] == other
    cluster.brokers[head].start()
    wait_until(lambda: in_sync(admin, topic)[0] == {head, other}, "it does not come back")
    (elected,) = kafka_tools.run(cluster.bootstrap, [f"{election} preferred"])
    assert elected.status == 0, elected.text
    assert cluster.json(state)["leader"] == head


def test_replicas_are_verified_group_and_directories_described(
    cluster: BrokerCluster, topic: str
) -> None:
    create(cluster, topic, 3, 3)
    produce(cluster, topic, 3, [b"x" * 1_000] * 50)
    consume(cluster, topic, 150, f"{topic}-group")
    listed, described, dirs = kafka_tools.run(
        cluster.bootstrap,
        [
            "consumer-groups --list",
            f"consumer-groups --describe --group {topic}-group",
            f"log-dirs --describe --topic-list {topic}",
        ],
    )
    assert f"{topic}-group" in listed.lines
    assert len([line for line in described.lines if f"{topic}-group {topic}" in line]) == 3
    (found,) = [json.loads(line) for line in dirs.lines if line.startswith("{")]
    sizes = {
        (broker["broker"], part["partition"]): part["size"]
        for broker in found["brokers"]
        for directory in broker["logDirs"]
        for part in directory["partitions"]
    }
    assert len(sizes) == 9
    assert all(size >= 50_000 for size in sizes.values())
    assert "max lag is 0" in kafka_tools.first_verdict(cluster.bootstrap, topic, 50)
