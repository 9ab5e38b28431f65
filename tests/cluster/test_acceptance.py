"""Behaviours that others got wrong, by real clients against three brokers."""

from __future__ import annotations

import json
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.groups.partitioner import OFFSETS_TOPIC, partition_for
from tests.support import jvm, kafka_tools, wire
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import consume, create, end_offset, in_sync, leaders, produce
from tests.support.knowing import leaders_of, wait_until_each
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.jvm

ALL = {1, 2, 3}
STRICT = {"min.insync.replicas": "2"}
FAILOVER_S = 1.0
FAILOVERS_MAX = 4
NOT_LEADER_OR_FOLLOWER = 6
FETCH_WITH_SESSION = 7
REASSIGN = "reassign-partitions"


def coordinator(admin: AdminClient, group: str) -> int:
    """The leader of the group's partition of the offsets topic."""
    found = leaders(admin, OFFSETS_TOPIC)
    return found[partition_for(group, len(found))]


def whole(admin: AdminClient, topic: str) -> bool:
    return all(isr == ALL for isr in in_sync(admin, topic).values())


class Verifiable:
    """One of Apache Kafka's verifiable clients: a process that reports in JSON."""

    def __init__(self, main: str, *arguments: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            jvm.command(f"org.apache.kafka.tools.{main}", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in list(self.events) if event["name"] == name]

    def wait(self, name: str, count: int = 1) -> None:
        wait_until(lambda: len(self.named(name)) >= count, f"{len(self.named(name))} {name}")

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def verifiable(main: str, *arguments: str) -> Iterator[Verifiable]:
    client = Verifiable(main, *arguments)
    try:
        yield client
    finally:
        client.end()


def test_leader_epoch_of_a_commit_survives_moves_of_the_coordinator(
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


def test_group_goes_on_without_a_rebalance_when_its_coordinator_is_killed(
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
        described = admin.describe_consumer_groups([topic])[topic].result(30)
        assert [len(member.assignment.topic_partitions) for member in described.members] == [3]


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


def fetch_in_session(
    connection: wire.Connection, session: tuple[int, int], topic: str, offsets: Mapping[int, int]
) -> tuple[int, dict[int, tuple[int, int]]]:
    """Fetch version 7: (session id, (error, bytes of records) by partition)."""
    places = [struct.pack(">iqqi", p, offset, -1, 1 << 20) for p, offset in offsets.items()]
    topics = wire.array([wire.string(topic) + wire.array(places)] if places else [])
    body = struct.pack(">iiiibii", -1, 0, 0, 1 << 20, 0, *session) + topics + wire.array([])
    reply = wire.Reader(connection.request(wire.FETCH, FETCH_WITH_SESSION, body))
    reply.take(4)  # throttle time
    assert reply.number("h") == 0
    session_id = reply.number("i")
    found: dict[int, tuple[int, int]] = {}
    for _ in reply.array():
        assert reply.string() == topic
        for _ in reply.array():
            partition, error = reply.number("i"), reply.number("h")
            reply.take(24)  # high watermark, last stable offset, log start
            for _ in reply.array():
                reply.take(16)  # an aborted transaction
            found[partition] = (error, len(reply.blob() or b""))
    return session_id, found


def test_fetch_session_omits_unchanged_partitions_and_never_an_error(
    cluster: BrokerCluster, topic: str
) -> None:
    admin = create(cluster, topic, 3, 3, options=STRICT)
    produce(cluster, topic, 3, [b"v"])
    led = leaders(admin, topic)
    mine, other = 0, 1
    assert led[mine] != led[other]
    with wire.Connection(cluster.brokers[led[mine]].bootstrap) as connection:
        session_id, found = fetch_in_session(connection, (0, 0), topic, {mine: 0, other: 0})
        assert session_id > 0
        assert found[mine][0] == 0
        assert found[mine][1] > 0
        assert found[other] == (NOT_LEADER_OR_FOLLOWER, 0)
        _, found = fetch_in_session(connection, (session_id, 1), topic, {mine: 1})
        assert found == {other: (NOT_LEADER_OR_FOLLOWER, 0)}, "the first time at the new offset"
        _, found = fetch_in_session(connection, (session_id, 2), topic, {})
        assert found == {other: (NOT_LEADER_OR_FOLLOWER, 0)}, "said once more"
        cluster.brokers[led[other]].kill()
        wait_until(lambda: leaders(admin, topic)[other] not in (led[other], -1), "nobody leads it")
        produce(cluster, topic, 3, [b"w"])
        epoch = 3
        _, found = fetch_in_session(connection, (session_id, epoch), topic, {})
        assert found[mine][0] == 0
        assert found[mine][1] > 0
        if leaders(admin, topic)[other] == led[mine]:
            assert found[other][0] == 0
            assert found[other][1] > 0, "it leads it now"
        else:
            assert found[other] == (NOT_LEADER_OR_FOLLOWER, 0)


def test_reassignment_keeps_a_leader_that_stays_a_replica(
    new_cluster: Callable[..., BrokerCluster], topic: str, tmp_path: Path
) -> None:
    """By Kafka's tools. The leader moves by a requested preferred election."""
    cluster = new_cluster(**{"auto.leader.rebalance.enable": False}).start()
    state = f"/brokers/topics/{topic}/partitions/0/state"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, replica_assignment=[[1, 2]])])[topic].result(30)
    produce(cluster, topic, 1, [b"v"] * 10)

    def plan(*replicas: int) -> str:
        """Arguments of the tool for partition 0 with these replicas."""
        one = {"topic": topic, "partition": 0, "replicas": replicas}
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        path.write_text(json.dumps({"version": 1, "partitions": [one]}))
        return f"--reassignment-json-file {path}"

    def run(*commands: str) -> list[kafka_tools.Output]:
        """Runs Kafka's tools, which must succeed."""
        outputs = kafka_tools.run(cluster.bootstrap, commands)
        for output in outputs:
            assert output.status == 0, output.text
        return outputs

    def leader_at(*replicas: int) -> int:
        """The leader once the partition has these replicas, all in sync."""

        def has_arrived() -> bool:
            node = cluster.json(f"/brokers/topics/{topic}")
            moves = node["adding_replicas"] or node["removing_replicas"]
            isr = set(cluster.json(state)["isr"])
            return not moves and node["partitions"]["0"] == [*replicas] and isr == {*replicas}

        wait_until(has_arrived, f"it does not come to {replicas}")
        return int(cluster.json(state)["leader"])

    assert leader_at(1, 2) == 1
    first = plan(3, 1)
    run(f"{REASSIGN} --execute {first}")
    assert leader_at(3, 1) == 1, "it is a target, though not the preferred one"
    verified, _ = run(
        f"{REASSIGN} --verify {first}",
        f"leader-election --election-type preferred --topic {topic} --partition 0",
    )
    wait_until_each(
        cluster.bootstrap, lambda told: leaders_of(told, topic) == {0: 3}, "not all know who leads"
    )
    described, _ = run(
        f"topics --describe --topic {topic}",
        f"{REASSIGN} --execute {plan(3, 1, 2)}",
    )
    assert f"Reassignment of partition {topic}-0 is completed." in verified.lines
    assert "Leader: 3 Replicas: 3,1" in described.lines[-1]
    assert leader_at(3, 1, 2) == 3, "one replica more"
    run(f"{REASSIGN} --execute {plan(3)}")
    assert leader_at(3) == 3, "two replicas less"
    run(f"{REASSIGN} --execute {plan(2, 1)}")
    assert leader_at(2, 1) == 2, "the leader was no target"
    assert consume(cluster, topic, 10, topic) == [b"v"] * 10


def test_records_of_an_isolated_leader_are_not_shown(cluster: BrokerCluster, topic: str) -> None:
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


def test_java_client_loses_nothing_when_leader_and_controller_are_killed(
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
