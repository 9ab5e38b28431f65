"""Topics that are deleted, created anew, or given more partitions, while they are read."""

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError

from pyrklog.base.problems import Problem
from pyrklog.cli import topic_watch
from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.options import Settings
from pyrklog.cli.topic_watch import MISSING_LOOKS, SeenTopic, TopicWatch
from tests.unit.cli.test_consumer import Message, PlainReader


class Topics:
    """The ids and partitions of topics, as brokers know them now."""

    def __init__(self, **ids: str | None) -> None:
        self.ids: dict[str, str | None] = dict(ids)
        self.partitions = {0: True}
        self.looks = 0

    def __call__(self) -> Mapping[str, SeenTopic | None]:
        self.looks += 1
        return {
            name: None if id_ is None else SeenTopic(id_, dict(self.partitions))
            for name, id_ in self.ids.items()
        }


@pytest.fixture
def topics() -> Topics:
    return Topics(t="one", u="two")


def test_a_topic_that_stays_missing_was_deleted(topics: Topics) -> None:
    watch = TopicWatch(topics, follows=False)
    topics.ids["u"] = None
    for _ in range(MISSING_LOOKS - 1):
        watch.check(MISSING_LOOKS)
    with pytest.raises(CliError, match="topic u was deleted while it was read") as ended:
        watch.check(MISSING_LOOKS)
    assert ended.value.code is Exit.NOT_FOUND


def test_a_broker_that_knows_a_topic_later_deletes_none(topics: Topics) -> None:
    watch = TopicWatch(topics, follows=False)
    for known in (None, "one") * 2 * MISSING_LOOKS:
        topics.ids["t"] = known
        watch.check(MISSING_LOOKS)
    topics.ids.clear()  # no broker answers
    watch.check()
    topics.ids["t"] = None
    with pytest.raises(CliError):
        watch.check()


def test_another_id_is_another_topic(topics: Topics) -> None:
    watch = TopicWatch(topics, follows=False)
    follower = TopicWatch(topics, follows=True)
    topics.ids["t"] = "three"
    follower.check()
    with pytest.raises(CliError, match="topic t was deleted and created anew") as ended:
        watch.check()
    assert ended.value.code is Exit.FAILED
    assert ended.value.fix == "start again to read the new topic"


def test_it_looks_now_and_then(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("pyrklog.cli.topic_watch.time.monotonic", lambda: now[0])
    watch = TopicWatch(topics, follows=False)
    watch.check_now_and_then()
    assert topics.looks == 1
    now[0] += topic_watch.LOOK_INTERVAL_S
    watch.check_now_and_then()
    watch.check_now_and_then()
    assert topics.looks == 2


def test_partitions_are_those_of_the_topics_that_are_read(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_watch, "BUSY_LOOK_INTERVAL_S", 0.0)
    watch = TopicWatch(topics, follows=False)
    topics.partitions[1] = False
    all_of_them = {("t", 0): True, ("t", 1): False, ("u", 0): True, ("u", 1): False}
    assert watch.check() == watch.look_now_and_then() == all_of_them
    # While records of the topic come, nothing is said of its end.
    topics.ids = {"t": "three", "u": None}
    assert watch.look_now_and_then() == {}


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_reader_learns_of_partitions_also_while_records_come(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, *, is_busy: bool
) -> None:
    seen: list[Mapping[PartitionKey, bool]] = []
    reader = PlainReader(Settings(bootstrap="nowhere:1"), ["t"], read_committed=False)
    reader.start()
    monkeypatch.setattr(topic_watch, "LOOK_INTERVAL_S", 0.0)
    monkeypatch.setattr(topic_watch, "BUSY_LOOK_INTERVAL_S", 0.0)
    monkeypatch.setattr(reader, "_on_look", seen.append)
    reader._watch = TopicWatch(topics, follows=False)
    reader._takes_more = True
    reader._consumer.next = [Message()] if is_busy else []
    assert len(reader.read(10, 0.0)) == is_busy
    assert seen == [{("t", 0): True, ("u", 0): True}]


def test_offsets_out_of_range_are_those_of_a_new_topic(topics: Topics) -> None:
    reader = PlainReader(Settings(bootstrap="nowhere:1"), ["t"], read_committed=False)
    reader.start()
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET, "out of range")
    reader._watch = TopicWatch(topics, follows=False)
    with pytest.raises(CliError, match="out of range") as moved:
        reader._on_error(error, ("t", 0))
    assert moved.value.fix == "start again with another -o"
    topics.ids["t"] = "three"
    with pytest.raises(CliError, match="topic t was deleted and created anew"):
        reader._on_error(error, ("t", 0))


def test_an_idle_reader_ends_when_its_topic_is_gone(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = PlainReader(Settings(bootstrap="nowhere:1"), ["t"], read_committed=False)
    reader.start()
    monkeypatch.setattr(topic_watch, "LOOK_INTERVAL_S", 0.0)
    reader._watch = TopicWatch(topics, follows=False)
    assert reader.read(10, 0.0) == []
    topics.ids["t"] = None
    for _ in range(MISSING_LOOKS - 1):
        assert reader.read(10, 0.0) == []
    with pytest.raises(CliError, match="topic t was deleted"):
        reader.read(10, 0.0)


def test_only_a_broker_that_answers_tells_of_topics() -> None:
    class Silent(Connection):
        def __init__(self) -> None:
            self.settings = Settings(bootstrap="nowhere:1")

        @property
        def admin(self) -> Any:
            raise CliError(Problem.NO_BROKER, "no broker reached")

    assert topic_watch.topic_ids(Silent(), ["t"]) == {}
