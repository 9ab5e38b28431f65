"""What Kafka was told to keep outlives the adoption of its directory."""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.testing import TestBroker
from tests.clients.test_adoption import cli, events, options
from tests.clients.test_kafka_round_trip import set_for_all
from tests.support.kafka_broker import KafkaBroker
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(180)]

KEPT, GONE, COMPACTED = "kept", "gone", "compacted"
AGE_MS = 40 * 24 * 3_600_000
LAZY = {"log.initial.task.delay.ms": "3600000", "log.cleaner.enable": "true"}
"""Kafka itself deletes nothing during the test."""
EAGER: dict[str, str | int | bool] = {"log.retention.check.interval.ms": 100}
MARK = "pyrklog.adopted.unconfirmed"


def fill(bootstrap: str) -> None:
    """Old records; of one topic they are to go at once."""
    own: dict[str, dict[str, str]] = {
        KEPT: {},
        GONE: {"retention.ms": "1000"},
        COMPACTED: {"cleanup.policy": "compact"},
    }
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, 1, 1, config=more) for name, more in own.items()])
    for future in made.values():
        future.result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    old_ms = time.time_ns() // 1_000_000 - AGE_MS
    for name in own:
        for number in range(3):
            producer.produce(name, b"%d" % number, b"k", partition=0, timestamp=old_ms)
    assert producer.flush(PATIENCE_S) == 0


def starts(bootstrap: str, topics: Sequence[str]) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looking"})
    found = [consumer.get_watermark_offsets(TopicPartition(name, 0), PATIENCE_S) for name in topics]
    consumer.close()
    return [low for low, _high in found]


def wait_until_gone(broker: TestBroker, topic: str) -> None:
    wait_until(lambda: starts(broker.bootstrap, [topic]) == [3], f"{topic} is not deleted from")


def test_an_option_of_all_brokers_is_taken_over(
    new_broker: Callable[..., TestBroker], tmp_path: Path
) -> None:
    with KafkaBroker(tmp_path / "kafka", options=LAZY) as kafka:
        fill(kafka.bootstrap)
        set_for_all(kafka.bootstrap, "log.retention.ms", "-1")
    file = tmp_path / "kafka" / "server.properties"
    broker = new_broker(
        kafka.data, port=kafka.port, options=EAGER, arguments=["--config", str(file)]
    ).start()
    wait_until_gone(broker, GONE)
    assert starts(broker.bootstrap, [KEPT, COMPACTED]) == [0, 0]
    assert options(broker, KEPT)["retention.ms"] == "-1"
    for name in (KEPT, GONE, COMPACTED):
        assert MARK not in options(broker, name)
    [told] = events(broker, "broker_options_adopted")
    assert (told["broker"], told["options"]) == ("all", ["log.retention.ms"])
    done = cli(broker, "config", "alter", "broker", "default", "--unset", "log.retention.ms")
    assert done.returncode == 0, done
    wait_until_gone(broker, KEPT)


def test_without_kafkas_file_everything_waits_for_a_word(
    new_broker: Callable[..., TestBroker], tmp_path: Path
) -> None:
    static = {**LAZY, "log.retention.hours": "-1"}
    with KafkaBroker(tmp_path / "kafka", options=static) as kafka:
        fill(kafka.bootstrap)
    copy = tmp_path / "copy"
    shutil.copytree(kafka.data, copy)
    broker = new_broker(kafka.data, options=EAGER).start()
    wait_until_gone(broker, GONE)
    assert starts(broker.bootstrap, [KEPT, COMPACTED]) == [0, 0]
    assert options(broker, KEPT)[MARK] == "retention.ms"
    held = "delete.retention.ms,min.compaction.lag.ms"
    assert options(broker, COMPACTED)[MARK] == held
    assert MARK not in options(broker, GONE)
    [told] = events(broker, "adopted_topics_unconfirmed")
    assert told["topics"] == [COMPACTED, KEPT]
    assert "--confirm-adopted" in told["fix"]
    assert events(broker, "kafka_options_not_seen")
    assert events(broker, "adopted_offsets_kept")
    done = cli(broker, "topic", "alter", KEPT, COMPACTED, "--confirm-adopted")
    assert done.returncode == 0, done
    wait_until_gone(broker, KEPT)
    assert options(broker, COMPACTED)["cleanup.policy"] == "compact"
    assert options(broker, COMPACTED)["min.compaction.lag.ms"] == "0"
    assert MARK not in options(broker, COMPACTED)

    # With its file the copy needs none.
    file = tmp_path / "kafka" / "server.properties"
    second = new_broker(
        copy,
        port=kafka.port,
        options={**EAGER, "log.dirs": str(copy)},
        arguments=["--config", str(file)],
    ).start()
    wait_until_gone(second, GONE)
    assert starts(second.bootstrap, [KEPT]) == [0]
    assert MARK not in options(second, KEPT)
    assert not events(second, "adopted_offsets_kept")
