"""``pyrklog mirror`` from Apache Kafka to pyrklog, and back."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.testing import TestBroker
from tests.support.clients import CODECS, Confluent, Record
from tests.support.groups import create_topic
from tests.support.kafka_broker import KafkaBroker
from tests.support.mirroring import (
    Pair,
    at_offsets,
    commit,
    copied_more,
    delete_before,
    fill,
    rows,
    starts_of,
    values,
    wait_for_values,
)
from tests.support.transactions import committed, produce_by_turns
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, KafkaBroker | TestBroker]]:
    folder = tmp_path_factory.mktemp("clusters")
    with KafkaBroker(folder / "kafka") as kafka, TestBroker(folder / "data") as ours:
        yield {"kafka": kafka, "pyrklog": ours}


@pytest.fixture(params=["from kafka", "to kafka"])
def pair(
    request: pytest.FixtureRequest, brokers: dict[str, KafkaBroker | TestBroker], topic: str
) -> Pair:
    names = ["kafka", "pyrklog"]
    source, target = names if request.param == "from kafka" else reversed(names)
    return Pair(brokers[source].bootstrap, brokers[target].bootstrap, topic)


def test_records_of_every_codec(pair: Pair, topic: str) -> None:
    create_topic(pair.source, topic, len(CODECS))
    now_ms = time.time_ns() // 1_000_000
    records = [Record(b"k%d" % n, b"v" * n, (("h", None),), now_ms + n) for n in range(500)]
    records.append(Record(b"k1", None, (), now_ms))
    for partition, codec in enumerate(CODECS):
        Confluent().produce(pair.source, topic, records, codec=codec, partition=partition)
    pair.once("--topics", topic)
    assert rows(pair.target, f"east.{topic}") == rows(pair.source, topic)
    pair.verified()


def test_transactions_and_groups(pair: Pair, topic: str) -> None:
    create_topic(pair.source, topic, 1)
    produce_by_turns(pair.source, topic, 30)
    # Two offsets a transaction, its record and its marker.
    commit(pair.source, topic, topic, {0: 2 * 15}, "batch 7")
    pair.once("--topics", topic, "--groups", topic)
    found = [row["value"] for row in rows(pair.target, f"east.{topic}", ["value"])[0]]
    assert found == [b"%d" % number for number in range(30) if number % 3 != 1]
    admin = AdminClient({"bootstrap.servers": pair.target})
    future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(topic)])[topic]
    (one,) = future.result(PATIENCE_S).topic_partitions
    assert (one.topic, found[one.offset]) == (f"east.{topic}", b"15")
    assert one.metadata == "batch 7"


def test_a_record_of_tens_of_megabytes(pair: Pair, topic: str) -> None:
    new = NewTopic(topic, 1, config={"max.message.bytes": str(40 << 20)})
    admin = AdminClient({"bootstrap.servers": pair.source})
    admin.create_topics([new])[topic].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": pair.source, "message.max.bytes": 40 << 20})
    for size in (1, 30 << 20, 2):
        producer.produce(topic, bytes(size), partition=0)
        assert producer.flush(PATIENCE_S) == 0
    pair.once("--topics", topic)
    found = rows(pair.target, f"east.{topic}", ["value"])[0]
    assert [len(row["value"]) for row in found] == [1, 30 << 20, 2]
    pair.verified()


def test_a_killed_mirror_neither_loses_nor_doubles(pair: Pair, topic: str) -> None:
    create_topic(pair.source, topic, 3)
    wanted = fill(pair.source, topic, 100_000)
    there = 0
    for _ in range(3):
        with pair.start("--topics", topic, "--rate", "100kB/s") as running:
            try:
                there = copied_more(pair, topic, there)
            finally:
                running.kill()
    assert values(pair.target, f"east.{topic}").total() < wanted.total(), "killed too late"
    pair.once("--topics", topic)
    assert values(pair.target, f"east.{topic}") == wanted
    pair.verified()


@pytest.mark.parametrize("victim", ["kafka", "pyrklog"])
def test_a_broker_that_is_killed_stops_nothing(
    brokers: dict[str, KafkaBroker | TestBroker], pair: Pair, topic: str, victim: str
) -> None:
    create_topic(pair.source, topic, 3)
    wanted = fill(pair.source, topic, 150_000)
    words = ("--rate", "100kB/s", "--commit", "1", "--interval", "0.05")
    with pair.start("--topics", topic, *words) as running:
        try:
            copied_more(pair, topic, 0)
            brokers[victim].kill()
            brokers[victim].__enter__()
            assert values(pair.target, f"east.{topic}").total() < 150_000, "killed too late"
            wanted += fill(pair.source, topic, 300, first=150_000)
            wait_for_values(pair.target, f"east.{topic}", wanted)
            assert running.poll() is None
        finally:
            running.kill()
    assert rows(pair.target, f"east.{topic}") == rows(pair.source, topic)
    pair.verified()


def test_offsets_are_kept_at_pyrklog_and_nowhere_else(
    brokers: dict[str, KafkaBroker | TestBroker], topic: str
) -> None:
    there = Pair(brokers["kafka"].bootstrap, brokers["pyrklog"].bootstrap, topic)
    words = ("--offsets", "keep", "--topics", topic)
    create_topic(there.source, topic, 2)
    fill(there.source, topic, 200, partitions=2)
    produce_by_turns(there.source, topic, 9)
    delete_before(there.source, topic, {0: 30})
    commit(there.source, topic, topic, {0: 50, 1: 20})
    there.once(*words, "--groups", topic)
    fill(there.source, topic, 20, partitions=2)
    there.once(*words, "--groups", topic)
    target = f"east.{topic}"
    assert at_offsets(there.target, target) == at_offsets(there.source, topic)
    assert starts_of(there.target, target) == starts_of(there.source, topic) == [30, 0]
    assert [committed(there.target, topic, target, number) for number in range(2)] == [50, 20]
    there.verified()
    back = Pair(there.target, there.source, f"{topic}-back")
    said = back.once("--offsets", "keep", "--topics", target, code=1)
    assert "west cannot keep offsets: broker" in said
    assert "does not take records at offsets of their own" in said
    admin = AdminClient({"bootstrap.servers": back.target})
    assert f"pyrklog-mirror.{topic}-back" not in str(admin.list_topics(timeout=PATIENCE_S).topics)
