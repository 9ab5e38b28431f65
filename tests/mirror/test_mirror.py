"""``pyrklog mirror`` from one pyrklog to another."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from pyrklog.mirror.checkpoints import Checkpoint
from pyrklog.protocol.offsets import OFFSET_FETCH, OffsetFetchRequest, OffsetFetchRequestTopic
from pyrklog.testing import TestBroker
from tests.support.clients import Confluent, Record
from tests.support.groups import create_topic
from tests.support.mirroring import (
    Pair,
    commit,
    copied_more,
    fill,
    rows,
    set_option,
    values,
    wait_for_values,
)
from tests.support.raw_client import RawClient
from tests.support.transactions import produce_by_turns, producer_of, wait_until_ended
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.timeout(240)


def make(bootstrap: str, topic: str, partitions: int = 1, **options: str) -> None:
    config = {name.replace("_", "."): value for name, value in options.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, partitions, 1, config=config)
    admin.create_topics([new])[topic].result(PATIENCE_S)


def option(bootstrap: str, topic: str, name: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found: str = admin.describe_configs([resource])[resource].result(PATIENCE_S)[name].value
    return found


def test_records_are_the_same(pair: Pair, topic: str) -> None:
    make(pair.source, topic, 2, cleanup_policy="compact", retention_ms="987654321")
    now_ms = time.time_ns() // 1_000_000
    records = [
        Record(
            b"k%d" % n, b"v" * (n % 300), (("a", b"1"), ("a", None)) if n % 3 else (), now_ms + n
        )
        for n in range(5000)
    ]
    records += [Record(b"k7", None, (), now_ms), Record(b"k8", None, (("h", b""),), now_ms)]
    for partition in range(2):
        Confluent().produce(pair.source, topic, records, codec="zstd", partition=partition)
    said = pair.once("--topics", topic, "-z", "lz4")
    assert "copied 10004 records" in said
    assert rows(pair.target, f"east.{topic}") == rows(pair.source, topic)
    assert option(pair.target, f"east.{topic}", "cleanup.policy") == "compact"
    assert option(pair.target, f"east.{topic}", "retention.ms") == "987654321"
    assert [one["keys"] for one in pair.verified()] == [5000, 5000]
    assert "copied 0 records" in pair.once("--topics", topic)
    found = pair.items("status", "--over", "0", "--max-lag", "0")
    assert [(one["records"], one["lag"]) for one in found] == [(5002, 0), (5002, 0)]


def test_aborted_records_are_not_there(pair: Pair, topic: str) -> None:
    make(pair.source, topic)
    produce_by_turns(pair.source, topic, 9)
    pair.once("--topics", topic)
    assert values(pair.target, f"east.{topic}") == Counter([b"0", b"2", b"3", b"5", b"6", b"8"])
    (one,) = pair.items("status", "--over", "0")
    assert (one["lag"], one["records"]) == (0, 6)
    pair.verified()


def test_new_topics_partitions_and_records_come_by_themselves(pair: Pair, topic: str) -> None:
    """A restart looks at topics as a minute does."""
    make(pair.source, topic, 1)
    wanted = fill(pair.source, topic, 10, partitions=1)
    pair.once("--topics", f"{topic}.*")
    admin = AdminClient({"bootstrap.servers": pair.source})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(PATIENCE_S)
    make(pair.source, f"{topic}-b", 2)
    wanted += fill(pair.source, topic, 30, first=100)
    others = fill(pair.source, f"{topic}-b", 20, partitions=2)
    pair.once("--topics", f"{topic}.*")
    assert values(pair.target, f"east.{topic}") == wanted
    assert values(pair.target, f"east.{topic}-b") == others


def test_a_running_mirror_copies_what_comes_and_ends_when_asked(pair: Pair, topic: str) -> None:
    create_topic(pair.source, topic, 3)
    words = ("--topics", topic, "--interval", "0.1", "--commit", "0.1")
    with pair.start(*words) as running:
        try:
            wanted = fill(pair.source, topic, 300)
            wait_for_values(pair.target, f"east.{topic}", wanted)
            wanted += fill(pair.source, topic, 300, first=1000)
            wait_for_values(pair.target, f"east.{topic}", wanted)
            running.send_signal(signal.SIGINT)
            assert running.wait(PATIENCE_S) == 130
            assert running.stderr is not None
            assert "copied 600 records" in running.stderr.read()
        finally:
            running.kill()


def test_a_mirror_that_is_stopped_within_a_round_tells_what_it_copied(
    pair: Pair, topic: str
) -> None:
    create_topic(pair.source, topic, 1)
    fill(pair.source, topic, 20_000, partitions=1)
    # Twenty seconds of work.
    words = ("--topics", topic, "--rate", "40kB/s", "--commit", "0.2")
    with pair.start(*words) as running:
        try:
            copied_more(pair, topic, 0)
            running.send_signal(signal.SIGINT)
            assert running.wait(PATIENCE_S) == 130
            assert running.stderr is not None
            said = running.stderr.read()
        finally:
            running.kill()
    (one,) = pair.items("status", "--over", "0")
    assert 0 < one["position"] < 20_000
    assert f"copied {one['records']:,} records".replace(",", "") in said.replace(",", "")


def test_a_second_mirror_of_the_name_ends_the_first(pair: Pair, topic: str) -> None:
    create_topic(pair.source, topic, 3)
    wanted = fill(pair.source, topic, 30)
    with pair.start("--topics", topic, "--interval", "0.1") as first:
        try:
            wait_for_values(pair.target, f"east.{topic}", wanted)
            pair.once("--topics", topic)
            more = fill(pair.source, topic, 30, first=100)
            assert first.wait(PATIENCE_S) == 1
            assert first.stderr is not None
            said = first.stderr.read()
            assert f"another process that mirrors as {topic} has begun" in said
            assert f"transactional id, pyrklog-mirror/{topic}, so west fenced this one" in said
        finally:
            first.kill()
    assert values(pair.target, f"east.{topic}") == wanted
    wanted += more
    pair.once("--topics", topic)
    assert values(pair.target, f"east.{topic}") == wanted


def fill_values(first: int, count: int) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(first, first + count))


def committed(bootstrap: str, group: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    found = future.result(PATIENCE_S).topic_partitions
    return {one.partition: one.offset for one in found if one.offset >= 0}


def test_a_group_goes_on_at_the_target(pair: Pair, topic: str) -> None:
    """Where it was, though offsets differ: there are gaps at the source, and markers here."""
    make(pair.source, topic, 2)
    producer = producer_of(pair.source, topic)
    at: dict[int, list[int]] = {0: [], 1: []}

    def delivered(_: Any, message: Any) -> None:
        at[message.partition()].append(message.offset())

    for number in range(20):
        producer.begin_transaction()
        for partition in range(2):
            value = b"%d" % number
            producer.produce(topic, value, partition=partition, on_delivery=delivered)
        producer.commit_transaction()
        if number % 7 == 0:
            pair.once("--topics", topic)
    wait_until_ended(pair.source, topic)
    commit(pair.source, topic, topic, {0: at[0][12], 1: at[1][-1] + 2})
    pair.once("--topics", topic, "--groups", topic)
    target = f"east.{topic}"
    there = committed(pair.target, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": pair.target,
            "group.id": f"{topic}-r",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(target, 0, there[0])])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.value() == b"12"
    _, end = consumer.get_watermark_offsets(TopicPartition(target, 1))
    consumer.close()
    assert there[1] == end
    one = Checkpoint(topic, target, 0, at[0][12], there[0])
    found = rows(pair.target, "east.checkpoints.internal", ["key", "value"])
    assert {"key": one.key(), "value": one.value()} in found[0]


@pytest.mark.parametrize("metadata", ["batch 7", "", None])
def test_the_note_of_a_commit_goes_with_it(pair: Pair, topic: str, metadata: str | None) -> None:
    """librdkafka's binding adds a zero byte to what is given, and takes it away again."""
    make(pair.source, topic)
    fill(pair.source, topic, 10, partitions=1)
    commit(pair.source, topic, topic, {0: 5}, metadata)
    pair.once("--topics", topic, "--groups", topic)
    for version in (1, 5):
        asked = OffsetFetchRequest(topic, [OffsetFetchRequestTopic(f"east.{topic}", [0])])
        with RawClient(pair.target) as raw:
            (found,) = raw.ask(OFFSET_FETCH, version, asked).topics
        (one,) = found.partitions
        assert (one.committed_offset, one.metadata) == (5, f"{metadata}\0" if metadata else "")
    one = Checkpoint(topic, f"east.{topic}", 0, 5, 5, metadata or "")
    found = rows(pair.target, "east.checkpoints.internal", ["key", "value"])
    assert {"key": one.key(), "value": one.value()} in found[0]


def test_a_group_is_left_alone_while_it_is_in_use(pair: Pair, topic: str) -> None:
    make(pair.source, topic)
    fill(pair.source, topic, 10, partitions=1)
    commit(pair.source, topic, topic, {0: 5})
    pair.once("--topics", topic)
    settings = {
        "bootstrap.servers": pair.target,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe([f"east.{topic}"])
    wait_until(lambda: consumer.poll(0.1), "no record")
    pair.once("--topics", topic, "--groups", topic)
    assert committed(pair.target, topic) == {}
    consumer.close()
    pair.once("--topics", topic, "--groups", topic)
    assert committed(pair.target, topic) == {0: 5}


def test_two_directions_make_no_loop(brokers: tuple[str, str], pair: Pair, topic: str) -> None:
    back = Pair(brokers[1], brokers[0], topic)
    back.between = ("--from", f"west={brokers[1]}", "--to", f"east={brokers[0]}", "--name", topic)
    for bootstrap in brokers:
        make(bootstrap, topic)
        fill(bootstrap, topic, 10, partitions=1)
    for _ in range(2):
        for one in (pair, back):
            one.once("--topics", f".*{topic}")
    for bootstrap in brokers:
        names = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=PATIENCE_S).topics
        other = "west" if bootstrap == brokers[0] else "east"
        found = {name for name in names if name.endswith(topic)}
        assert found == {topic, f"{other}.{topic}"}


def test_identity_keeps_names_and_refuses_the_way_back(
    brokers: tuple[str, str], pair: Pair, topic: str
) -> None:
    make(pair.source, topic)
    wanted = fill(pair.source, topic, 10, partitions=1)
    pair.once("--topics", topic, "--policy", "identity")
    assert values(pair.target, topic) == wanted
    pair.verified()
    back = Pair(brokers[1], brokers[0], f"{topic}-back")
    said = back.once("--topics", topic, "--policy", "identity", code=1)
    assert f"topic {topic} would go in a circle" in said
    assert values(pair.source, topic) == wanted
    said = pair.once("--topics", topic, "--policy", "prefix", code=1)
    assert "the mirror was begun with --policy identity, not prefix" in said


def test_a_record_that_is_too_large_stops_the_mirror(pair: Pair, topic: str) -> None:
    """The source's limit was lowered after it was written, and the target's follows."""
    make(pair.source, topic)
    records = [Record(None, b"a"), Record(None, b"b" * 9000), Record(None, b"c")]
    Confluent().produce(pair.source, topic, records)
    set_option(pair.source, topic, "max.message.bytes", "1000")
    said = pair.once("--topics", topic, code=1)
    assert f"offset 1 of partition 0 of topic {topic} at east is not copied" in said
    assert f"topic east.{topic} at west takes at most 1000 (max.message.bytes)" in said
    assert f"fix: raise max.message.bytes of topic {topic} at east, which is copied, to 9" in said
    assert values(pair.target, f"east.{topic}").total() == 0
    set_option(pair.source, topic, "max.message.bytes", "200000")
    pair.once("--topics", topic)
    assert values(pair.target, f"east.{topic}") == values(pair.source, topic)


def test_a_record_of_tens_of_megabytes_is_copied(pair: Pair, topic: str) -> None:
    make(pair.source, topic, max_message_bytes=str(50 << 20))
    limit = {"message.max.bytes": 50 << 20}
    producer = Producer({"bootstrap.servers": pair.source, **limit})
    sizes = [10, 40 << 20, 0, 20 << 20, 1 << 20]
    for number, size in enumerate(sizes):
        # Each differs, and does not compress.
        producer.produce(topic, random.Random(number).randbytes(size), partition=0)
        assert producer.flush(PATIENCE_S) == 0
    pair.once("--topics", topic)
    found = rows(pair.target, f"east.{topic}", ["value"])[0]
    assert [len(row["value"]) for row in found] == sizes
    pair.verified()


def test_a_topic_whose_name_would_be_too_long_is_left_out(pair: Pair, topic: str) -> None:
    long = topic + "x" * (245 - len(topic))
    for name in (topic, long):
        make(pair.source, name)
    wanted = fill(pair.source, topic, 10, partitions=1)
    said = pair.once("--topics", f"{topic}.*", code=9)
    assert said.count(f"topic {long} is not copied: ") == 1
    assert values(pair.target, f"east.{topic}") == wanted
    pair.verified()


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    place = TopicPartition(topic, 0, offset)
    admin.delete_records([place])[place].result(PATIENCE_S)


def test_records_that_are_gone_stop_the_mirror_or_are_skipped(pair: Pair, topic: str) -> None:
    make(pair.source, topic)
    fill(pair.source, topic, 10, partitions=1)
    pair.once("--topics", topic)
    fill(pair.source, topic, 10, first=10, partitions=1)
    delete_before(pair.source, topic, 15)
    said = pair.once("--topics", topic, code=1)
    assert "--missing skip" in said
    pair.once("--topics", topic, "--missing", "skip")
    wanted = fill_values(0, 10) + fill_values(15, 5)
    assert values(pair.target, f"east.{topic}") == wanted
    (one,) = pair.items("status", "--over", "0")
    assert (one["skipped"], one["records"], one["lag"]) == (5, 15, 0)
    pair.verified()


def test_a_topic_made_anew_is_copied_again_when_asked(pair: Pair, topic: str) -> None:
    make(pair.source, topic)
    first = fill(pair.source, topic, 10, partitions=1)
    pair.once("--topics", topic)
    admin = AdminClient({"bootstrap.servers": pair.source})
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    wait_until(lambda: topic not in admin.list_topics(timeout=PATIENCE_S).topics, "still there")
    make(pair.source, topic)
    second = fill(pair.source, topic, 20, first=100, partitions=1)
    said = pair.once("--topics", topic, code=1)
    assert f"topic {topic} was deleted and created anew at east" in said
    pair.once("--topics", topic, "--again", topic)
    assert values(pair.target, f"east.{topic}") == first + second
    pair.once("--topics", topic)
    assert values(pair.target, f"east.{topic}") == first + second
    pair.verified()


def test_verify_finds_what_differs(pair: Pair, topic: str) -> None:
    make(pair.source, topic, 2)
    fill(pair.source, topic, 50, partitions=2)
    pair.once("--topics", topic)
    target = f"east.{topic}"
    Confluent().produce(pair.target, target, [Record(None, b"foreign")], partition=1)
    fill(pair.source, topic, 50, first=50, partitions=2)
    pair.once("--topics", topic)
    found = pair.items("verify", code=8)
    assert [one["result"] for one in found] == ["same", "differs"]
    assert "records at source offsets 0 to 49, target 0 to" in found[1]["difference"]


def test_verify_of_a_compacted_topic_finds_what_differs(pair: Pair, topic: str) -> None:
    make(pair.source, topic, cleanup_policy="compact")
    fill(pair.source, topic, 50, partitions=1)
    pair.once("--topics", topic)
    Confluent().produce(pair.target, f"east.{topic}", [Record(b"k7", b"other"), Record(b"x", None)])
    fill(pair.source, topic, 5, first=50, partitions=1)
    pair.once("--topics", topic)
    (one,) = pair.items("verify", code=8)
    assert one["difference"] == "1 key has another last record"


def test_verify_knows_what_retention_took_at_either_side(pair: Pair, topic: str) -> None:
    make(pair.source, topic)
    fill(pair.source, topic, 30, partitions=1)
    pair.once("--topics", topic)
    delete_before(pair.source, topic, 10)
    (one,) = pair.verified()
    assert one["records"] == 20
    delete_before(pair.target, f"east.{topic}", 17)
    (one,) = pair.verified()
    assert one["records"] == 13


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("run", "--topics", "("), 2, "--topics '(' is no regular expression"),
        (("run", "--topics", "x", "--policy", "other"), 2, "--policy takes prefix or identity"),
        (("run", "--topics", "x", "--rate", "fast"), 2, "'fast' is no rate"),
        (("run", "--topics", "x,y"), 2, "--topics 'x,y' has a comma"),
        (("run", "--topics", "x", "--groups", "g,h"), 2, "--groups 'g,h' has a comma"),
        (("run", "--topics", "x", "--again", "x,y"), 2, "--again takes the name of one topic"),
        (("verify", "--topics", "x,y"), 2, "--topics 'x,y' has a comma"),
        (("status",), 4, "knows no mirror"),
        (("verify",), 4, "knows no mirror"),
    ],
)
def test_one_sentence(pair: Pair, words: tuple[str, ...], code: int, said: str) -> None:
    done = pair.run(*words, code=code)
    assert said in done.stderr
    assert done.stderr.startswith("error[PK")
    assert done.stderr.count("\n") == 1 + done.stderr.count("\n  fix: ")


def test_a_cluster_that_is_away_is_an_error_at_the_start(
    brokers: tuple[str, str], topic: str, new_broker: Callable[..., TestBroker]
) -> None:
    away = Pair(brokers[0], new_broker().bootstrap, topic)
    done = away.run("run", "--topics", topic, code=3)
    assert "no broker reached" in done.stderr
