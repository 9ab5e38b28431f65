"""Consumer groups of stock clients: joining, leaving, committing, returning."""

import itertools
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from pyrklog.testing import TestBroker
from tests.support.clients import TIMEOUT_S
from tests.support.groups import (
    MEMBERS,
    AioKafkaMember,
    ConfluentMember,
    Crew,
    KafkaPythonMember,
    create_topic,
    fill,
)

LOADING = KafkaError.COORDINATOR_LOAD_IN_PROGRESS
PARTITIONS = 6
EACH = 20
EVERY_VALUE = sorted(f"{p}:{n}" for p, n in itertools.product(range(PARTITIONS), range(EACH)))


@pytest.fixture(scope="module")
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A broker whose groups do not wait for more members."""
    against: str | None = request.config.getoption("--against")
    if against:
        yield against
        return
    data = tmp_path_factory.mktemp("groups") / "data"
    with TestBroker(data, options={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker.bootstrap


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """A topic of six partitions with twenty records each."""
    create_topic(bootstrap, topic, PARTITIONS)
    fill(bootstrap, topic, PARTITIONS, EACH)
    return topic


@pytest.mark.parametrize("client", MEMBERS)
def test_a_group_forms_commits_and_goes_on(bootstrap: str, filled: str, client: str) -> None:
    make = MEMBERS[client]
    with Crew(make(bootstrap, filled, filled)) as crew:
        crew.poll_until(lambda: len(crew.seen) >= len(EVERY_VALUE), "everything read")
        assert sorted(crew.seen) == EVERY_VALUE
        (member,) = crew.members
        assert member.committed(0) is None
        member.commit(dict.fromkeys(range(PARTITIONS), EACH), "first round")
        assert member.committed(0) == (EACH, "first round")
        member.commit({3: 15}, "")
    fill(bootstrap, filled, 1, 1)
    with Crew(make(bootstrap, filled, filled)) as crew:
        crew.poll_until(lambda: len(crew.seen) >= 6, "only what was not committed")
        assert sorted(crew.seen) == ["0:0", *(f"3:{number}" for number in range(15, EACH))]


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_a_second_member_takes_its_share_and_gives_it_back(
    bootstrap: str, filled: str, strategy: str
) -> None:
    def join() -> ConfluentMember:
        return ConfluentMember(bootstrap, filled, filled, partition_assignment_strategy=strategy)

    with Crew(join()) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "alone")
        crew.members.append(join())
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "two share")
        assert [len(member.assigned()) for member in crew.members] == [3, 3]
        crew.members.pop().close()
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "alone again")


def test_members_of_three_clients_share_a_group(bootstrap: str, filled: str) -> None:
    """Range is the one strategy that all of them name first or second."""
    with Crew(
        ConfluentMember(bootstrap, filled, filled, partition_assignment_strategy="range"),
        KafkaPythonMember(bootstrap, filled, filled),
    ) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "two clients")
    with Crew(
        ConfluentMember(
            bootstrap, filled, filled, partition_assignment_strategy="roundrobin,range"
        ),
        AioKafkaMember(bootstrap, filled, filled),
    ) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "two more")


def test_a_static_member_comes_back_without_a_rebalance(bootstrap: str, filled: str) -> None:
    """KIP-345: its instance id brings back its old partitions; nobody else notices."""

    def join(instance: str) -> ConfluentMember:
        return ConfluentMember(bootstrap, filled, filled, group_instance_id=instance)

    with Crew(join("a"), join("b")) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "two share")
        first, second = crew.members
        assert isinstance(first, ConfluentMember)
        told, share = list(first.events), second.assigned()
        crew.members.remove(second)
        second.close()
        crew.members.append(join("b"))
        crew.poll_until(lambda: crew.members[1].assigned() == share, "its old share")
        for _ in range(10):
            crew.seen += first.poll()
        assert first.events == told


_VANISHING = """
import sys
from confluent_kafka import Consumer
bootstrap, group, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group,
                     "session.timeout.ms": 6000, "heartbeat.interval.ms": 500})
consumer.subscribe([topic], on_assign=lambda *_: print("assigned", flush=True))
while True:
    consumer.poll(0.1)
"""


def test_a_member_that_vanishes_loses_its_partitions(bootstrap: str, filled: str) -> None:
    """Killed, so that it cannot leave: the session timeout ends it."""
    with Crew(ConfluentMember(bootstrap, filled, filled)) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "alone")
        command = [sys.executable, "-c", _VANISHING, bootstrap, filled, filled]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as vanishing:
            try:
                crew.poll_until(lambda: len(crew.members[0].assigned()) == 3, "two share")
                assert vanishing.stdout is not None
                assert vanishing.stdout.readline() == b"assigned\n"
            finally:
                vanishing.kill()
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "alone again")


def test_stable_offsets_are_there_at_once(bootstrap: str, filled: str) -> None:
    """With read_committed librdkafka requests stable offsets (KIP-447)."""
    member = ConfluentMember(bootstrap, filled, filled, isolation_level="read_committed")
    with Crew(member) as crew:
        crew.poll_until(lambda: len(crew.seen) >= len(EVERY_VALUE), "everything read")
        member.commit({2: 7}, "stable")
        assert member.committed(2) == (7, "stable")


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (Debian's kcat)")
def test_kcat_in_a_group(bootstrap: str, filled: str) -> None:
    arguments = ["-o", "earliest", "-c", str(len(EVERY_VALUE)), "-q"]
    done = subprocess.run(
        ["kcat", "-b", bootstrap, "-G", filled, filled, *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert sorted(done.stdout.split()) == EVERY_VALUE


def test_clients_cannot_write_to_the_offsets_topic(bootstrap: str, filled: str) -> None:
    with Crew(ConfluentMember(bootstrap, filled, filled)) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "a group")
    refused: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(
        "__consumer_offsets",
        b"forged",
        partition=0,
        on_delivery=lambda error, _message: refused.append(error),
    )
    assert producer.flush(TIMEOUT_S) == 0
    assert [error and error.code() for error in refused] == [KafkaError.TOPIC_EXCEPTION]


def test_groups_and_offsets_outlive_the_broker(new_broker: Callable[..., TestBroker]) -> None:
    """kill -9 and a clean shutdown; a deleted group stays deleted."""
    broker = new_broker(options={"group.initial.rebalance.delay.ms": 0}).start()
    create_topic(broker.bootstrap, "t", PARTITIONS)
    fill(broker.bootstrap, "t", PARTITIONS, EACH)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for group in ("kept", "deleted"):
        with Crew(ConfluentMember(broker.bootstrap, group, "t")) as crew:
            crew.poll_until(lambda c=crew: c.owns_all(PARTITIONS), "alone")  # type: ignore[misc]
            crew.members[0].commit({0: 11, 5: 3}, f"of {group}")
    admin.delete_consumer_groups(["deleted"])["deleted"].result(TIMEOUT_S)
    broker.restart()
    _check_what_is_left(broker)
    assert broker.stop() == 0
    broker.start()
    _check_what_is_left(broker)


def _check_what_is_left(broker: TestBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    groups = admin.list_consumer_groups().result(TIMEOUT_S)
    while groups.errors:  # the coordinator is loading, and the admin client does not retry
        assert {error.code() for error in groups.errors} == {LOADING}
        groups = admin.list_consumer_groups().result(TIMEOUT_S)
    assert [group.group_id for group in groups.valid] == ["kept"]
    with Crew(ConfluentMember(broker.bootstrap, "kept", "t")) as crew:
        assert crew.members[0].committed(0) == (11, "of kept")
        assert crew.members[0].committed(1) is None
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "the group again")


def test_a_group_goes_on_after_the_broker_was_killed(
    new_broker: Callable[..., TestBroker],
) -> None:
    broker = new_broker(options={"group.initial.rebalance.delay.ms": 0}).start()
    create_topic(broker.bootstrap, "t", PARTITIONS)
    fill(broker.bootstrap, "t", PARTITIONS, EACH)
    with Crew(
        ConfluentMember(broker.bootstrap, "g", "t"), ConfluentMember(broker.bootstrap, "g", "t")
    ) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "two share")
        crew.poll_until(lambda: len(crew.seen) >= len(EVERY_VALUE), "everything read")
        crew.members[0].commit({crew.members[0].assigned()[0]: 5}, "")
        broker.restart()
        fill(broker.bootstrap, "t", PARTITIONS, 1)
        crew.poll_until(lambda: len(crew.seen) >= len(EVERY_VALUE) + PARTITIONS, "the new ones")
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "two share still")
        assert sorted(set(crew.seen)) == EVERY_VALUE


def test_an_idle_idempotent_producer_goes_on_after_it_was_forgotten(
    new_broker: Callable[..., TestBroker],
) -> None:
    broker = new_broker(options={"producer.id.expiration.ms": 1}).start()
    create_topic(broker.bootstrap, "t", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(3):
        producer.produce("t", str(number), partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        broker.restart()
    with Crew(ConfluentMember(broker.bootstrap, "g", "t")) as crew:
        crew.poll_until(lambda: len(crew.seen) >= 3, "all three")
        assert crew.seen == ["0", "1", "2"]


def test_a_commit_from_outside_a_living_group_is_refused(bootstrap: str, filled: str) -> None:
    with Crew(ConfluentMember(bootstrap, filled, filled)) as crew:
        crew.poll_until(lambda: crew.owns_all(PARTITIONS), "a group")
        admin = AdminClient({"bootstrap.servers": bootstrap})
        with pytest.raises(KafkaException) as refused:
            admin.delete_consumer_groups([filled])[filled].result(TIMEOUT_S)
        assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
        (member,) = crew.members
        crew.seen += member.poll()
        assert member.committed(0) is None
        member.commit({0: 1}, "from inside")
    assert isinstance(member, ConfluentMember)
    described = admin.describe_consumer_groups([filled])[filled].result(TIMEOUT_S)
    assert (described.state.name, list(described.members)) == ("EMPTY", [])
    place = TopicPartition(filled, 0)
    offsets = _offsets_of(admin, filled)
    assert offsets == {(place.topic, place.partition): 1}


def _offsets_of(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = [ConsumerGroupTopicPartitions(group)]
    found = admin.list_consumer_group_offsets(asked)[group].result(TIMEOUT_S)
    return {(p.topic, p.partition): p.offset for p in found.topic_partitions}
