"""Elections against a made-up cluster: requests, and the use of their answers."""

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from pyrklog.base.problems import Problem
from pyrklog.cli import cluster_election
from pyrklog.cli.cluster_election import ElectionTargets, elect, parse_places
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.options import Settings

Answers = Mapping[tuple[str, int], int | None]
"""The elected leader, or None for the error below."""


class FakeCluster:
    """Stands for a :class:`Connection` and its ``AdminClient``."""

    def __init__(self, leaders: dict[tuple[str, int], int]) -> None:
        self.leaders = leaders
        self.asked: list[tuple[Any, Any]] = []
        self.answers: dict[tuple[str, int], Any] = {}
        self.new_leaders: dict[tuple[str, int], int] = {}
        self.failure: KafkaError | None = None
        self.settings = Settings(timeout_s=7.0)
        self.configured: dict[str, Any] = {}

    def metadata(self) -> Any:
        topics: dict[str, Any] = {}
        for (name, index), leader in self.leaders.items():
            topic = topics.setdefault(name, SimpleNamespace(partitions={}))
            topic.partitions[index] = SimpleNamespace(
                leader=leader, replicas=[1, 2, 3], isrs=[1, 2]
            )
        return SimpleNamespace(cluster_id="id", topics=topics, brokers={1: None, 2: None})

    def configuration(self, **more: Any) -> dict[str, Any]:
        return more

    def make(self, _kind: Any, configuration: dict[str, Any]) -> "FakeCluster":
        self.configured = configuration
        return self

    def explain(self, error: KafkaError, about: str) -> CliError:
        return CliError(Problem.BROKER_REFUSED, f"{about}: {error.name()}")

    def elect_leaders(self, kind: Any, places: Any) -> Any:
        asked = None if places is None else [(one.topic, one.partition) for one in places]
        self.asked.append((kind, asked))
        return self

    def result(self) -> dict[TopicPartition, Any]:
        if self.failure is not None:
            raise KafkaException(self.failure)
        self.leaders.update(self.new_leaders)
        return {TopicPartition(*place): answer for place, answer in self.answers.items()}


@pytest.fixture
def fake() -> FakeCluster:
    return FakeCluster({("a", 0): 2, ("a", 1): 1, ("b", 0): -1})


def run(fake: FakeCluster, texts: list[str], **changes: bool) -> cluster_election.ElectionResult:
    given = {"unclean": False, "dry_run": False, **changes}
    return elect(fake, parse_places(texts), **given)  # type: ignore[arg-type]


def test_partitions_to_elect_are_parsed() -> None:
    assert parse_places([]) == ElectionTargets({})
    assert parse_places(["a:1", "a:0", "a:1", "b"]) == ElectionTargets({"a": [0, 1], "b": ()})
    assert parse_places(["a:1", "a"]) == ElectionTargets({"a": ()}), "the whole topic is more"


@pytest.mark.parametrize("text", ["", ":", ":1", "a:", "a:x", "a:-1", "a:1:2", "a:²"])
def test_malformed_partitions_to_elect_are_refused(text: str) -> None:
    with pytest.raises(CliError, match="neither TOPIC nor") as caught:
        parse_places([text])
    assert caught.value.code is Exit.USAGE


def test_all_partitions_are_one_request_without_names(fake: FakeCluster) -> None:
    fake.answers = {("a", 0): None}
    fake.new_leaders = {("a", 0): 1}
    done = run(fake, [])
    assert fake.asked == [(confluent_kafka.ElectionType.PREFERRED, None)]
    assert fake.configured == {"socket.timeout.ms": 7000}
    assert (done.code, done.errors) == (Exit.OK, [])
    assert done.items == [{"topic": "a", "partition": 0, "old_leader": 2, "new_leader": 1}]


def test_named_partitions_are_elected(fake: FakeCluster) -> None:
    fake.answers = {("b", 0): None}
    fake.new_leaders = {("b", 0): 3}
    done = run(fake, ["b", "a:1"], unclean=True)
    assert fake.asked == [(confluent_kafka.ElectionType.UNCLEAN, [("a", 1), ("b", 0)])]
    assert done.items == [{"topic": "b", "partition": 0, "old_leader": None, "new_leader": 3}]


def test_unneeded_election_is_no_error(fake: FakeCluster) -> None:
    fake.answers = {("a", 1): KafkaError(KafkaError.ELECTION_NOT_NEEDED)}
    done = run(fake, ["a:1"])
    assert (done.code, done.items, done.errors) == (Exit.OK, [], [])


def test_partly_failed_election_is_reported(fake: FakeCluster) -> None:
    unavailable = KafkaError(KafkaError.PREFERRED_LEADER_NOT_AVAILABLE)
    fake.answers = {("a", 0): None, ("a", 1): unavailable, ("b", 0): KafkaException(unavailable)}
    fake.new_leaders = {("a", 0): 1}
    done = run(fake, ["a", "b"])
    assert done.code is Exit.PARTIAL
    assert [item["partition"] for item in done.items] == [0]
    assert [error.what.partition(":")[0] for error in done.errors] == [
        "partition a-1",
        "partition b-0",
    ]
    assert "in sync" in str(done.errors[0].fix)


def test_a_cluster_that_does_not_serve_it(fake: FakeCluster) -> None:
    fake.failure = KafkaError(KafkaError._UNSUPPORTED_FEATURE)
    with pytest.raises(CliError, match="does not serve ElectLeaders") as caught:
        run(fake, [])
    assert caught.value.code is Exit.FAILED


def test_failed_election_request_is_reported(fake: FakeCluster) -> None:
    fake.failure = KafkaError(KafkaError._TIMED_OUT)
    with pytest.raises(CliError, match="cannot elect leaders: _TIMED_OUT"):
        run(fake, [])


@pytest.mark.parametrize(("text", "why"), [("c", "topic c does not exist"), ("a:9", "partition 9")])
def test_missing_partition_is_reported_before_any_request(
    fake: FakeCluster, text: str, why: str
) -> None:
    with pytest.raises(CliError, match=why) as caught:
        run(fake, ["a", text] if text == "c" else [text])
    assert caught.value.code is Exit.NOT_FOUND
    assert fake.asked == []


def test_dry_run_shows_the_changes_and_sends_no_election(fake: FakeCluster) -> None:
    assert [(one["topic"], one["new_leader"]) for one in run(fake, [], dry_run=True).items] == [
        ("a", 1),
        ("b", 1),
    ]
    unclean = run(fake, ["a", "b"], dry_run=True, unclean=True).items
    assert unclean == [{"topic": "b", "partition": 0, "old_leader": None, "new_leader": 1}]
    assert fake.asked == []


def test_a_leader_that_no_broker_tells_of_yet_is_waited_for(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answers = {("a", 0): None}
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            fake.leaders["a", 0] = 1

    monkeypatch.setattr(time, "sleep", pause)
    assert run(fake, ["a:0"]).items[0]["new_leader"] == 1
    assert len(pauses) == 3
