"""Replicas that start at their leader's end (docs/understanding/expansion.md)."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.cli.throttles import FILL_RATE
from tests.support import reassigning
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import consume, in_sync, produce
from tests.support.cluster_load import Writer, check
from tests.support.room import with_room
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

BRIEF = {"zookeeper.session.timeout.ms": 10_000}
"""A busy machine passes for no dead broker; yet sessions of killed ones end."""
MAY_PASS = {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}


@pytest.fixture
def cluster(new_cluster: Callable[..., BrokerCluster]) -> BrokerCluster:
    """Nothing is back-filled."""
    return new_cluster(count=4, **BRIEF, **{"pyrklog.expansion.rate": 0}).start()


def begin(cluster: BrokerCluster, topic: str, *replicas: int) -> tuple[AdminClient, Writer]:
    """A topic of one partition with records, and its writer."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(topic, 1, replica_assignment=[list(replicas)])
    admin.create_topics([new])[topic].result(30)
    wait_until(lambda: in_sync(admin, topic) == {0: set(replicas)}, "not all are in sync")
    writer = Writer(cluster, topic, 1)
    writer.go_on()
    return admin, writer


def expand(cluster: BrokerCluster, topic: str, *targets: int) -> None:
    asked = cluster.brokers[cluster.controller()].bootstrap
    reassigning.move(asked, topic, targets, at_end=True)


def folder(cluster: BrokerCluster, topic: str, number: int) -> Path:
    return cluster.brokers[number].data / "logs" / f"{topic}-0"


def start_of(cluster: BrokerCluster, topic: str, number: int) -> int:
    """Where the partial replica of this broker began."""
    path = folder(cluster, topic, number) / "partial"

    def written() -> list[str]:
        with suppress(FileNotFoundError):
            return path.read_text().splitlines()[:2]
        return []

    wait_until(lambda: len(written()) == 2, "it does not begin")
    return int(written()[1])


def first_segment(cluster: BrokerCluster, topic: str, number: int) -> int | None:
    """Where the first file begins that has records. Those are written a while after they came."""
    files = folder(cluster, topic, number).glob("*.log")
    with suppress(FileNotFoundError):
        return min((int(path.stem) for path in files if path.stat().st_size), default=None)
    return None


def listed(cluster: BrokerCluster, topic: str) -> list[int]:
    found: list[int] = cluster.json(f"/pyrklog/expansion/{topic}/0").get("replicas", [])
    return found


def state(cluster: BrokerCluster, topic: str) -> tuple[int, set[int]]:
    found = cluster.json(f"/brokers/topics/{topic}/partitions/0/state")
    return found["leader"], set(found["isr"])


def delete_below(admin: AdminClient, topic: str, offset: int) -> None:
    """librdkafka may ask a broker that was killed, or led before."""

    def is_done() -> bool:
        (asked,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
        error = asked.exception(60)
        assert error is None or error.args[0].code() in MAY_PASS, error
        return error is None

    wait_until(is_done, "the records are not deleted", 2 * PATIENCE_S)


def wait_until_forgotten(cluster: BrokerCluster, topic: str) -> None:
    """The controller removes the entry after it has written who is in sync."""
    wait_until(lambda: listed(cluster, topic) == [], "a replica is listed as partial still")


def test_new_replica_gets_new_records_and_joins_when_it_is_whole(
    cluster: BrokerCluster, topic: str
) -> None:
    source, stays, killed = (n for n in cluster.brokers if n != cluster.controller())
    admin, writer = begin(cluster, topic, source, stays)
    try:
        expand(cluster, topic, killed, stays)
        start = start_of(cluster, topic, killed)
        assert start > 0
        assert listed(cluster, topic) == [killed]
        writer.go_on()
        first = wait_until(
            lambda: first_segment(cluster, topic, killed), "nothing is written to its disk"
        )
        assert first == start, "nothing was copied"
        cluster.brokers[killed].kill()
        writer.go_on()
        cluster.brokers[killed].start()
        writer.go_on()
        assert start_of(cluster, topic, killed) == start
        assert state(cluster, topic) == (source, {source, stays})
    finally:
        writer.stop()
    # A consumer from the beginning has everything meanwhile.
    check(cluster, topic, writer)
    delete_below(admin, topic, start)
    wait_until(lambda: state(cluster, topic) == (killed, {killed, stays}), "it does not arrive")
    wait_until_forgotten(cluster, topic)
    assert not (folder(cluster, topic, killed) / "partial").exists()
    kept = max(writer.acknowledged[0]) + 1 - start
    values = [int(value) for value in consume(cluster, topic, kept, "of the new leader")]
    assert values == list(range(start, start + kept))


def test_a_cancellation_leaves_nothing(cluster: BrokerCluster, topic: str) -> None:
    controller, first, second, added = sorted(
        cluster.brokers, key=lambda number: number != cluster.controller()
    )
    _, writer = begin(cluster, topic, first, second)
    try:
        expand(cluster, topic, added, second)
        assert start_of(cluster, topic, added) > 0
        reassigning.move(cluster.brokers[controller].bootstrap, topic, None)
        wait_until_forgotten(cluster, topic)
        path = folder(cluster, topic, added)
        wait_until(lambda: not path.exists(), "its folder stays")
        writer.go_on()
    finally:
        writer.stop()
    check(cluster, topic, writer)


def test_next_controller_goes_on(cluster: BrokerCluster, topic: str) -> None:
    """It was the broker of a replica that stays, or of none."""
    killed = cluster.controller()
    source, added, idle = (number for number in cluster.brokers if number != killed)
    admin, writer = begin(cluster, topic, source, idle)
    try:
        expand(cluster, topic, source, added)
        start = start_of(cluster, topic, added)
        cluster.brokers[killed].kill()
        wait_until(lambda: cluster.is_gone(killed), "its session does not end")
        writer.go_on()
        assert listed(cluster, topic) == [added]
        assert added not in state(cluster, topic)[1]
        delete_below(admin, topic, start)
        wait_until(lambda: state(cluster, topic)[1] == {source, added}, "it does not arrive")
        wait_until_forgotten(cluster, topic)
    finally:
        writer.stop()


def run(cluster: BrokerCluster, *words: str) -> None:
    """A command of pyrklog's, which succeeds once the leaders are known everywhere."""
    told = ""

    def is_done() -> bool:
        nonlocal told
        done = CliRunner().invoke(app, ["-b", cluster.bootstrap, *with_room(words)])
        told = done.stdout + done.stderr
        return done.exit_code == 0

    wait_until(is_done, lambda: f"{words}: {told}")


RATE = 10_000
"""Bytes a second of a slow back-fill."""
LARGE = [b"x" * 10_000] * 4
"""Fit in a segment, as one batch."""
PARTS = 80
"""Take five minutes at that rate: longer than all kills."""


def test_back_fill_goes_on_after_kills_of_all_who_take_part(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    options = {"pyrklog.expansion.rate": RATE, "log.segment.bytes": 50_000}
    cluster = new_cluster(count=4, **BRIEF, **options).start()
    controller, first, second, added = sorted(
        cluster.brokers, key=lambda number: number != cluster.controller()
    )
    _, writer = begin(cluster, topic, first, second)
    try:
        for _ in range(PARTS):
            produce(cluster, topic, 1, LARGE)
        writer.go_on()
        expand(cluster, topic, first, second, added)
        start = start_of(cluster, topic, added)

        def joined() -> int:
            """The log's first segment at the new broker."""
            segments = folder(cluster, topic, added).glob("*.log")
            return min((int(path.stem) for path in segments), default=start)

        def is_below(before: int) -> bool:
            return joined() < before

        for killed in (added, second, first, controller):
            before = joined()
            wait_until(partial(is_below, before), "it is not back-filled")
            cluster.brokers[killed].kill()
            cluster.brokers[killed].start()
            writer.go_on()
        assert added not in state(cluster, topic)[1]
        assert joined() > 0
        run(cluster, "config", "alter", "broker", str(added), "--set", f"{FILL_RATE}=500000000")
        replicas = {first, second, added}
        wait_until(
            lambda: state(cluster, topic)[1] == replicas, "it does not arrive", 2 * PATIENCE_S
        )
        assert start > joined() == 0
        wait_until_forgotten(cluster, topic)
        assert not (folder(cluster, topic, added) / "partial").exists()
        writer.go_on()
    finally:
        writer.stop()
    run(cluster, "log", "verify", topic)
    # The new broker leads, and has everything from the beginning on.
    asked = cluster.brokers[cluster.controller()].bootstrap
    reassigning.move(asked, topic, [added])
    wait_until(lambda: state(cluster, topic) == (added, {added}), "it does not lead")
    values = consume(cluster, topic, writer.count + PARTS * len(LARGE), "of the new leader")
    numbers = [int(value) for value in values if len(value) < len(LARGE[0])]
    assert len(numbers) == len(set(numbers)) == len(values) - PARTS * len(LARGE)
    assert set(numbers) >= writer.acknowledged[0]
    assert numbers == sorted(numbers)


# --- the two flaws of the expansion that KAFKA-8328 has published --------------------------------


def test_history_outlives_the_end_of_all_old_replicas(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    """There, a replica without the history was in sync, so it led once the others were gone, and
    they deleted what it lacked when they came back. Here nobody leads meanwhile, not even by an
    unclean election."""
    unclean = {"unclean.leader.election.enable": "true"}
    cluster = new_cluster(count=4, **BRIEF, **{"pyrklog.expansion.rate": 0}, **unclean).start()
    first, second, added = (n for n in cluster.brokers if n != cluster.controller())
    _, writer = begin(cluster, topic, first, second)
    try:
        expand(cluster, topic, added, second)
        assert start_of(cluster, topic, added) > 0
        writer.go_on()
    finally:
        writer.stop()
    for killed in (first, second):
        cluster.brokers[killed].kill()
    for killed in (first, second):
        wait_until(partial(cluster.is_gone, killed), "its session does not end")
    wait_until(lambda: state(cluster, topic)[0] == -1, "somebody leads")
    assert added not in state(cluster, topic)[1]
    for killed in (first, second):
        cluster.brokers[killed].start()
    wait_until(lambda: state(cluster, topic)[0] in (first, second), "nobody leads")
    check(cluster, topic, writer)
    assert min(map(int, consume(cluster, topic, 1, "of the beginning"))) == 0


def test_a_dead_group_holds_nothing_up_and_loses_nothing(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    """There, a new replica joined once all groups had passed its start, so a group that nobody was
    in any more kept it out for ever. Here it joins by back-fill, and the group goes on where it
    was, at the new leader."""
    cluster = new_cluster(count=4, **BRIEF).start()
    first, second, added = (n for n in cluster.brokers if n != cluster.controller())
    _, writer = begin(cluster, topic, first, second)
    options = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "dead",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
    }
    committed = TopicPartition(topic, 0, 1)
    group = Consumer(options)
    group.commit(offsets=[committed], asynchronous=False)
    group.close()
    try:
        expand(cluster, topic, added, second)
        wait_until(lambda: state(cluster, topic)[1] == {added, second}, "it does not arrive")
        wait_until(lambda: state(cluster, topic)[0] == added, "it does not lead")
        writer.go_on()
    finally:
        writer.stop()
    group = Consumer(options)
    group.assign([group.committed([committed], PATIENCE_S)[0]])
    values: list[int] = []
    while len(values) < writer.count - 1:
        message = group.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None, message
        values.append(int(message.value() or b""))
    group.close()
    assert values == list(range(1, writer.count))
