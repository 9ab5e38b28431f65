"""Topics that are created anew, that come later, and mirrors that end in the middle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from pyrklog.mirror import (
    Cluster,
    Mirror,
    MirrorError,
    Names,
    Options,
    Pace,
    Patterns,
    Policy,
    run,
    target_logs,
)
from pyrklog.mirror.copy import NO_TIMESTAMP_US
from pyrklog.mirror.topics import Look, Topics
from pyrklog.producing import Producer, ProducerSettings
from pyrklog.testing import TestBroker
from tests.support.groups import create_topic
from tests.support.mirroring import Pair, fill, rows, values, wait_for_values
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.timeout(240)


class EndedError(Exception):
    """A test has seen enough."""


class Watcher:
    """Does what a test wants when the mirror has begun, and after each round."""

    def __init__(self, began: Callable[[], None], copied: Callable[[], None]) -> None:
        self._began, self._copied = began, copied
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def began(self, _plan: object, _progress: object) -> None:
        self._began()

    def copied(self, _progress: Mapping[Any, Any]) -> None:
        self._copied()


def nothing() -> None:
    pass


def mirrored(
    pair: Pair,
    name: str,
    *,
    began: Callable[[], None] = nothing,
    copied: Callable[[], None] = nothing,
    policy: Policy = Policy.PREFIX,
    **more: Any,
) -> None:
    """A mirror of this process, of topics whose names begin so, until one of these raises."""
    options = Options(
        source=Cluster("east", pair.source),
        target=Cluster("west", pair.target),
        names=Names("east", "west", policy, name),
        topics=Patterns([f"{name}.*"], "--topics"),
        groups=Patterns([], "--groups"),
        pace=Pace(0.05),
        interval_s=0.05,
        **more,
    )
    Mirror(options, Watcher(began, copied)).run()


def make_anew(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    wait_until(lambda: topic not in admin.list_topics(timeout=PATIENCE_S).topics, "still there")
    create_topic(bootstrap, topic, partitions)


def test_records_without_a_timestamp_are_the_same_there(pair: Pair, topic: str) -> None:
    create_topic(pair.source, topic, 1)
    columns = ["value", "timestamp"]
    producer = Producer(ProducerSettings(pair.source, columns, topic=topic))
    times = pa.array([NO_TIMESTAMP_US, 1_700_000_000_000_000], pa.timestamp("us", "UTC"))
    producer.send(pa.record_batch({"value": pa.array([b"a", b"b"]), "timestamp": times}))
    producer.flush()
    pair.once("--topics", topic)
    here = rows(pair.source, topic, columns)
    assert [row["timestamp"] is None for row in here[0]] == [True, False]
    assert rows(pair.target, f"east.{topic}", columns) == here
    pair.verified()


def test_a_topic_made_anew_at_the_target_stops_the_mirror(pair: Pair, topic: str) -> None:
    create_topic(pair.source, topic, 1)
    wanted = fill(pair.source, topic, 10, partitions=1)
    pair.once("--topics", topic)
    target = f"east.{topic}"
    make_anew(pair.target, target, 1)
    # As many as were mirrored, so that only its id tells.
    fill(pair.target, target, 20, partitions=1)
    said = pair.once("--topics", topic, code=1)
    assert f"topic {target} was deleted at the target and created anew" in said
    (one,) = pair.items("verify", code=8)
    assert one["difference"] == "the topic was created anew at the target"
    pair.once("--topics", topic, "--again", topic)
    assert values(pair.target, target) - fill_values(0, 20) == wanted
    pair.verified()


def fill_values(first: int, count: int) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(first, first + count))


def test_verify_tells_a_topic_made_anew_at_the_source_and_one_that_is_gone(
    pair: Pair, topic: str
) -> None:
    create_topic(pair.source, topic, 1)
    fill(pair.source, topic, 10, partitions=1)
    pair.once("--topics", topic)
    make_anew(pair.source, topic, 1)
    fill(pair.source, topic, 10, partitions=1)
    (one,) = pair.items("verify", code=9)
    assert one["result"] == "created anew at the source"
    (one,) = pair.items("status", "--over", "0")
    assert one["state"] == "created anew"
    admin = AdminClient({"bootstrap.servers": pair.target})
    target = f"east.{topic}"
    admin.delete_topics([target])[target].result(PATIENCE_S)
    wait_until(lambda: target not in admin.list_topics(timeout=PATIENCE_S).topics, "still there")
    (one,) = pair.items("verify", code=8)
    assert one["difference"] == "the topic is gone at the target"


@pytest.mark.parametrize("side", ["source", "target"])
def test_verify_tells_a_topic_made_anew_with_fewer_partitions(
    pair: Pair, topic: str, side: str
) -> None:
    """And goes on to the others."""
    other = f"{topic}-other"
    for name in (topic, other):
        create_topic(pair.source, name, 3)
        fill(pair.source, name, 10)
    pair.once("--topics", f"{topic}.*")
    at_source = side == "source"
    make_anew(*((pair.source, topic) if at_source else (pair.target, f"east.{topic}")), 1)
    found = pair.items("verify", code=9 if at_source else 8)
    told = [one["result" if at_source else "difference"] for one in found if one["topic"] == topic]
    wanted = (
        "created anew at the source" if at_source else "the topic was created anew at the target"
    )
    assert told == [wanted] * 3
    assert [one["result"] for one in found if one["topic"] == other] == ["same"] * 3


def test_a_running_mirror_notices_a_target_made_anew(
    pair: Pair, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would write on into the new topic, and what was there before is missing."""
    monkeypatch.setattr(run, "REFRESH_S", 0.1)
    monkeypatch.setattr(target_logs, "MARKERS_S", 0.5)
    create_topic(pair.source, topic, 1)
    fill(pair.source, topic, 10, partitions=1)
    changed: list[str] = []

    def change() -> None:
        if not changed:
            changed.append(topic)
            make_anew(pair.target, f"east.{topic}", 1)

    with pytest.raises(MirrorError, match="was deleted at the target and created anew"):
        mirrored(pair, topic, copied=change)


def test_topics_that_come_later_are_copied_whole(
    pair: Pair, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--start end`` is of those that are there when the mirror starts."""
    monkeypatch.setattr(run, "REFRESH_S", 0.1)
    create_topic(pair.source, topic, 1)
    fill(pair.source, topic, 10, partitions=1)
    later = f"{topic}-later"
    wanted: Counter[bytes] = Counter()

    def look() -> None:
        if not wanted:
            create_topic(pair.source, later, 2)
            wanted.update(fill(pair.source, later, 10, partitions=2))
        elif values(pair.target, f"east.{later}") == wanted:
            raise EndedError

    with pytest.raises(EndedError):
        mirrored(pair, topic, copied=look, start="latest")
    assert values(pair.target, f"east.{topic}").total() == 0


def test_topics_that_come_while_the_mirror_is_away_are_copied_whole(pair: Pair, topic: str) -> None:
    """But not those that other ``--topics`` add."""
    other, later = f"{topic}-other", f"{topic}-later"
    for name in (topic, other):
        create_topic(pair.source, name, 1)
        fill(pair.source, name, 10, partitions=1)
    words = ("--topics", topic, "--topics", later)
    pair.once(*words, "--start", "end")
    create_topic(pair.source, later, 1)
    wanted = fill(pair.source, later, 10, partitions=1)
    pair.once(*words, "--start", "end")
    pair.once("--topics", f"{topic}.*", "--start", "end")
    assert values(pair.target, f"east.{topic}").total() == 0
    assert values(pair.target, f"east.{later}") == wanted
    assert values(pair.target, f"east.{other}").total() == 0


def test_a_copy_again_that_ended_before_it_began_is_not_forgotten(pair: Pair, topic: str) -> None:
    """The next run need not be told again, whatever ``--start`` it has."""
    create_topic(pair.source, topic, 1)
    fill(pair.source, topic, 10, partitions=1)
    pair.once("--topics", topic)
    make_anew(pair.source, topic, 1)
    second = fill(pair.source, topic, 20, first=100, partitions=1)

    def end() -> None:
        raise EndedError

    with pytest.raises(EndedError):
        mirrored(pair, topic, began=end, again=[topic], start="latest")
    assert (values(pair.target, f"east.{topic}") & second).total() == 0
    # Other patterns, so that the start counts.
    words = ("--topics", f"{topic}|x", "--start", "end")
    pair.once(*words)
    assert values(pair.target, f"east.{topic}") & second == second
    pair.once(*words)
    assert values(pair.target, f"east.{topic}") == fill_values(0, 10) + second
    pair.verified()
    said = pair.once("--topics", topic, "--again", "misspelled")
    assert "--again misspelled: no such topic is copied" in said


def test_two_mirrors_of_a_circle_that_start_at_once_copy_nothing(
    brokers: tuple[str, str], pair: Pair, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one looks after the first has, and before that has written whence it copies."""
    back = Pair(brokers[1], brokers[0], topic)
    for bootstrap in brokers:
        create_topic(bootstrap, topic, 1)
    fill(pair.source, topic, 10, partitions=1)
    begun: list[str] = []

    def begin() -> None:
        raise EndedError

    class Slow(Topics):
        def look(self, mirrored: Collection[str] = ()) -> Look:
            found = super().look(mirrored)
            if not begun:
                begun.append(topic)
                with pytest.raises(EndedError):
                    mirrored_of(back)
            return found

    def mirrored_of(one: Pair) -> None:
        mirrored(one, topic, policy=Policy.IDENTITY, began=begin)

    monkeypatch.setattr(run, "Topics", Slow)
    with pytest.raises(MirrorError, match=f"topic {topic} would go in a circle"):
        mirrored_of(pair)
    assert values(pair.target, topic).total() == 0


def test_a_second_mirror_to_the_same_topic_is_refused(pair: Pair, topic: str) -> None:
    """As when the alias, and with it the name, is forgotten."""
    create_topic(pair.source, topic, 1)
    wanted = fill(pair.source, topic, 10, partitions=1)
    pair.once("--topics", topic, "--policy", "identity")
    other = f"{topic}-other"
    create_topic(pair.source, other, 1)
    again = Pair(pair.source, pair.target, f"{topic}-again")
    words = ("--topics", f"{topic}.*", "--policy", "identity")
    said = again.once(*words, code=1)
    assert f"topic {topic} is copied to {topic} by another mirror" in said
    assert values(pair.target, topic) == wanted
    there = AdminClient({"bootstrap.servers": pair.target}).list_topics(timeout=PATIENCE_S).topics
    assert not {one for one in there if again.between[-1] in one}, "it has left something behind"
    assert other not in there
    again.once("--topics", topic)
    assert values(pair.target, f"east.{topic}") == wanted


def test_two_mirrors_that_start_at_once_do_not_both_copy_a_topic(
    pair: Pair, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both look when nobody has written which topics it copies: the second one then writes that,
    and begins, while the first one is about to."""
    create_topic(pair.source, topic, 1)
    wanted = fill(pair.source, topic, 10, partitions=1)
    second = Pair(pair.source, pair.target, f"{topic}-second")
    words = ("--topics", topic, "--policy", "identity")
    started: list[str] = []
    announce = Mirror._announce

    def late(*given: Any) -> Any:
        if not started:
            started.append(topic)
            second.once(*words)
        return announce(*given)

    monkeypatch.setattr(Mirror, "_announce", late)
    said = pair.once(*words, code=1)
    assert f"topic {topic} is copied to {topic} by another mirror" in said
    assert values(pair.target, topic) == wanted
    # What the refused one wrote does not stand in the other's way.
    wanted += fill(pair.source, topic, 10, first=10, partitions=1)
    second.once(*words)
    assert values(pair.target, topic) == wanted


def test_a_mirror_of_other_clusters_does_not_end_the_one_of_its_name(
    pair: Pair, topic: str, new_broker: Callable[..., TestBroker]
) -> None:
    create_topic(pair.source, topic, 1)
    wanted = fill(pair.source, topic, 10, partitions=1)
    with pair.start("--topics", topic, "--interval", "0.1") as running:
        try:
            wait_for_values(pair.target, f"east.{topic}", wanted)
            other = new_broker().start().bootstrap
            said = Pair(other, pair.target, topic).once("--topics", topic, code=1)
            assert "the mirror was begun from cluster" in said
            wanted += fill(pair.source, topic, 10, first=100, partitions=1)
            wait_for_values(pair.target, f"east.{topic}", wanted)
            assert running.poll() is None
        finally:
            running.kill()
