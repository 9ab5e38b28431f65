"""The driver's questions: what is asked again, what is told, what is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicCollection, Uuid

from pyrklog.scanning import LeaderNotAvailableError, ListedOffset, LogTruncatedError
from pyrklog.spark import agreement, cluster, unreached
from pyrklog.spark.cluster import ClusterError, GoneError, KafkaCluster
from pyrklog.spark.connection import Connection
from pyrklog.spark.decisions import TOPIC
from pyrklog.spark.offsets import Position, TopicPartition
from pyrklog.spark.places import EARLIEST, LATEST, Kind, Place
from pyrklog.spark.view import TopicView

INTERNAL = ("__consumer_offsets", TOPIC)
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
UNKNOWN = int(KafkaError.UNKNOWN_TOPIC_OR_PART)


def done(answer: object) -> Future[object]:
    future: Future[object] = Future()
    if isinstance(answer, int):
        future.set_exception(KafkaException(KafkaError(answer)))
    else:
        future.set_result(answer)
    return future


class FakeAdmin:
    """Answers each question of a key with the next of its answers; an int is an error code."""

    def __init__(self, answers: Mapping[object, list[object]]) -> None:
        self.answers = {key: list(some) for key, some in answers.items()}
        self.asked: list[list[object]] = []
        self.isolation: object = None
        self.refreshed = 0
        self.refresh_s: list[float] = []
        self.timeouts_s: list[float] = []

    def describe_topics(
        self, topics: TopicCollection, *, request_timeout: float
    ) -> dict[str, Future[object]]:
        self.timeouts_s.append(request_timeout)
        self.asked.append(list(topics.topic_names))
        return {name: done(self.answers[name].pop(0)) for name in topics.topic_names}

    def list_offsets(
        self, question: dict[Any, Any], *, isolation_level: object, **_: object
    ) -> dict[Any, Future[object]]:
        self.isolation = isolation_level
        self.asked.append([TopicPartition(one.topic, one.partition) for one in question])
        return {
            one: done(self.answers[TopicPartition(one.topic, one.partition)].pop(0))
            for one in question
        }

    def list_topics(self, *, timeout: float) -> object:
        self.refreshed += 1
        self.refresh_s.append(timeout)
        brokers = {1: SimpleNamespace(host="h", port=1), 2: SimpleNamespace(host="::1", port=2)}
        names = dict.fromkeys(["b", "a", *INTERNAL])
        return SimpleNamespace(topics=names, brokers=brokers)


def connected(
    monkeypatch: pytest.MonkeyPatch,
    answers: Mapping[object, list[object]],
    connection: Connection | None = None,
) -> tuple[KafkaCluster, FakeAdmin]:
    admin = FakeAdmin(answers)
    monkeypatch.setattr(Connection, "admin", lambda _: admin)
    return KafkaCluster(connection or Connection("h:1")), admin


def described(*numbers: int, uuid: Uuid | None = None) -> object:
    partitions = [SimpleNamespace(id=number) for number in numbers]
    return SimpleNamespace(topic_id=uuid or Uuid(0, 0), partitions=partitions)


def listed(offset: int, epoch: int | None = None) -> object:
    return SimpleNamespace(offset=offset, leader_epoch=epoch)


def timed(offset: int, at_ms: int) -> object:
    return SimpleNamespace(offset=offset, timestamp=at_ms, leader_epoch=None)


def test_the_latest_time_of_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a broker before Kafka 3.0 answers is its first record, which proves nothing."""
    answers: dict[object, list[object]] = {
        A0: [timed(7, 5000), timed(0, 10)],
        A1: [timed(0, 10), timed(0, 10)],
    }
    asked, admin = connected(monkeypatch, answers)
    assert asked.latest_times([A0, A1]) == {A0: 5000}
    assert [set(one) for one in admin.asked] == [{A0, A1}, {A0, A1}]
    nothing: dict[object, list[object]] = {
        A0: [timed(-1, -1), timed(4, 10)],
        A1: [timed(3, 10), timed(-1, -1)],
    }
    asked, _ = connected(monkeypatch, nothing)
    assert asked.latest_times([A0, A1]) == {}
    assert asked.latest_times([]) == {}


def test_topics_that_exist_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that says that a topic does not exist is asked again, for a while and once."""
    monkeypatch.setattr(cluster, "ABSENT_S", 0.05)
    unknown = KafkaError.UNKNOWN_TOPIC_OR_PART
    asked, admin = connected(
        monkeypatch,
        {
            "a": [described(1, 0, uuid=Uuid(1, 2)), described(0)],
            "b": [unknown] * 9,
            "c": [unknown, described(0), unknown, described(0)],
        },
    )
    found = asked.describe(["a", "b", "c"], {})
    assert found == {"a": TopicView(str(Uuid(1, 2)), (0, 1)), "c": TopicView("", (0,))}
    assert len(admin.asked) > 1
    admin.asked.clear()
    assert asked.describe(["b"], {}) == {}
    assert admin.asked == [["b"]]
    assert asked.describe(["b", "c"], {}) == {"c": TopicView("", (0,))}
    assert asked.describe([], {}) == {}


def test_a_broker_that_knows_less_is_not_believed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before, now = Uuid(1, 2), Uuid(3, 4)
    answers: dict[object, list[object]] = {
        "a": [described(0, uuid=now), described(0, 1, uuid=now)],
        "b": [described(0, uuid=before), described(0, uuid=now)],
        "c": [described(0, uuid=before)],
    }
    asked, admin = connected(monkeypatch, answers)
    expected = {
        "a": TopicView(str(now), (0, 1)),
        "b": TopicView(str(now), (0,)),
        "c": TopicView(str(before), (0,)),
    }
    assert asked.describe(["a", "b", "c"], expected) == expected
    assert admin.asked == [["a", "b", "c"], ["a", "b"]]


class FakeBrokers:
    """Stands for ``agreement.confirmed``: what all brokers say, each time it is asked."""

    def __init__(self, *answers: set[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[list[str], list[str]]] = []

    def __call__(
        self, names: list[str], expected: object, brokers: list[str], connection: object
    ) -> set[str]:
        self.asked.append((list(names), list(brokers)))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.mark.parametrize("answer", [described(0, uuid=Uuid(3, 4)), UNKNOWN])
def test_what_brokers_insist_on_is_believed(
    monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    monkeypatch.setattr(cluster, "ABSENT_S", 0.05)
    brokers = FakeBrokers({"a"})
    monkeypatch.setattr(agreement, "confirmed", brokers)
    asked, admin = connected(monkeypatch, {"a": [answer] * 9})
    found = asked.describe(["a"], {"a": TopicView(str(Uuid(1, 2)), (0, 1))})
    assert found == ({} if answer == UNKNOWN else {"a": TopicView(str(Uuid(3, 4)), (0,))})
    assert len(admin.asked) > 1
    assert brokers.asked == [(["a"], ["h:1", "[::1]:2"])]


@pytest.mark.parametrize("answer", [described(0, uuid=Uuid(3, 4)), UNKNOWN])
def test_one_broker_that_insists_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    """Others know the topic: a stream that drops it would lose its place."""
    monkeypatch.setattr(cluster, "ABSENT_S", 0.05)
    monkeypatch.setattr(agreement, "confirmed", FakeBrokers(set()))
    uuid = Uuid(1, 2)
    expected = {"a": TopicView(str(uuid), (0, 1))}
    answers: dict[object, list[object]] = {"a": [answer] * 4 + [described(0, 1, uuid=uuid)]}
    asked, admin = connected(monkeypatch, answers)
    assert asked.describe(["a"], expected) == expected
    assert admin.refreshed >= 2
    asked, _ = connected(monkeypatch, {"a": [answer] * 99}, Connection("h:1", timeout_s=0.3))
    with pytest.raises(ClusterError, match=r"topic a cannot be described: .* not all brokers say"):
        asked.describe(["a"], expected)


def test_ids_are_written_as_kafka_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = connected(monkeypatch, {"a": [described(uuid=Uuid(-1, -64))]})
    assert asked.describe(["a"], {})["a"].topic_id == 20 * "_" + "wA"


def test_internal_topics_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connected(monkeypatch, {})[0].topic_names() == ["a", "b"]


def test_offsets_stand_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, admin = connected(monkeypatch, {A1: [listed(7, 3)]})
    wanted = {A0: Place(Kind.OFFSET, 5), A1: LATEST}
    assert asked.offsets(wanted) == {A0: Position(5), A1: Position(7, 3)}
    assert admin.asked == [[A1]]
    assert asked.offsets({A0: Place(Kind.OFFSET, 5)}) == {A0: Position(5)}
    assert len(admin.asked) == 1


def test_a_leader_that_moves_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, admin = connected(
        monkeypatch,
        {A0: [listed(1)], A1: [KafkaError.NOT_LEADER_FOR_PARTITION, listed(2, 9)]},
    )
    assert asked.offsets({A0: EARLIEST, A1: EARLIEST}) == {A0: Position(1), A1: Position(2, 9)}
    assert admin.asked == [[A0, A1], [A1]]
    assert admin.refreshed == 1


def test_a_controller_that_is_away_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka waits for the one it knows as long as it may."""
    timed_out = KafkaError._TIMED_OUT
    asked, admin = connected(monkeypatch, {"a": [timed_out, timed_out, described(0)]})
    assert asked.describe(["a"], {}) == {"a": TopicView("", (0,))}
    assert admin.refreshed == 2
    assert admin.timeouts_s == sorted(set(admin.timeouts_s))
    assert admin.timeouts_s[0] <= 1


def test_leaders_that_are_not_known_yet_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka's metadata is older than the description, as after partitions were added."""
    asked, admin = connected(
        monkeypatch,
        {
            A0: [listed(1)],
            A1: [KafkaError._UNKNOWN_PARTITION, KafkaError._NOENT, listed(2)],
        },
    )
    assert asked.offsets({A0: LATEST, A1: LATEST}) == {A0: Position(1), A1: Position(2)}
    assert admin.asked == [[A0, A1], [A1], [A1]]


@pytest.mark.parametrize(
    ("then", "told"),
    [(described(0), "partition a-1 does not"), (KafkaError.UNKNOWN_TOPIC_OR_PART, "topic a does")],
)
def test_what_is_gone_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, then: object, told: str
) -> None:
    monkeypatch.setattr(cluster, "ABSENT_S", 0.05)
    answers: dict[object, list[object]] = {A1: [KafkaError._NOENT] * 9, "a": [then] * 9}
    asked, _ = connected(monkeypatch, answers)
    with pytest.raises(GoneError, match=told):
        asked.offsets({A1: LATEST})


def test_all_topics_that_are_gone_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ABSENT_S", 0.05)
    b0, c0 = TopicPartition("b", 0), TopicPartition("c", 0)
    noent = KafkaError._NOENT
    answers: dict[object, list[object]] = {
        **{place: [noent] * 9 for place in (A0, A1, b0, c0)},
        **{"a": [described(0)], "b": [UNKNOWN] * 9, "c": [described(0)]},
    }
    asked, _ = connected(monkeypatch, answers)
    with pytest.raises(GoneError, match="partition a-1 does not exist") as caught:
        asked.offsets(dict.fromkeys((A0, A1, b0, c0), LATEST))
    assert caught.value.topics == {"a", "b"}


def test_topics_that_come_and_go_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by their names nor by their offsets. ``a`` is there, though its leader is not yet."""
    monkeypatch.setattr(cluster, "ABSENT_S", 60.0)
    b0 = TopicPartition("b", 0)
    unknown = KafkaError.UNKNOWN_TOPIC_OR_PART
    answers: dict[object, list[object]] = {
        A0: [unknown, listed(3)],
        b0: [unknown],
        "a": [described(0)] * 3,
        "b": [unknown, unknown],
    }
    asked, admin = connected(monkeypatch, answers)
    assert asked.describe(["a", "b"], {}, {"b"}) == {"a": TopicView("", (0,))}
    assert admin.asked == [["a", "b"]]
    admin.asked.clear()
    with pytest.raises(GoneError, match="topic b does not") as caught:
        asked.offsets({A0: LATEST, b0: LATEST}, {"a", "b"})
    assert caught.value.topics == {"b"}
    assert admin.asked == [[A0, b0], ["a", "b"]]
    assert asked.offsets({A0: LATEST}, {"a"}) == {A0: Position(3)}


def test_what_is_expected_is_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One broker said that it is gone when offsets were listed: that is no proof."""
    monkeypatch.setattr(cluster, "ABSENT_S", 0.05)
    monkeypatch.setattr(agreement, "confirmed", FakeBrokers(set()))
    answers: dict[object, list[object]] = {A0: [KafkaError._NOENT] * 9}
    asked, admin = connected(monkeypatch, answers)
    admin.answers["a"] = [UNKNOWN] * 99
    with pytest.raises(GoneError):
        asked.offsets({A0: LATEST})
    admin.answers["a"] = [UNKNOWN] * 4 + [described(0)]
    known = TopicView("", (0,))
    assert asked.describe(["a"], {"a": known}) == {"a": known}


def test_a_leader_that_did_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka tells it by an offset that is none. -1 says that no record is so late."""
    asked, admin = connected(
        monkeypatch, {A0: [listed(OFFSET_INVALID), listed(4, 2)], A1: [listed(-1)]}
    )
    wanted = {A0: LATEST, A1: Place(Kind.TIMESTAMP, 5)}
    assert asked.offsets(wanted) == {A0: Position(4, 2), A1: Position(-1)}
    assert admin.asked == [[A0, A1], [A0]]
    assert admin.refreshed == 1


def test_a_refusal_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, admin = connected(monkeypatch, {A0: [KafkaError.TOPIC_AUTHORIZATION_FAILED]})
    with pytest.raises(ClusterError, match="offsets of a-0 cannot be listed"):
        asked.offsets({A0: LATEST})
    assert len(admin.asked) == 1


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ("broker h:1: cannot connect", "a-0 cannot be listed: broker h:1: cannot connect$"),
        (None, "Broker transport failure; a broker answers at h:1, .* that it advertises$"),
    ],
)
def test_questions_end_with_the_time_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, found: str | None, told: str
) -> None:
    looked: list[str | None] = []

    def reason(connection: Connection, topic: str | None) -> str | None:
        looked.append(topic)
        return found

    monkeypatch.setattr(unreached, "reason", reason)
    asked, admin = connected(
        monkeypatch, {A0: [KafkaError._TRANSPORT] * 99}, Connection("h:1", timeout_s=0.01)
    )
    with pytest.raises(ClusterError, match=told):
        asked.offsets({A0: LATEST})
    assert looked == ["a"]
    assert all(left_s <= 0.1 for left_s in admin.refresh_s)


def test_a_refusal_needs_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    def reason(*_: object) -> str:
        raise AssertionError("asked")

    monkeypatch.setattr(unreached, "reason", reason)
    asked, _ = connected(monkeypatch, {A0: [KafkaError.TOPIC_AUTHORIZATION_FAILED]})
    with pytest.raises(ClusterError, match="authorization"):
        asked.offsets({A0: LATEST})


def test_isolation_decides_what_is_last(monkeypatch: pytest.MonkeyPatch) -> None:
    for isolation, level in (("read_committed", 1), ("read_uncommitted", 0)):
        asked, admin = connected(
            monkeypatch, {A0: [listed(1)]}, Connection("h:1", isolation=isolation)
        )
        asked.offsets({A0: LATEST})
        assert getattr(admin.isolation, "value", None) == level


class FakeProbe:
    """A scan of leaders that lag, or of which some have truncated their logs."""

    def __init__(self, truncated: set[int]) -> None:
        self.truncated = truncated
        self.asked: list[set[int]] = []
        self.timeouts_s: list[float] = []

    def __call__(
        self,
        topics: dict[str, list[int]],
        starts: dict[str, dict[int, tuple[int, int]]],
        ends: dict[str, dict[int, int]],
        columns: list[str],
        *,
        timeout_s: float,
        **_: object,
    ) -> Any:
        self.timeouts_s.append(timeout_s)
        numbers = set(topics["a"])
        assert starts["a"] == {number: ListedOffset(100 + number, 7) for number in numbers}
        assert all(isinstance(place, ListedOffset) for place in starts["a"].values())
        assert ends["a"] == {number: 101 + number for number in numbers}
        self.asked.append(numbers)

        def batches() -> Iterator[object]:
            yield object()
            if numbers & self.truncated:
                raise LogTruncatedError("cut")
            raise LeaderNotAvailableError("no record yet")

        return nullcontext(batches())


@pytest.mark.parametrize("truncated", [set(), {0}, {12}, {5, 6, 11}])
def test_a_truncated_log_is_found_among_lagging_ones(
    monkeypatch: pytest.MonkeyPatch, truncated: set[int]
) -> None:
    """All at once, and then by halves: each scan of lagging leaders takes its whole time."""
    probe = FakeProbe(truncated)
    monkeypatch.setattr(cluster, "scan", probe)
    positions = {TopicPartition("a", number): Position(100 + number, 7) for number in range(13)}
    found = KafkaCluster(Connection("h:1")).find_truncated(positions)
    if not truncated:
        assert found is None
        assert len(probe.asked) == 1
        return
    assert found is not None
    assert found.partition in truncated
    assert len(probe.asked) <= 6


def test_a_truncation_that_is_not_said_again_is_of_no_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader that said so is away when the halves are asked."""
    probe = FakeProbe({0})
    monkeypatch.setattr(cluster, "scan", probe)
    asked = KafkaCluster(Connection("h:1"))
    is_one_truncated = asked._is_one_truncated

    def once(*arguments: Any) -> bool:
        said = is_one_truncated(*arguments)
        probe.truncated = set()
        return said

    monkeypatch.setattr(asked, "_is_one_truncated", once)
    positions = {TopicPartition("a", number): Position(100 + number, 7) for number in range(4)}
    assert asked.find_truncated(positions) is None
    assert probe.asked[-1] == {3}


def test_a_look_for_truncations_takes_longer_than_a_scan_doubts_old_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some truncations a scan tells after 3 s only. Lagging leaders do not cost that each time."""
    probe = FakeProbe(set())
    now_s = 1000.0
    monkeypatch.setattr(cluster, "scan", probe)
    monkeypatch.setattr("pyrklog.spark.cluster.time.monotonic", lambda: now_s)
    lagging = {TopicPartition("a", number): Position(100 + number, 7) for number in range(4)}
    asked = KafkaCluster(Connection("h:1", timeout_s=2.0))
    for wait_s in (0.0, 5.0, 24.0, 1.0):
        now_s += wait_s
        assert asked.find_truncated(lagging) is None
    assert probe.timeouts_s == [5.0, 1.0, 1.0, 5.0]
    # A search that begins with time goes on with it.
    probe.truncated, now_s = {2}, now_s + 30.0
    assert asked.find_truncated(lagging) == TopicPartition("a", 2)
    assert probe.timeouts_s[4:] == [5.0, 5.0, 5.0]
