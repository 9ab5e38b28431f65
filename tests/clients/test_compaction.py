"""Compacted topics, as stock clients and Apache Kafka's own tools see them."""

import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from pyrklog.testing import TestBroker
from tests.clients.test_kafka_round_trip import export
from tests.support import jvm
from tests.support.clients import CLIENTS, CODECS, TIMEOUT_S
from tests.support.compacting import (
    EAGER_BROKER,
    FILLER,
    KEYS,
    Found,
    Pairs,
    create_compacted,
    fill,
    last_values,
    model,
    put,
    read_all,
    record_count,
    rounds,
)
from tests.support.kafka_broker import KafkaBroker
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.timeout(300)

KILLS = int(os.environ.get("COMPACTION_KILLS", "5"))
SEED = int(os.environ.get("COMPACTION_SEED", "0")) or random.randrange(2**32)


@pytest.fixture
def broker(new_broker: Callable[..., TestBroker]) -> TestBroker:
    return new_broker(options=EAGER_BROKER).start()


def wait_until_compacted(bootstrap: str, topic: str) -> list[Found]:
    """Returns what is left when each key but the filler is there once."""
    found: list[Found] = []

    def is_compacted() -> bool:
        found[:] = read_all(bootstrap, topic)
        counts = Counter(one.key for one in found)
        return all(count == 1 for key, count in counts.items() if key != FILLER)

    wait_until(is_compacted, lambda: f"{len(found)} records are left: {found[:5]}")
    return found


def test_readers_find_the_last_value_of_each_key_at_its_offset(
    broker: TestBroker, topic: str
) -> None:
    create_compacted(broker.bootstrap, topic)
    pairs: Pairs = []
    for codec in CODECS:
        some = rounds(6, codec)
        put(broker.bootstrap, topic, some, codec)
        pairs += some
    fill(broker.bootstrap, topic)
    found = wait_until_compacted(broker.bootstrap, topic)
    assert last_values(found) == model(pairs)
    offsets = {one.key: one.offset for one in found if one.key != FILLER}
    assert offsets == {key: offset for offset, (key, _) in enumerate(pairs)}
    for client in CLIENTS:
        read = client.consume(broker.bootstrap, topic, KEYS)
        assert [one.key for one in read] == [one.key for one in found[:KEYS]], client.name
    # A reader that was in the middle of what is gone goes on behind it.
    assert read_all(broker.bootstrap, topic, start=17)[:KEYS] == found[:KEYS]
    broker.restart()
    assert last_values(read_all(broker.bootstrap, topic)) == model(pairs)


def test_tombstones_go_when_their_time_is_over(broker: TestBroker, topic: str) -> None:
    create_compacted(broker.bootstrap, topic, delete_retention_ms="1500")
    put(broker.bootstrap, topic, rounds(3))
    put(broker.bootstrap, topic, [(b"k%d" % key, None) for key in range(KEYS // 2)])
    fill(broker.bootstrap, topic)

    def tombstones() -> list[bytes]:
        return [one.key for one in read_all(broker.bootstrap, topic) if one.value is None]

    wait_until_compacted(broker.bootstrap, topic)
    assert last_values(read_all(broker.bootstrap, topic)) == model(rounds(3)[KEYS // 2 - KEYS :])

    def are_gone() -> bool:
        fill(broker.bootstrap, topic)
        return not tombstones()

    wait_until(are_gone, lambda: f"{tombstones()} stay")
    left = last_values(read_all(broker.bootstrap, topic))
    assert set(left) == {b"k%d" % key for key in range(KEYS // 2, KEYS)}


def test_tombstones_stay_for_their_time(broker: TestBroker, topic: str) -> None:
    create_compacted(broker.bootstrap, topic)  # delete.retention.ms is a day
    put(broker.bootstrap, topic, [*rounds(3), (b"k0", None)])
    fill(broker.bootstrap, topic)
    wait_until_compacted(broker.bootstrap, topic)
    fill(broker.bootstrap, topic)
    put(broker.bootstrap, topic, rounds(2)[1:KEYS])
    fill(broker.bootstrap, topic)
    found = wait_until_compacted(broker.bootstrap, topic)
    assert [one for one in found if one.value is None] == [Found(3 * KEYS, b"k0", None)]


def test_a_record_without_a_key_is_refused(broker: TestBroker, topic: str) -> None:
    create_compacted(broker.bootstrap, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    errors: list[Any] = []
    producer.produce(topic, b"no key", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert [error.code() for error in errors] == [KafkaError.INVALID_RECORD]
    put(broker.bootstrap, topic, [(b"", b"an empty key is one")])
    assert read_all(broker.bootstrap, topic) == [Found(0, b"", b"an empty key is one")]


def test_old_segments_expire_if_the_policy_says_both(broker: TestBroker, topic: str) -> None:
    create_compacted(broker.bootstrap, topic, cleanup_policy="compact,delete", retention_ms="1")
    put(broker.bootstrap, topic, rounds(6))
    fill(broker.bootstrap, topic)

    wait_until(lambda: not last_values(read_all(broker.bootstrap, topic)), "old values stay")


class Writer:
    """Overwrites and deletes keys without end; an idempotent producer outlives the broker."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self.written: Pairs = []
        self._topic = topic
        self._random = random.Random(seed)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": 10,
                "linger.ms": 1,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._ends = threading.Event()
        self._failed: list[Any] = []
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._ends.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Everything written is acknowledged then."""
        assert self._thread is not None
        self._ends.set()
        self._thread.join(PATIENCE_S)
        assert self._producer.flush(PATIENCE_S) == 0
        assert self._failed == []

    def _run(self) -> None:
        while not self._ends.wait(0.005):
            for _ in range(20):
                key = b"k%d" % self._random.randrange(KEYS)
                value = None if self._random.random() < 0.1 else b"%d " % len(self.written) * 9
                self._producer.produce(
                    self._topic, key=key, value=value, partition=0, on_delivery=self._delivered
                )
                self.written.append((key, value))
            self._producer.poll(0)

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(error)


@pytest.mark.timeout(60 + 20 * KILLS)
def test_kills_of_a_broker_that_compacts_lose_nothing(
    new_broker: Callable[..., TestBroker], topic: str
) -> None:
    """After each of ``COMPACTION_KILLS``. rust/log/tests/compaction.rs has a crash at every step of
    a compaction."""
    print(f"COMPACTION_SEED={SEED}")
    options = {**EAGER_BROKER, "log.cleaner.backoff.ms": 1}
    broker = new_broker(options=options).start()
    create_compacted(broker.bootstrap, topic, delete_retention_ms="100")
    chance = random.Random(SEED)
    writer = Writer(broker.bootstrap, topic, SEED)
    folder = broker.data / "logs" / f"{topic}-0"
    for _ in range(KILLS):
        with writer:
            await_compactions(broker, chance.randrange(2, 6))
            # Wherever it is by then.
            time.sleep(chance.random() * 0.03)
            broker.kill()
            broker.start()
        assert last_values(read_all(broker.bootstrap, topic)) == model(writer.written)
    wait_until(lambda: record_count(folder) < len(writer.written) / 4, "it is hardly compacted")


def await_compactions(broker: TestBroker, count: int) -> None:
    """Of those that this call sees."""

    def done() -> int:
        return sum('"log_cleaned"' in line for line in list(broker.log))

    wanted = done() + count
    wait_until(lambda: done() >= wanted, f"no {count} compactions")


def test_the_offsets_topic_is_compacted(new_broker: Callable[..., TestBroker], topic: str) -> None:
    options = {
        **EAGER_BROKER,
        "offsets.topic.segment.bytes": 20_000,
        "offsets.topic.num.partitions": 1,
        "log.cleaner.min.cleanable.ratio": 0.01,
    }
    broker = new_broker(options=options).start()
    create_compacted(broker.bootstrap, topic)
    folder = broker.data / "logs" / "__consumer_offsets-0"
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    for offset in range(2_000):
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    # The files follow the acknowledgements.
    wait_until(
        lambda: int(max(folder.glob("*.log")).stem) > 1_000, "all commits are in one segment"
    )
    wait_until(lambda: record_count(folder) < 500, lambda: f"{record_count(folder)} stay")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    resource = ConfigResource("topic", "__consumer_offsets")
    described = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    assert described["cleanup.policy"].value == "compact"
    broker.kill()
    broker.start()

    def committed() -> int:
        try:
            [place] = consumer.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
        except KafkaException:  # the coordinator is loading
            return -1
        return int(place.offset)

    wait_until(lambda: committed() >= 0, "no coordinator")
    assert committed() == 1_999
    consumer.close()


# --- Apache Kafka beside it -----------------------------------------------------------------


def dump(folder: Path, suffix: str, *options: str) -> str:
    files = ",".join(str(path) for path in sorted(folder.glob(f"*.{suffix}")))
    output = jvm.run("kafka.tools.DumpLogSegments", "--files", files, *options)
    complaints = ("Mismatches in", "Found timestamp mismatch", "ERROR")
    assert not [line for line in output.splitlines() if line.startswith(complaints)], output
    return output


@pytest.mark.jvm
def test_kafkas_dump_reads_a_compacted_directory(broker: TestBroker, topic: str) -> None:
    create_compacted(broker.bootstrap, topic)
    for codec in CODECS:
        put(broker.bootstrap, topic, [*rounds(4, codec), (b"k0", None)], codec)
    fill(broker.bootstrap, topic)
    found = wait_until_compacted(broker.bootstrap, topic)
    assert broker.stop() == 0
    folder = broker.data / "logs" / f"{topic}-0"
    output = dump(folder, "log", "--deep-iteration", "--print-data-log")
    batches = [line for line in output.splitlines() if line.startswith("baseOffset:")]
    assert batches
    assert all("isvalid: true" in line for line in batches)
    assert any("deleteHorizonMs: OptionalLong[" in line for line in batches)
    records = re.findall(r"^\| offset: (\d+) .* key: (\S+)", output, re.MULTILINE)
    # Of the filler less may be left than when it was read.
    offsets = [int(offset) for offset, key in records if key.encode() != FILLER]
    assert offsets == [one.offset for one in found if one.key != FILLER]
    for suffix in ("index", "timeindex"):
        dump(folder, suffix, "--deep-iteration", "--verify-index-only")
        dump(folder, suffix, "--index-sanity-check")


@pytest.mark.jvm
def test_kafka_and_pyrklog_compact_one_directory_in_turns(
    new_broker: Callable[..., TestBroker], topic: str, tmp_path: Path
) -> None:
    eager = {
        "log.cleaner.backoff.ms": "100",
        "log.segment.delete.delay.ms": "0",
        "log.initial.task.delay.ms": "100",
    }
    pairs: Pairs = []

    def stage(bootstrap: str, name: str) -> None:
        some: Pairs = [*rounds(4, name), (b"only %s" % name.encode(), b"1"), (b"k1", None)]
        put(bootstrap, topic, some)
        pairs.extend(some)
        fill(bootstrap, topic)
        assert last_values(wait_until_compacted(bootstrap, topic)) == model(pairs)

    with KafkaBroker(tmp_path / "kafka", options=eager) as kafka:
        create_compacted(kafka.bootstrap, topic)
        stage(kafka.bootstrap, "kafka")
    # Kafka's defaults, which only its file would tell.
    known = {"log.cleaner.min.compaction.lag.ms": 0, "log.cleaner.delete.retention.ms": 86_400_000}
    ours = new_broker(kafka.data, options={**EAGER_BROKER, **known}).start()
    assert last_values(read_all(ours.bootstrap, topic)) == model(pairs)
    stage(ours.bootstrap, "ours")
    assert ours.stop() == 0
    export(kafka.data)
    with KafkaBroker(tmp_path / "again", kafka.data, eager) as again:
        assert last_values(read_all(again.bootstrap, topic)) == model(pairs)
        stage(again.bootstrap, "again")
    ours.start()
    assert last_values(read_all(ours.bootstrap, topic)) == model(pairs)
    stage(ours.bootstrap, "last")
