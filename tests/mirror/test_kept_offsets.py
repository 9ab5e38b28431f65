"""``pyrklog mirror run --offsets keep`` from one pyrklog to another."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, ResourceType

from pyrklog.testing import TestBroker
from tests.support.clients import CODECS, Confluent, Record
from tests.support.compacting import EAGER_BROKER, create_compacted, put, read_all, rounds
from tests.support.compacting import fill as fill_segments
from tests.support.groups import create_topic
from tests.support.mirroring import (
    Pair,
    at_offsets,
    commit,
    copied_more,
    delete_before,
    end_of,
    fill,
    starts_of,
    values,
    wait_for_values,
)
from tests.support.transactions import (
    committed,
    produce_by_turns,
    producer_of,
    wait_until_ended,
)
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.timeout(240)

RECORDS = 100_000
SLOW = ("--rate", "100kB/s", "--commit", "1", "--interval", "0.05")
"""A record has about 16 bytes: all together take 16 s."""


@pytest.fixture
def pair(brokers: tuple[str, str], topic: str) -> Pair:
    return Pair(*brokers, topic)


def once(pair: Pair, *words: str, code: int = 0) -> str:
    return pair.once("--offsets", "keep", *words, code=code)


def check(pair: Pair, topic: str) -> None:
    """The same records at the same offsets, in logs that begin at the same one."""
    assert at_offsets(pair.target, f"east.{topic}") == at_offsets(pair.source, topic)
    assert starts_of(pair.target, f"east.{topic}") == starts_of(pair.source, topic)
    pair.verified()


def test_offsets_are_the_same(pair: Pair, topic: str) -> None:
    create_topic(pair.source, topic, len(CODECS))
    for partition, codec in enumerate(CODECS):
        records = [
            Record(b"k%d" % n, b"v" * (n % 300), (("a", None),) if n % 3 else ())
            for n in range(500 * (1 + partition))
        ]
        Confluent().produce(pair.source, topic, records, codec=codec, partition=partition)
    assert "copied 7500 records" in once(pair, "--topics", topic, "-z", "lz4")
    check(pair, topic)
    assert "copied 0 records" in once(pair, "--topics", topic)
    fill(pair.source, topic, 100)
    admin = AdminClient({"bootstrap.servers": pair.source})
    count = len(CODECS) + 1
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(PATIENCE_S)
    Confluent().produce(pair.source, topic, [Record(None, b"new")], partition=count - 1)
    assert "copied 101 records" in once(pair, "--topics", topic)
    check(pair, topic)
    found = pair.items("status", "--over", "0", "--max-lag", "0")
    assert {(one["offsets"], one["lag"]) for one in found} == {("keep", 0)}


def test_markers_and_aborted_records_are_gaps(pair: Pair, topic: str) -> None:
    create_topic(pair.source, topic, 1)
    produce_by_turns(pair.source, topic, 9)
    once(pair, "--topics", topic)
    check(pair, topic)
    wanted = [0, 4, 6, 10, 12, 16]
    assert sorted(at_offsets(pair.target, f"east.{topic}")[0]) == wanted
    produce_by_turns(pair.source, topic, 5)
    once(pair, "--topics", topic)
    check(pair, topic)
    # A transaction that is open hides what is behind it.
    producer = producer_of(pair.source, f"{topic}-open")
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(PATIENCE_S)
    fill(pair.source, topic, 10, partitions=1)
    once(pair, "--topics", topic)
    check(pair, topic)
    producer.commit_transaction()
    wait_until_ended(pair.source, f"{topic}-open")
    once(pair, "--topics", topic)
    check(pair, topic)
    assert values(pair.target, f"east.{topic}")[b"open"] == 1


def test_what_compaction_took_are_gaps(new_broker: Callable[..., TestBroker], topic: str) -> None:
    sides = [new_broker(options=EAGER_BROKER).start().bootstrap for _ in range(2)]
    pair = Pair(sides[0], sides[1], topic)
    create_compacted(pair.source, topic)
    pairs = rounds(6)
    put(pair.source, topic, pairs)
    fill_segments(pair.source, topic)

    def has_gaps() -> bool:
        return len(read_all(pair.source, topic)) < len(pairs)

    wait_until(has_gaps, "nothing is compacted")
    once(pair, "--topics", topic)
    pair.verified()
    kept = at_offsets(pair.target, f"east.{topic}")[0]
    here = at_offsets(pair.source, topic)[0]
    assert kept.keys() & here.keys()
    assert all(kept[offset] == here[offset] for offset in kept.keys() & here.keys())
    put(pair.source, topic, [(b"k1", None), (b"k2", b"last")])
    once(pair, "--topics", topic)
    pair.verified()
    last = max(at_offsets(pair.target, f"east.{topic}")[0])
    # An end is 0 where a busy broker takes too long to tell it.
    wait_until(lambda: end_of(pair.source, topic) == last + 1, f"the copy ends with {last}")


def test_a_log_that_has_lost_its_beginning_begins_at_the_same_offset(
    pair: Pair, topic: str
) -> None:
    create_topic(pair.source, topic, 3)
    fill(pair.source, topic, 300)
    delete_before(pair.source, topic, {0: 40, 1: 100})
    once(pair, "--topics", topic)
    assert starts_of(pair.target, f"east.{topic}") == [40, 0, 0], "1 has no record yet"
    assert at_offsets(pair.target, f"east.{topic}") == at_offsets(pair.source, topic)
    pair.verified()
    fill(pair.source, topic, 30, first=1000)
    once(pair, "--topics", topic)
    check(pair, topic)
    assert starts_of(pair.target, f"east.{topic}") == [40, 100, 0]


def test_a_copy_may_begin_at_the_end(pair: Pair, topic: str) -> None:
    create_topic(pair.source, topic, 3)
    fill(pair.source, topic, 30)
    once(pair, "--topics", topic, "--start", "end")
    more = fill(pair.source, topic, 30, first=100)
    once(pair, "--topics", topic, "--start", "end")
    assert values(pair.target, f"east.{topic}") == more
    assert starts_of(pair.target, f"east.{topic}") == [10, 10, 10]
    here = at_offsets(pair.source, topic)
    there = at_offsets(pair.target, f"east.{topic}")
    assert there == {
        number: {offset: one for offset, one in some.items() if offset >= 10}
        for number, some in here.items()
    }
    pair.verified()


def read_on(bootstrap: str, topic: str, group: str, count: int) -> list[bytes]:
    """Reads so many records as a member of the group, and commits; fewer at the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    ended = set[int]()
    assigned: list[int] = []

    def take(message: Message) -> None:
        error = message.error()
        if error is None:
            found.append(message.value() or b"")
            return
        assert error.code() == KafkaError._PARTITION_EOF, error
        ended.add(message.partition() or 0)

    def is_done() -> bool:
        message = consumer.poll(0.2)
        if message is not None:
            take(message)
        assigned[:] = [one.partition for one in consumer.assignment()]
        return len(found) == count or (bool(assigned) and ended >= set(assigned))

    wait_until(is_done, lambda: f"{len(found)} records", 2 * PATIENCE_S)
    if found:
        consumer.commit(asynchronous=False)
    consumer.close()
    return found


def test_groups_go_on_without_a_record_lost_or_doubled(pair: Pair, topic: str) -> None:
    create_topic(pair.source, topic, 2)
    fill(pair.source, topic, 50, partitions=2)
    produce_by_turns(pair.source, topic, 12)
    fill(pair.source, topic, 50, first=1000, partitions=2)
    commit(pair.source, topic, topic, {0: 0, 1: 0})
    first = read_on(pair.source, topic, topic, 40)
    at = {number: committed(pair.source, topic, topic, number) for number in range(2)}
    once(pair, "--topics", topic, "--groups", topic)
    target = f"east.{topic}"
    there = {number: committed(pair.target, topic, target, number) for number in range(2)}
    assert there == at, "as they are"
    rest = read_on(pair.target, target, topic, 10_000)
    assert sorted(first + rest) == sorted(values(pair.source, topic).elements())
    # It has read all here: nothing goes back, and what comes goes on.
    more = fill(pair.source, topic, 10, first=2000, partitions=2)
    once(pair, "--topics", topic, "--groups", topic)
    assert sorted(read_on(pair.target, target, topic, 10_000)) == sorted(more.elements())


def test_a_group_at_the_sources_end_begins_at_the_targets(pair: Pair, topic: str) -> None:
    """Which is before the last marker."""
    create_topic(pair.source, topic, 1)
    produce_by_turns(pair.source, topic, 3)
    commit(pair.source, topic, topic, {0: 6})
    once(pair, "--topics", topic, "--groups", topic)
    assert committed(pair.target, topic, f"east.{topic}") == 5
    assert read_on(pair.target, f"east.{topic}", topic, 1) == []


def delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    wait_until(lambda: topic not in admin.list_topics(timeout=PATIENCE_S).topics, "still there")


def test_somebody_else_s_record_stops_the_mirror(pair: Pair, topic: str) -> None:
    create_topic(pair.source, topic, 3)
    fill(pair.source, topic, 30)
    once(pair, "--topics", topic)
    target = f"east.{topic}"
    Confluent().produce(pair.target, target, [Record(None, b"foreign")], partition=1)
    for more in (0, 30, 0):
        fill(pair.source, topic, more, first=100)
        said = once(pair, "--topics", topic, code=1)
        assert f"offset 10 of partition 1 of topic {target} at west is no copy" in said
        assert f"--again {topic}" in said
    assert len(at_offsets(pair.target, target)[1]) == 11, "nothing more was written"
    delete(pair.target, target)
    assert f"--again {topic}" in once(pair, "--topics", topic, code=1)
    once(pair, "--topics", topic, "--again", topic)
    check(pair, topic)


def test_somebody_else_s_record_stops_a_running_mirror(pair: Pair, topic: str) -> None:
    create_topic(pair.source, topic, 1)
    wanted = fill(pair.source, topic, 10, partitions=1)
    words = ("--offsets", "keep", "--topics", topic, "--interval", "0.1", "--commit", "0.1")
    target = f"east.{topic}"
    with pair.start(*words) as running:
        try:
            wait_for_values(pair.target, target, wanted)
            Confluent().produce(pair.target, target, [Record(None, b"foreign")] * 3)
            fill(pair.source, topic, 10, first=100, partitions=1)
            assert running.wait(2 * PATIENCE_S) == 1
            assert running.stderr is not None
            said = running.stderr.read()
            assert f"offset 10 of partition 0 of topic {target} at west is no copy" in said
        finally:
            running.kill()
    wait_until(lambda: end_of(pair.target, target) == 13, "the mirror has written on")


def test_a_source_made_anew_is_told_and_copied_again(pair: Pair, topic: str) -> None:
    """Its log is shorter than what was copied."""
    create_topic(pair.source, topic, 1)
    fill(pair.source, topic, 10, partitions=1)
    once(pair, "--topics", topic)
    delete(pair.source, topic)
    create_topic(pair.source, topic, 1)
    fill(pair.source, topic, 3, first=100, partitions=1)
    target = f"east.{topic}"
    said = once(pair, "--topics", topic, code=1)
    assert f"topic {topic} was deleted and created anew at east" in said
    assert f"delete topic {target} at the target; --again {topic} then copies it" in said
    delete(pair.target, target)
    once(pair, "--topics", topic, "--again", topic)
    check(pair, topic)


def test_topics_with_records_and_other_modes_are_refused(pair: Pair, topic: str) -> None:
    create_topic(pair.source, topic, 1)
    fill(pair.source, topic, 5, partitions=1)
    target = f"east.{topic}"
    create_topic(pair.target, target, 1)
    fill(pair.target, target, 2, partitions=1)
    said = once(pair, "--topics", topic, code=1)
    assert f"partition 0 of topic {target} at west has records already, at offsets 0 to 1" in said
    # It has left nothing behind; beside a topic that is copied it is refused as well.
    pair.run("status", code=4)
    create_topic(pair.source, f"{topic}-other", 1)
    once(pair, "--topics", f"{topic}-other")
    said = once(pair, "--topics", f"{topic}.*", code=1)
    assert f"partition 0 of topic {target} at west has records already, at offsets 0 to 1" in said
    assert [one["topic"] for one in pair.verified()] == [f"{topic}-other"]
    said = pair.once("--topics", topic, code=1)
    assert "the mirror was begun with --offsets keep, not translate" in said
    said = pair.once("--offsets", "x", "--topics", topic, code=2)
    assert "--offsets takes translate or keep, not 'x'" in said
    assert len(at_offsets(pair.target, target)[0]) == 2


def test_two_mirrors_at_once_double_nothing(pair: Pair, topic: str) -> None:
    create_topic(pair.source, topic, 3)
    wanted = fill(pair.source, topic, RECORDS)
    words = ("--offsets", "keep", "--topics", topic, *SLOW)
    with ExitStack() as stack:
        running: list[subprocess.Popen[str]] = []
        there = 0
        try:
            for _ in range(3):
                running.append(stack.enter_context(pair.start(*words)))
                there = copied_more(pair, topic, there)
            for one in running[:-1]:
                assert one.wait(2 * PATIENCE_S) == 1
                assert one.stderr is not None
                assert f"another process that mirrors as {topic} has begun" in one.stderr.read()
            assert running[-1].poll() is None
        finally:
            for one in running:
                one.kill()
    once(pair, "--topics", topic)
    assert values(pair.target, f"east.{topic}") == wanted
    check(pair, topic)


def test_a_killed_mirror_and_a_killed_target(
    new_broker: Callable[..., TestBroker], topic: str
) -> None:
    """Each record is there once, at its offset."""
    east, west = new_broker().start(), new_broker().start()
    pair = Pair(east.bootstrap, west.bootstrap, topic)
    create_topic(pair.source, topic, 3)
    wanted = fill(pair.source, topic, RECORDS)
    chance = random.Random(topic)
    words = ("--offsets", "keep", "--topics", topic, *SLOW)
    there = 0
    for number in range(4):
        with pair.start(*words) as running:
            try:
                there = copied_more(pair, topic, there)
                if number % 2:
                    west.kill()
                    west.start()
                    there = copied_more(pair, topic, there)
                with pytest.raises(subprocess.TimeoutExpired):
                    running.wait(chance.uniform(0, 0.5))
            finally:
                running.kill()
    assert values(pair.target, f"east.{topic}").total() < RECORDS, "killed too late"
    once(pair, "--topics", topic)
    assert values(pair.target, f"east.{topic}") == wanted
    check(pair, topic)


def test_options_of_the_topic_are_the_source_s(pair: Pair, topic: str) -> None:
    create_topic(pair.source, topic, 2)
    once(pair, "--topics", topic)
    assert starts_of(pair.target, f"east.{topic}") == [0, 0]
    resource = ConfigResource(ResourceType.TOPIC, f"east.{topic}")
    admin = AdminClient({"bootstrap.servers": pair.target})
    found = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    assert found["cleanup.policy"].value == "delete"
    assert pair.items("verify") == [
        {
            "topic": topic,
            "partition": number,
            "target": f"east.{topic}",
            "records": 0,
            "result": "same",
            "keys": None,
            "difference": None,
        }
        for number in range(2)
    ]
