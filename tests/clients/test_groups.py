"""Consumer groups of stock clients: joining, leaving, committing, returning."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from pyrklog.testing import TestBroker
from tests.support.clients import TIMEOUT_S
from tests.support.groups import (
    AioKafkaMember,
    ConfluentMember,
    Crew,
    KafkaPythonMember,
    create_topic,
    fill,
)
from tests.support.kcat import needs_kcat, run_kcat

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


def test_stable_offsets_are_there_at_once(bootstrap: str, filled: str) -> None:
    """With read_committed librdkafka requests stable offsets (KIP-447)."""
    member = ConfluentMember(bootstrap, filled, filled, isolation_level="read_committed")
    with Crew(member) as crew:
        crew.poll_until(lambda: len(crew.seen) >= len(EVERY_VALUE), "everything read")
        member.commit({2: 7}, "stable")
        assert member.committed(2) == (7, "stable")


@needs_kcat
def test_kcat_in_a_group(bootstrap: str, filled: str) -> None:
    arguments = ["-o", "earliest", "-c", str(len(EVERY_VALUE)), "-q"]
    done = run_kcat("-b", bootstrap, "-G", filled, filled, *arguments)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.decode().split()) == EVERY_VALUE


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
