"""``pyrklog.scan`` on Apache Kafka 3.9."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import pyrklog
from pyrklog.scanning import (
    BadRecordsError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from tests.support import jvm
from tests.support.bad_records import ID, bad_places, create_with, mixed, places, read_bad
from tests.support.clients import CODECS, Confluent, Record
from tests.support.groups import create_topic
from tests.support.kafka_broker import KafkaBroker
from tests.support.scanning import iterated, rows, values
from tests.support.transactions import producer_of, read_committed_when

pytestmark = pytest.mark.jvm

START = (datetime.now(UTC) - timedelta(minutes=10)).replace(microsecond=0)
"""Retention deletes what is a week old."""
START_MS = int(START.timestamp() * 1000)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka") / "broker") as broker:
        yield broker.bootstrap


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_are_rows(kafka: str, topic: str, codec: str) -> None:
    records = [
        Record(None, None, (), START_MS),
        Record(b"k", b"v", (("a", b"1"), ("a", None)), START_MS + 1),
        *(Record(b"%d" % n, b"y" * (n % 200), (), START_MS + n) for n in range(5000)),
    ]
    Confluent().produce(kafka, topic, records, codec=codec)
    columns = ["key", "value", "offset", "timestamp", "headers"]
    found = rows(pyrklog.scan(topic, columns=columns, bootstrap_servers=kafka))
    for number, (row, record) in enumerate(zip(found, records, strict=True)):
        headers = [{"key": key, "value": value} for key, value in record.headers]
        time = START + timedelta(milliseconds=record.timestamp_ms - START_MS)
        assert row == {
            "key": record.key,
            "value": record.value,
            "offset": number,
            "timestamp": time,
            "headers": headers or None,
        }


def test_json_is_typed_columns(kafka: str, topic: str) -> None:
    values = [b'{"id": %d, "tags": ["%d"]}' % (n, n) for n in range(3000)]
    values[1500] = b'{"id": "x", "tags": ["lost"]}'
    records = [Record(None, value, (), START_MS) for value in values]
    Confluent().produce(kafka, topic, records, codec="gzip")
    options: dict[str, Any] = {"columns": ["value"], "decode": "json", "bootstrap_servers": kafka}
    good = [{"value": {"id": n, "tags": [str(n)]}} for n in range(3000)]
    found = pyrklog.scan(topic, **options, end=1500)
    assert rows(found) == good[:1500]
    found = pyrklog.scan(
        topic, **options, schema=pa.schema(pa.schema(found).field("value").type.fields)
    )
    assert rows(found) == [*good[:1500], {"value": None}, *good[1501:]]
    assert found.progress()[0].bad == 1


def test_ranges_are_found_by_offset_and_time(kafka: str, topic: str) -> None:
    create_topic(kafka, topic, 2)
    records = [Record(None, b"%d" % n, (), START_MS + 1000 * n) for n in range(100)]
    for partition in range(2):
        Confluent().produce(kafka, topic, records, partition=partition)
    scan = pyrklog.scan(
        topic,
        start=START + timedelta(seconds=10),
        end={topic: {0: 15, 1: START + timedelta(seconds=12)}},
        columns=["partition", "value"],
        bootstrap_servers=kafka,
    )
    found = sorted((row["partition"], int(row["value"])) for row in iterated(scan))
    assert found == [(0, 10), (0, 11), (0, 12), (0, 13), (0, 14), (1, 10), (1, 11)]


def test_transactions_are_read_once_they_are_committed(kafka: str, topic: str) -> None:
    create_topic(kafka, topic, 1)
    producer = producer_of(kafka, topic)
    for value, end in (
        (b"aborted", producer.abort_transaction),
        (b"committed", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        assert producer.flush(30) == 0
        end(30)
    read_committed_when(kafka, topic, [b"committed"])
    assert values(kafka, topic) == [b"committed"]
    assert values(kafka, topic, isolation="read_uncommitted") == [b"aborted", b"committed"]


def test_failures_are_those_of_any_broker(kafka: str, topic: str) -> None:
    with pytest.raises(UnknownTopicError, match="does not exist"):
        pyrklog.scan(topic, bootstrap_servers=kafka)
    Confluent().produce(kafka, topic, [Record(None, b"1")])
    with pytest.raises(OffsetOutOfRangeError, match="the log has 0 to 1"):
        values(kafka, topic, start=5, end=9)
    columns = {"columns": ["value"], "bootstrap_servers": kafka}
    with pytest.raises(LeaderNotAvailableError, match="up to offset 9, but ends at 1"):
        iterated(pyrklog.scan(topic, 0, 9, timeout_s=1, **columns))  # type: ignore[arg-type]


def test_headers_of_bad_records_are_those_of_kafka_connect(kafka: str, topic: str) -> None:
    """As its own reporter of a dead letter queue has them."""
    bad = f"{topic}-bad"
    create_topic(kafka, bad, 1)
    Confluent().produce(kafka, topic, [Record(b"k", b"x")])
    options: dict[str, Any] = {"decode": "json", "schema": ID, "bootstrap_servers": kafka}
    iterated(pyrklog.scan(topic, bad_records=bad, **options))
    [one] = read_bad(kafka, bad)
    [jar] = jvm.CONNECT_JARS.glob("connect-runtime-*.jar")
    with zipfile.ZipFile(jar) as classes:
        folder = "org/apache/kafka/connect/runtime/errors"
        reporter = classes.read(f"{folder}/DeadLetterQueueReporter.class")
        stage = classes.read(f"{folder}/Stage.class")
    names = [name.encode() for name, _ in one.record.headers]
    assert len(names) == 7
    # As a class file has a text: its length in two bytes, then itself.
    assert all(len(name).to_bytes(2) + name in reporter for name in names)
    kind = one.told["stage"].encode()
    assert len(kind).to_bytes(2) + kind in stage


def test_bad_records_go_to_a_topic(kafka: str, topic: str) -> None:
    bad, small = f"{topic}-bad", f"{topic}-small"
    create_topic(kafka, bad, 2)
    Confluent().produce(kafka, topic, [Record(b"k", value) for value in mixed(3000, 10)])
    options: dict[str, Any] = {"decode": "json", "schema": ID, "bootstrap_servers": kafka}
    found = pyrklog.scan(topic, columns=["value"], bad_records=bad, on_bad="drop", **options)
    assert len(rows(found)) == 2700
    assert places(kafka, bad) == bad_places(topic, 1, 3000, 10)
    create_with(kafka, small, max_message_bytes="300")
    told = f"topic {small} takes no record so large .* topic {topic} partition 0 offset"
    with pytest.raises(BadRecordsError, match=told):
        iterated(pyrklog.scan(topic, bad_records=small, **options))
    with pytest.raises(BadRecordsError, match=f"there is no topic {topic}-none: create it first"):
        pyrklog.scan(topic, bad_records=f"{topic}-none", **options)
