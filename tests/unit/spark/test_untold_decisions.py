"""Brokers that know less of the topic of decisions than was written: nothing that may be decided is
aborted, and no number is decided twice."""

from __future__ import annotations

import pytest

from pyrklog.producing import ProduceError
from pyrklog.spark.decisions import Decision, DecisionLogError, mark_key
from tests.support.decision_topic import SERVERS, DecisionTopic, TopicStream
from tests.support.sink_world import SINK, Died, World

STEPS_MAX = 80
ALL = set(SERVERS.split(","))


def know_less(topic: DecisionTopic, how: str, brokers: set[str]) -> None:
    if how == "blind":
        topic.blind = brokers
    else:
        topic.former = brokers


def begun(patch: pytest.MonkeyPatch) -> tuple[DecisionTopic, TopicStream]:
    """A query with one number, after which another leader is elected."""
    topic = DecisionTopic(World(), patch)
    stream = TopicStream(topic)
    stream.run_next()
    topic.former_records = len(topic.records)
    return topic, stream


def finish(topic: DecisionTopic, stream: TopicStream) -> None:
    topic.world.at_step = lambda step: None
    topic.forget_nothing()
    stream.start()
    while stream.done + 1 < 4:
        stream.run_next()
    assert stream.world.visible == stream.expected(4)
    assert stream.world.open_ids() == []


@pytest.mark.parametrize("brokers", [ALL, {"a:1"}])
@pytest.mark.parametrize("how", ["blind", "former"])
def test_an_abort_ends_nothing_that_may_be_decided(
    monkeypatch: pytest.MonkeyPatch, how: str, brokers: set[str]
) -> None:
    """A commit fails at each of its steps, and when Spark calls abort, brokers know less."""

    def fail() -> None:
        raise ProduceError("the cluster is away")

    for step in range(1, STEPS_MAX):
        topic, stream = begun(monkeypatch)
        attempts = stream.attempts(1)
        topic.world.once_at(step, fail)
        try:
            stream.committer().commit(1, attempts)
        except ProduceError:
            know_less(topic, how, brokers)
            stream.committer().abort(1, attempts)
        else:
            break
        finish(topic, stream)
    assert 15 < step < STEPS_MAX - 1, "not each of its steps failed"


@pytest.mark.parametrize("brokers", [ALL, {"a:1"}])
@pytest.mark.parametrize("how", ["blind", "former"])
def test_a_number_is_decided_once(
    monkeypatch: pytest.MonkeyPatch, how: str, brokers: set[str]
) -> None:
    """A driver dies at each step of its commit, and the brokers that the next one asks know less:
    it may fail, and aborts then."""
    for step in range(1, STEPS_MAX):
        topic, stream = begun(monkeypatch)
        attempts = stream.attempts(1)
        topic.world.die_at(step)
        try:
            stream.committer().commit(1, attempts)
        except Died:
            topic.world.at_step = lambda step: None
        else:
            break
        stream.start()
        know_less(topic, how, brokers)
        attempts = stream.attempts(1)
        try:
            stream.committer().commit(1, attempts)
        except ProduceError:
            stream.committer().abort(1, attempts)
        finish(topic, stream)
    assert 15 < step < STEPS_MAX - 1, "it did not die at each of its steps"


def test_one_broker_that_knows_less_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for how in ("blind", "former"):
        topic, stream = begun(monkeypatch)
        know_less(topic, how, {"a:1"})
        stream.run_next()
        finish(topic, stream)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("blind", "brokers do not know it: topic __pyrklog_spark_sink does not exist"),
        ("former", "the leader that brokers name lacks what was just written"),
    ],
)
def test_what_is_not_known_is_told(monkeypatch: pytest.MonkeyPatch, how: str, told: str) -> None:
    topic, _ = begun(monkeypatch)
    know_less(topic, how, ALL)
    log = topic.log()
    with pytest.raises(DecisionLogError, match="nothing is decided or aborted: .*" + told):
        log.last()
    with pytest.raises(DecisionLogError, match="has not been read"):
        log.write(Decision(1))


def test_a_topic_that_does_not_exist_is_made_and_has_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = DecisionTopic(World(), monkeypatch)
    log = topic.log()
    assert log.peek() is None
    assert topic.records == []
    assert log.last() is None
    assert [key for key, _ in topic.records] == [mark_key(SINK)]
    log.write(Decision(3))
    assert topic.log().peek() == Decision(3)
    assert topic.log().last() == Decision(3)


def test_what_another_driver_may_have_decided_since_is_read_before_a_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = DecisionTopic(World(), monkeypatch)
    log = topic.log()
    log.last()
    topic.log().last()
    with pytest.raises(ProduceError, match="another driver has taken over"):
        log.write(Decision(1))
    log.take_over()
    with pytest.raises(DecisionLogError, match="has not been read"):
        log.write(Decision(1))
