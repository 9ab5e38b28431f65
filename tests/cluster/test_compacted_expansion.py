"""Replicas of compacted topics that start at their leader's end, and get what is older from another
broker (docs/understanding/expansion.md, section 6)."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.cli.throttles import FILL_RATE
from tests.support import reassigning
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import in_sync
from tests.support.compacting import (
    EAGER_BROKER,
    EAGER_TOPIC,
    Pairs,
    fill,
    last_values,
    model,
    put,
    read_all,
    record_count,
    rounds,
)
from tests.support.room import with_room
from tests.support.verifying import verify
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

BRIEF = {"zookeeper.session.timeout.ms": 10_000}
SLOW, FAST = 2_000, 500_000_000
"""Bytes a second."""
KEPT: Pairs = [(b"kept %d" % number, b"%d " % number * 40) for number in range(2_500)]
"""What compaction leaves: minutes at the slow rate."""
RECORDS_MAX = len(KEPT) + 400
"""In a log that was compacted."""


def create(cluster: BrokerCluster, topic: str, *replicas: int) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(topic, 1, replica_assignment=[list(replicas)], config=EAGER_TOPIC)
    admin.create_topics([new])[topic].result(30)
    wait_until(lambda: in_sync(admin, topic) == {0: set(replicas)}, "not all are in sync")
    return admin


def folder(cluster: BrokerCluster, topic: str, number: int) -> Path:
    return cluster.brokers[number].data / "logs" / f"{topic}-0"


def expand(cluster: BrokerCluster, topic: str, *targets: int) -> None:
    asked = cluster.brokers[cluster.controller()].bootstrap
    reassigning.move(asked, topic, targets, at_end=True)


def partial_of(cluster: BrokerCluster, topic: str, number: int) -> list[str]:
    """The lines of its file, once there is one."""
    path = folder(cluster, topic, number) / "partial"

    def written() -> list[str]:
        with suppress(FileNotFoundError):
            return path.read_text().splitlines()
        return []

    wait_until(lambda: len(written()) > 2, "it does not begin at the end")
    return written()


def set_rate(cluster: BrokerCluster, number: int, rate: int) -> None:
    words = ["config", "alter", "broker", str(number), "--set", f"{FILL_RATE}={rate}"]
    told = ""

    def is_done() -> bool:
        nonlocal told
        done = CliRunner().invoke(app, ["-b", cluster.bootstrap, *words])
        told = done.stdout + done.stderr
        return done.exit_code == 0

    wait_until(is_done, lambda: told)


def members(cluster: BrokerCluster, topic: str) -> tuple[int, set[int]]:
    found = cluster.json(f"/brokers/topics/{topic}/partitions/0/state")
    return found["leader"], set(found["isr"])


def wait_until_whole(cluster: BrokerCluster, topic: str, number: int) -> None:
    wait_until(lambda: number in members(cluster, topic)[1], "it does not arrive", 2 * PATIENCE_S)
    assert not (folder(cluster, topic, number) / "partial").exists()


def lead_alone(cluster: BrokerCluster, topic: str, number: int) -> None:
    asked = cluster.brokers[cluster.controller()].bootstrap
    reassigning.move(asked, topic, [number])
    wait_until(lambda: members(cluster, topic) == (number, {number}), "it does not lead")


def test_last_values_are_the_same_after_kills_of_all_who_take_part(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    """A kill of the source has the replica begin anew, or go on with a log that is compacted."""
    options = {FILL_RATE: SLOW, **EAGER_BROKER, **BRIEF}
    cluster = new_cluster(count=4, **options).start()
    controller, first, second, added = sorted(
        cluster.brokers, key=lambda number: number != cluster.controller()
    )
    create(cluster, topic, first, second)
    pairs: Pairs = [*rounds(20), *KEPT, (b"k3", None), (b"k4", None)]
    put(cluster.bootstrap, topic, pairs)
    fill(cluster.bootstrap, topic)

    def are_compacted() -> bool:
        counts = [record_count(folder(cluster, topic, one)) for one in (first, second)]
        return max(counts) < RECORDS_MAX

    wait_until(are_compacted, "nothing is compacted")
    expand(cluster, topic, first, second, added)
    assert int(partial_of(cluster, topic, added)[1]) > 0
    wait_until(lambda: partial_of(cluster, topic, added)[0] == "1", "it joins nothing")
    for killed in (added, second, first, controller):
        more: Pairs = [*rounds(2, f"with {killed}"), (b"k%d" % killed, None)]
        put(cluster.bootstrap, topic, more)
        pairs += more
        cluster.brokers[killed].kill()
        cluster.brokers[killed].start()
        fill(cluster.bootstrap, topic)
    assert added not in members(cluster, topic)[1]
    set_rate(cluster, added, FAST)
    wait_until_whole(cluster, topic, added)
    [compared] = verify(cluster.bootstrap, topic)
    assert compared["status"] == "equal"
    lead_alone(cluster, topic, added)
    assert last_values(read_all(cluster.bootstrap, topic)) == model(pairs)
    # Its own cleaner goes over what came.
    put(cluster.bootstrap, topic, [(b"k5", None)])
    fill(cluster.bootstrap, topic)
    path = folder(cluster, topic, added)
    wait_until(lambda: record_count(path) < RECORDS_MAX, "it compacts nothing")
    assert last_values(read_all(cluster.bootstrap, topic)) == model([*pairs, (b"k5", None)])


def test_coordinators_find_everything_on_an_expanded_replica(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    options: dict[str, str | float | bool] = {
        FILL_RATE: SLOW,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 2,
        "offsets.topic.segment.bytes": 20_000,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 2,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.segment.bytes": 20_000,
        "log.cleaner.min.cleanable.ratio": 0.01,
        **EAGER_BROKER,
        **BRIEF,
    }
    cluster = new_cluster(count=4, **options).start()
    numbers = sorted(cluster.brokers)
    create(cluster, topic, *numbers[:2])
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": "writer"}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers"})
    producer = Producer(settings)
    producer.init_transactions(PATIENCE_S)
    for number in range(200):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, b"k", 0)
        place = TopicPartition(topic, 0, number + 1)
        if number % 2:
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([place], metadata, PATIENCE_S)
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    for internal in ("__consumer_offsets", "__transaction_state"):
        old = cluster.json(f"/brokers/topics/{internal}")["partitions"]["0"]
        added = next(number for number in numbers if number not in old)
        expand(cluster, internal, *old, added)
        assert int(partial_of(cluster, internal, added)[1]) > 0
        set_rate(cluster, added, FAST)
        wait_until_whole(cluster, internal, added)
        lead_alone(cluster, internal, added)
    told: list[int] = []

    def is_committed() -> bool:
        # The consumer may not know its new coordinator yet.
        with suppress(KafkaException):
            asked = [TopicPartition(topic, 0)]
            told[:] = [one.offset for one in consumer.committed(asked, PATIENCE_S)]
        return bool(told)

    wait_until(is_committed, "no coordinator answers")
    assert told == [200], "the group's offset is gone"
    consumer.close()
    # The next producer of the name goes on, and the one before is fenced.
    again = Producer(settings)
    again.init_transactions(PATIENCE_S)
    again.begin_transaction()
    again.produce(topic, b"last", b"last", 0)
    again.commit_transaction(PATIENCE_S)
    assert [one.value for one in read_all(cluster.bootstrap, topic)][-1] == b"last"


def test_cluster_expand_starts_compacted_topics_at_their_ends(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    cluster = new_cluster(count=4, **EAGER_BROKER, **BRIEF).start()
    numbers = sorted(cluster.brokers)
    new = numbers.pop()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assignment = [[numbers[index % 3], numbers[(index + 1) % 3]] for index in range(4)]
    asked = NewTopic(topic, 4, replica_assignment=assignment, config=EAGER_TOPIC)
    admin.create_topics([asked])[topic].result(30)
    wait_until(lambda: len(in_sync(admin, topic)) == 4, "it is not there")
    pairs = [*rounds(5), (b"k1", None)]
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for index in range(4):
        for key, value in pairs:
            producer.produce(topic, value, key, index)
    assert producer.flush(PATIENCE_S) == 0
    words = with_room(["cluster", "expand", "--broker", str(new), "-t", topic, "-w"])
    done = CliRunner().invoke(app, ["-b", cluster.bootstrap, *words])
    assert done.exit_code == 0, done.stdout + done.stderr
    assert done.stderr.find("copied") == -1
    assert done.stdout.count("from the end") == 2
    placed = cluster.json(f"/brokers/topics/{topic}")["partitions"].values()
    assert [new in replicas for replicas in placed].count(True) == 2
    for compared in verify(cluster.bootstrap, topic):
        assert compared["status"] == "equal"
    assert last_values(read_all(cluster.bootstrap, topic)) == model(pairs)
