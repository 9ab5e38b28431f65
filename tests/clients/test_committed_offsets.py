"""Committed offsets of groups, also while their coordinators move: librdkafka's admin client ends
the process there (librdkafka's issue 5040)."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from pyrklog.base.committed import committed_partitions
from pyrklog.cli import group_state, topic_measures
from pyrklog.cli.connection import Connection
from pyrklog.cli.options import Settings
from pyrklog.mirror import Cluster
from pyrklog.mirror.cluster import ClusterAdmin
from pyrklog.mirror.errors import AwayError
from pyrklog.testing import TestBroker
from tests.support.commands import runner
from tests.support.waiting import wait_until

PASSING = ["NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"]
TIMEOUT_S = 30.0
QUIET = logging.getLogger("test_committed_offsets")
QUIET.propagate = False
QUIET.addHandler(logging.NullHandler())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    with TestBroker(tmp_path_factory.mktemp("committed") / "data", faults=True) as running:
        yield running


@pytest.fixture
def door(shared: TestBroker) -> Iterator[TestBroker]:
    """A broker without faults that an earlier test left."""
    yield shared
    shared.clear_faults()


def configuration(broker: TestBroker, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap, "logger": QUIET, **more}


@pytest.fixture
def topic(door: TestBroker) -> str:
    """With three partitions, of which a group of the topic's name has committed two."""
    name = str(door.create_topic(partitions=3))
    places = [TopicPartition(name, 0, 3, "a note"), TopicPartition(name, 2, 0)]
    admin = AdminClient(configuration(door))
    asked = [ConsumerGroupTopicPartitions(name, places)]

    def is_committed() -> bool:
        """A new coordinator still loads, and the client does not ask again."""
        done = admin.alter_consumer_group_offsets(asked)[name].result(TIMEOUT_S)
        return all(one.error is None for one in done.topic_partitions)

    wait_until(is_committed, "the coordinator takes no offsets")
    return name


def ask(
    broker: TestBroker,
    group: str,
    timeout_s: float = TIMEOUT_S,
    more: Mapping[str, Any] | None = None,
) -> dict[int, tuple[int, str]]:
    """What it has committed of all partitions of the topic of its name, and of two that do not
    exist."""
    settings = configuration(broker, **(more or {}))
    partitions = [*((group, number) for number in range(3)), (group, 99), ("missing", 0)]
    found = committed_partitions(settings, group, partitions, timeout_s)
    return {one.partition: (one.offset, one.metadata or "") for one in found}


EXPECTED = {0: (3, "a note"), 2: (0, "")}


def connection_to(broker: TestBroker) -> Connection:
    return Connection(Settings(bootstrap=broker.bootstrap, timeout_s=TIMEOUT_S))


def test_offsets_come_with_metadata(door: TestBroker, topic: str) -> None:
    assert ask(door, topic) == EXPECTED
    assert committed_partitions(configuration(door), "of-nobody", [(topic, 0)], TIMEOUT_S) == []


def test_nobody_is_asked_for_nothing(door: TestBroker, topic: str) -> None:
    """The binding would abort the process for a group without a name."""
    assert committed_partitions(configuration(door), "", [(topic, 0)], TIMEOUT_S) == []
    assert committed_partitions(configuration(door), topic, [], TIMEOUT_S) == []


@pytest.mark.parametrize("error", PASSING)
def test_a_coordinator_that_moves_or_loads_is_waited_for(
    door: TestBroker, topic: str, error: str
) -> None:
    fault = door.fail_next("OffsetFetch", error, times=3)
    assert ask(door, topic) == EXPECTED
    assert fault.fired == 3


def test_the_wait_for_a_coordinator_ends(door: TestBroker, topic: str) -> None:
    door.fail_next("OffsetFetch", "NOT_COORDINATOR", times=1000)
    began = time.monotonic()
    with pytest.raises(KafkaException) as failed:
        ask(door, topic, 1.0)
    told = failed.value.args[0].code()
    assert told in (KafkaError.NOT_COORDINATOR, KafkaError._TIMED_OUT)
    assert time.monotonic() - began < TIMEOUT_S


def test_a_refusal_is_told_by_its_name(door: TestBroker, topic: str) -> None:
    for api in ("OffsetFetch", "FindCoordinator"):
        door.fail_next(api, "GROUP_AUTHORIZATION_FAILED", times=1000)
        with pytest.raises(KafkaException) as failed:
            ask(door, topic, 5.0)
        assert failed.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED, api
        door.clear_faults()


def test_an_open_transaction_is_not_waited_for(door: TestBroker, topic: str) -> None:
    producer = Producer(configuration(door, **{"transactional.id": topic}))
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    consumer = Consumer(configuration(door, **{"group.id": topic}))
    places = [TopicPartition(topic, 0, 9)]
    producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), TIMEOUT_S)
    consumer.close()
    assert ask(door, topic, more={"isolation.level": "read_committed"}) == EXPECTED
    producer.commit_transaction(TIMEOUT_S)
    assert ask(door, topic)[0] == (9, "")


def test_properties_of_members_do_not_matter(door: TestBroker, topic: str) -> None:
    """A consumer with these could not be made, or would be a member."""
    of_members = {
        "group.id": "another",
        "group.instance.id": "me",
        "group.protocol": "consumer",
        "session.timeout.ms": 600_000,
        "max.poll.interval.ms": 1000,
        "fetch.max.bytes": 10,
        "enable.auto.commit": True,
    }
    assert ask(door, topic, more=of_members) == EXPECTED
    admin = AdminClient(configuration(door))
    described = admin.describe_consumer_groups([topic])[topic].result(TIMEOUT_S)
    assert list(described.members) == []


def test_group_describe_outlives_a_coordinator_that_moves(door: TestBroker, topic: str) -> None:
    fault = door.fail_next("OffsetFetch", "NOT_COORDINATOR", client_id="pyrklog-cli")
    told = runner(door.bootstrap)("group", "describe", topic, "-o", "json")
    (group,) = json.loads(told)["items"]
    partitions = {one["partition"]: one["committed"] for one in group["partitions"]}
    assert partitions == {0: 3, 1: None, 2: 0}
    assert fault.fired == 1


def test_commands_read_the_metadata_once_for_all_groups(
    door: TestBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at a secured cluster, where librdkafka asks."""
    connection = connection_to(door)
    metadata = Mock(side_effect=connection.metadata)
    monkeypatch.setattr(connection, "metadata", metadata)
    monkeypatch.setattr(topic_measures, "is_plain", lambda _: False)
    found = topic_measures.group_offsets(connection, {})
    assert found is not None
    assert found[topic] == {(topic, 0): 3, (topic, 2): 0}
    assert metadata.call_count == 1


def test_a_command_asks_for_some_partitions_without_metadata(
    door: TestBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = connection_to(door)
    monkeypatch.setattr(connection, "metadata", None)
    found = group_state.committed_offsets(connection, topic, [(topic, 0), (topic, 1)])
    assert found == {(topic, 0): (3, "a note")}


def test_a_mirror_outlives_a_coordinator_that_moves(door: TestBroker, topic: str) -> None:
    admin = ClusterAdmin(Cluster("east", door.bootstrap), TIMEOUT_S)
    fault = door.fail_next("OffsetFetch", "NOT_COORDINATOR", times=2)
    found = admin.committed([topic, "of-nobody"], [(topic, 0), (topic, 1), (topic, 2)], pytest.fail)
    assert fault.fired == 2
    assert found["of-nobody"] == {}
    assert {key: one.offset for key, one in found[topic].items()} == {(topic, 0): 3, (topic, 2): 0}
    assert found[topic][topic, 0].metadata == "a note"
    assert not found[topic][topic, 2].metadata


def test_a_mirror_finds_nothing_of_a_group_that_does_not_exist(
    door: TestBroker, topic: str
) -> None:
    admin = ClusterAdmin(Cluster("east", door.bootstrap), TIMEOUT_S)
    door.fail_next("OffsetFetch", "GROUP_ID_NOT_FOUND")
    assert admin.committed([topic], [(topic, 0)], pytest.fail) == {topic: {}}
    assert admin.committed([], [(topic, 0)], pytest.fail) == {}


def test_a_cluster_that_does_not_answer_is_away() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        admin = ClusterAdmin(Cluster("east", address), 1.0)
        with pytest.raises(AwayError, match="offsets of group g at east: "):
            admin.committed(["g"], [("t", 0)], pytest.fail)
