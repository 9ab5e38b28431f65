"""Clients of before Kafka 0.11, or that speak as those did: message formats 0 and 1.

kafka-python 1.4.7 and the Java clients are those of then; librdkafka is today's, told to take the
broker for an old one. Each reads what it wrote, what others wrote, and is read by others.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pyrklog.testing import TestBroker
from tests.support import jvm
from tests.support.clients import Confluent, Record
from tests.support.groups import create_topic
from tests.support.waiting import wait_until

OLD_CODECS = ("none", "gzip", "snappy", "lz4")
FORMAT_0, FORMAT_1 = "0.9", "0.10"
PROGRAM = Path(__file__).with_name("old_kafka_python.py")
OLD_PYTHON = jvm.ROOT / ".cache" / "old-clients"
COUNT = 60
PATIENCE_S = 60


def values(word: str, count: int = COUNT) -> list[str]:
    return [f"{word} {number}" for number in range(count)]


def write_with_confluent(bootstrap: str, topic: str, codec: str) -> None:
    records = [Record(b"key", value.encode(), (("lost", b"1"),)) for value in values("new")]
    Confluent().produce(bootstrap, topic, records, codec=codec)


def read_with_confluent(bootstrap: str, topic: str) -> list[tuple[bytes | None, str]]:
    found = Confluent().consume(bootstrap, topic, COUNT)
    return [(record.key, (record.value or b"").decode()) for record in found]


def kafka_python(bootstrap: str, version: str, *arguments: str, stdin: str = "") -> list[list[Any]]:
    """Runs the program with kafka-python 1.4.7; what it read."""
    if not (OLD_PYTHON / "kafka").is_dir():
        raise FileNotFoundError(f"no kafka-python in {OLD_PYTHON}: make .cache/old-clients.done")
    done = subprocess.run(
        [sys.executable, PROGRAM, bootstrap, version, *arguments],
        input=stdin,
        env=os.environ | {"PYTHONPATH": str(OLD_PYTHON)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("version", [FORMAT_0, FORMAT_1])
def test_kafka_python_writes_and_reads(
    bootstrap: str, topic: str, version: str, codec: str
) -> None:
    sent = "\n".join(values("old"))
    kafka_python(bootstrap, version, topic, "produce", codec, stdin=sent)
    assert read_with_confluent(bootstrap, topic) == [(b"key", value) for value in values("old")]
    for reader in (FORMAT_0, FORMAT_1):
        found = kafka_python(bootstrap, reader, topic, "consume", str(COUNT))
        assert [one[0] for one in found] == list(range(COUNT))
        assert [one[2:] for one in found] == [["key", value] for value in values("old")]
        has_time = version == FORMAT_1 == reader
        assert all(((one[1] or -1) > 0) == has_time for one in found)


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("version", [FORMAT_0, FORMAT_1])
def test_kafka_python_reads_record_batches(
    bootstrap: str, topic: str, version: str, codec: str
) -> None:
    write_with_confluent(bootstrap, topic, codec)
    found = kafka_python(bootstrap, version, topic, "consume", str(COUNT))
    assert [one[2:] for one in found] == [["key", value] for value in values("new")]


@pytest.mark.parametrize("version", [FORMAT_0, FORMAT_1])
def test_kafka_python_in_a_group(bootstrap: str, topic: str, version: str) -> None:
    write_with_confluent(bootstrap, topic, "gzip")
    first = kafka_python(bootstrap, version, topic, "join", "25")
    second = kafka_python(bootstrap, version, topic, "join", str(COUNT - 25))
    assert [one[3] for one in first + second] == values("new")


def old_settings(bootstrap: str, fallback: str) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap,
        "api.version.request": False,
        "broker.version.fallback": fallback,
    }


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
@pytest.mark.parametrize("fallback", ["0.9.0", "0.10.0"])
def test_librdkafka_without_versions(bootstrap: str, topic: str, fallback: str, codec: str) -> None:
    producer = Producer(
        old_settings(bootstrap, fallback) | {"compression.type": codec, "linger.ms": 20}
    )
    errors: list[object] = []
    for value in values("old"):
        producer.produce(topic, value, b"key", 0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None] * COUNT
    assert read_with_confluent(bootstrap, topic) == [(b"key", value) for value in values("old")]

    consumer = Consumer(old_settings(bootstrap, fallback) | {"group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []

    def has_all() -> bool:
        messages = consumer.consume(COUNT, 0.5)
        assert [message.error() for message in messages] == [None] * len(messages)
        found.extend(message.value().decode() for message in messages)
        return len(found) >= COUNT

    wait_until(has_all, lambda: f"read {found}")
    consumer.close()
    assert found == values("old")


@pytest.mark.jvm
@pytest.mark.parametrize("release", ["0.9", "0.10", "0.11"])
def test_java(bootstrap: str, topic: str, release: str) -> None:
    modern = [Record(b"key", value.encode()) for value in values("modern", 30)]
    Confluent().produce(bootstrap, f"{topic}-modern", modern, codec="gzip")
    program = Path(__file__).with_name("OldClient.java")
    jars = jvm.KAFKA_JARS.with_name(f"old-{release}")
    output = jvm.run(str(program), bootstrap, topic, jars=jars, timeout_s=120)
    checks = re.findall(r"^    static void (\w+)\(\) ", program.read_text(), re.MULTILINE)
    assert output.split("\n")[:-1] == [f"ok {name}" for name in checks]


def test_an_old_client_is_named_in_the_log_once(fresh_broker: TestBroker, topic: str) -> None:
    create_topic(fresh_broker.bootstrap, topic, 1)
    for _ in range(2):
        kafka_python(fresh_broker.bootstrap, FORMAT_1, topic, "produce", "none", stdin="a\nb")

    def named_now() -> list[str]:
        return [line for line in fresh_broker.log if '"event": "old_client"' in line]

    named = wait_until(named_now, "it is not named")
    assert len(named) == 1, named
    assert "kafka-python" in named[0]
    assert "Produce v2" in named[0]
