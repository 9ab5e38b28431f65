"""``pyrklog.scan`` on a broker of ours: what is written is read, as stock clients read it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

import pyrklog
from pyrklog.scanning import (
    ListedOffset,
    OffsetOutOfRangeError,
    Place,
    ScanClosedError,
    UnknownTopicError,
)
from pyrklog.testing import TestBroker
from tests.support.clients import CODECS, Confluent, Record
from tests.support.groups import create_topic, fill
from tests.support.scanning import Row, iterated, rows, values

NOW_MS = time.time_ns() // 1_000_000 - 60_000
"""Retention deletes what is a week old."""
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("timestampType", pa.int32(), nullable=False),
    ]
)
ALL = [*SCHEMA.names, "headers"]


def at(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def numbered(count: int, first_ms: int = NOW_MS) -> list[Record]:
    return [Record(None, b"%d" % number, (), first_ms + number) for number in range(count)]


def expected(record: Record, topic: str, offset: int, partition: int = 0) -> Row:
    headers = [{"key": key, "value": value} for key, value in record.headers]
    return {
        "key": record.key,
        "value": record.value,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": at(record.timestamp_ms),
        "timestampType": 0,
        "headers": headers or None,
    }


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_are_rows(bootstrap: str, topic: str, codec: str) -> None:
    records = [
        Record(b"key", b"value", (), NOW_MS),
        Record(None, None, (), NOW_MS + 1),
        Record(b"", b"", (), NOW_MS + 2),
        Record(b"k", b"v", (("a", b"1"), ("b", None), ("a", b""), ("ä", b"2")), NOW_MS + 3),
        *(Record(b"%d" % n, b"x" * (n % 300), (), NOW_MS + n) for n in range(5000)),
    ]
    Confluent().produce(bootstrap, topic, records, codec=codec)
    scan = pyrklog.scan(topic, columns=ALL, bootstrap_servers=bootstrap)
    assert rows(scan) == [expected(one, topic, n) for n, one in enumerate(records)]


def test_the_schema_is_stock_sparks(bootstrap: str, topic: str) -> None:
    Confluent().produce(bootstrap, topic, numbered(1))
    scan = pyrklog.scan(topic, bootstrap_servers=bootstrap)
    assert pa.schema(scan) == SCHEMA
    assert pa.RecordBatchReader.from_stream(scan).schema == SCHEMA


def test_the_reader_is_pyarrows(bootstrap: str, topic: str) -> None:
    Confluent().produce(bootstrap, topic, numbered(10))
    scan = pyrklog.scan(topic, bootstrap_servers=bootstrap)
    reader = scan.reader()
    assert isinstance(reader, pa.RecordBatchReader)
    with pytest.raises(ScanClosedError, match="has a reader already"):
        scan.reader()
    table = reader.read_all()
    assert (table.schema, table.num_rows) == (SCHEMA, 10)
    assert next(scan, None) is None


def test_the_reader_raises_the_scans_exceptions(bootstrap: str, topic: str) -> None:
    Confluent().produce(bootstrap, topic, numbered(10))
    scan = pyrklog.scan(topic, 11, 20, bootstrap_servers=bootstrap)
    with pytest.raises(OffsetOutOfRangeError, match="the log has 0 to 10"):
        scan.reader().read_all()


def test_columns_come_as_they_are_named(bootstrap: str, topic: str) -> None:
    Confluent().produce(bootstrap, topic, numbered(10))
    scan = pyrklog.scan(topic, columns=["offset", "value"], bootstrap_servers=bootstrap)
    table = pa.RecordBatchReader.from_stream(scan).read_all()
    assert table.column_names == ["offset", "value"]
    assert table.num_rows == 10
    counted = pyrklog.scan(topic, columns=[], bootstrap_servers=bootstrap)
    assert sum(pa.record_batch(batch).num_rows for batch in counted) == 10


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        ("earliest", "latest", range(100)),
        (0, 100, range(100)),
        (13, 14, [13]),
        (50, 50, []),
        ("latest", "latest", []),
        (at(NOW_MS + 10), at(NOW_MS + 20), range(10, 20)),
        (at(NOW_MS + 10) - timedelta(microseconds=1), "latest", range(10, 100)),
        (at(NOW_MS + 10) + timedelta(microseconds=1), "latest", range(11, 100)),
        (at(NOW_MS + 1000), "latest", []),
        ("earliest", at(NOW_MS + 1000), range(100)),
        ((20, 0), "latest", range(20, 100)),
    ],
)
def test_a_range_begins_and_ends_where_it_says(
    bootstrap: str, topic: str, start: Place, end: Place, wanted: Sequence[int]
) -> None:
    Confluent().produce(bootstrap, topic, numbered(100))
    found = values(bootstrap, topic, start=start, end=end)
    assert found == [b"%d" % number for number in wanted]


def test_partitions_have_places_of_their_own(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 3)
    for partition in range(3):
        Confluent().produce(bootstrap, topic, numbered(10), partition=partition)
    scan = pyrklog.scan(
        {topic: [0, 2]},
        start={topic: {0: 8}},
        end={topic: {2: 3}},
        columns=["partition", "offset"],
        bootstrap_servers=bootstrap,
    )
    found = sorted((row["partition"], row["offset"]) for row in rows(scan))
    assert found == [(0, 8), (0, 9), (2, 0), (2, 1), (2, 2)]
    ends = [(one.partition, one.start, one.position, one.end) for one in scan.progress()]
    assert ends == [(0, 8, 10, 10), (2, 0, 3, 3)]
    whole = pyrklog.scan(topic, start={topic: 9}, columns=["offset"], bootstrap_servers=bootstrap)
    assert [row["offset"] for row in rows(whole)] == [9, 9, 9]


def test_many_partitions_are_read_in_order_each(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 150)
    fill(bootstrap, topic, 150, 20)
    columns = ["partition", "offset", "value", "topic"]
    scan = pyrklog.scan(
        topic, columns=columns, bootstrap_servers=bootstrap, batch_rows=7, threads=3
    )
    of_partitions: dict[int, list[tuple[int, bytes]]] = {}
    for row in iterated(scan):
        assert row["topic"] == topic
        of_partitions.setdefault(row["partition"], []).append((row["offset"], row["value"]))
    assert of_partitions == {
        partition: [(number, b"%d:%d" % (partition, number)) for number in range(20)]
        for partition in range(150)
    }
    assert all((one.position, one.records) == (20, 20) for one in scan.progress())


def test_what_comes_later_is_not_read(bootstrap: str, topic: str) -> None:
    Confluent().produce(bootstrap, topic, numbered(10))
    scan = pyrklog.scan(topic, columns=["value"], bootstrap_servers=bootstrap)
    Confluent().produce(bootstrap, topic, numbered(10))
    assert len(rows(scan)) == 10
    assert len(values(bootstrap, topic)) == 20


def test_progress_counts_what_was_taken(bootstrap: str, topic: str) -> None:
    Confluent().produce(bootstrap, topic, numbered(1000))
    scan = pyrklog.scan(topic, bootstrap_servers=bootstrap, batch_rows=100)
    [before] = scan.progress()
    assert (before.topic, before.start, before.position, before.end) == (topic, 0, 0, 1000)
    next(scan)
    [one] = scan.progress()
    assert (one.position, one.records, one.skipped) == (100, 100, 0)
    scan.close()
    rest = values(bootstrap, topic, start=(one.position, one.leader_epoch))
    assert rest == [b"%d" % number for number in range(100, 1000)]


def test_a_scan_goes_on_at_a_listed_end_of_the_topic_it_names(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 1)
    fill(bootstrap, topic, 1, 5)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    place = TopicPartition(topic, 0)
    end = admin.list_offsets({place: OffsetSpec.latest()})[place].result(30)
    fill(bootstrap, topic, 1, 5, first=5)
    start = ListedOffset(end.offset, end.leader_epoch)
    with pyrklog.scan(topic, start, bootstrap_servers=bootstrap) as scan:
        found = [row["value"] for row in scan.reader().read_all().to_pylist()]
        (topic_id,) = scan.topic_ids.values()
    assert found == [b"0:%d" % number for number in range(5, 10)]
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(30)
    # librdkafka writes it with Base64's usual letters.
    assert b64decode(str(described.topic_id) + "==") == urlsafe_b64decode(topic_id + "==")


def test_a_scan_is_read_once(bootstrap: str, topic: str) -> None:
    Confluent().produce(bootstrap, topic, numbered(10))
    scan = pyrklog.scan(topic, bootstrap_servers=bootstrap)
    assert len(rows(scan)) == 10
    with pytest.raises(ScanClosedError, match="read already"):
        next(scan)
    with pytest.raises(ScanClosedError, match="read already"):
        scan.__arrow_c_stream__()
    assert scan.error is None


def test_a_closed_scan_gives_nothing_more(bootstrap: str, topic: str) -> None:
    Confluent().produce(bootstrap, topic, numbered(1000))
    with pyrklog.scan(topic, bootstrap_servers=bootstrap, batch_rows=10) as scan:
        next(scan)
    with pytest.raises(ScanClosedError, match="closed"):
        next(scan)
    assert scan.error is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"columns": ["vlaue"]}, "there is no column 'vlaue'; the columns are key, value"),
        ({"start": -1}, "there is no offset -1"),
        ({"start": "begin"}, "'begin' is no place"),
        ({"start": datetime(2020, 1, 1)}, "has no time zone"),
        ({"start": {"other": 1}}, "topic 'other', which is not read"),
        (
            {"isolation": "serializable"},
            "unknown isolation 'serializable'; it can be read_committed or ",
        ),
        ({"missing": "earliest"}, "unknown missing 'earliest'; it can be fail or skip"),
        ({"threads": 0}, "threads is 0; it can be 1 to 64"),
        ({"memory_bytes": 1}, "memory_bytes is 1; it can be"),
        ({"memory_bytes": 16 << 20, "threads": 64}, "64 threads need 33554432"),
        ({"topics": {"t": [-1]}}, "topic t cannot have a partition -1"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"bootstrap_servers": "kafka:x"}, "'kafka:x' is not HOST:PORT"),
        ({"bootstrap_servers": "::1"}, "'::1' is not HOST:PORT"),
        ({"topics": []}, "no topic to read"),
        ({"topics": "a/b"}, "no topic has the name"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(
    bootstrap: str, topic: str, arguments: dict[str, object], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        pyrklog.scan(
            **{"topics": topic, "bootstrap_servers": bootstrap, **arguments}  # type: ignore[arg-type]
        )


def test_a_place_of_another_type_is_named(topic: str) -> None:
    with pytest.raises(TypeError, match=r"1\.5 is no place in a partition: a float"):
        pyrklog.scan(topic, start=1.5)  # type: ignore[arg-type]


def test_columns_are_a_list(topic: str) -> None:
    with pytest.raises(TypeError, match=r"columns is 'value'; it takes a list .* \['value'\]"):
        pyrklog.scan(topic, columns="value")


def test_a_batch_says_what_takes_it(bootstrap: str, topic: str) -> None:
    Confluent().produce(bootstrap, topic, numbered(10))
    batch = next(pyrklog.scan(topic, bootstrap_servers=bootstrap))
    assert repr(batch) == "<pyrklog Batch of 10 rows: pyarrow.record_batch(batch) takes it>"
    assert pa.record_batch(batch).num_rows == 10
    assert repr(batch) == "<pyrklog Batch, given away>"


def test_topics_and_partitions_that_do_not_exist_are_named(bootstrap: str, topic: str) -> None:
    with pytest.raises(UnknownTopicError, match=f"topic {topic} does not exist"):
        pyrklog.scan(topic, bootstrap_servers=bootstrap)
    Confluent().produce(bootstrap, topic, numbered(1))
    with pytest.raises(UnknownTopicError, match=f"topic {topic} has no partition 7, but 1"):
        pyrklog.scan({topic: [7]}, bootstrap_servers=bootstrap)


def test_offsets_that_never_were_fail_the_scan(bootstrap: str, topic: str) -> None:
    Confluent().produce(bootstrap, topic, numbered(10))
    scan = pyrklog.scan(topic, 11, 20, bootstrap_servers=bootstrap)
    with pytest.raises(OffsetOutOfRangeError, match=r"offset 11 .* the log has 0 to 10"):
        next(scan)
    assert isinstance(scan.error, OffsetOutOfRangeError)


def test_a_stream_that_fails_tells_why(bootstrap: str, topic: str) -> None:
    Confluent().produce(bootstrap, topic, numbered(10))
    scan = pyrklog.scan(topic, 11, 20, bootstrap_servers=bootstrap)
    with pytest.raises(OSError, match="the log has 0 to 10"):
        rows(scan)
    assert isinstance(scan.error, OffsetOutOfRangeError)


_WAITER = """
import sys, pyarrow as pa, pyrklog
how, topic, bootstrap = sys.argv[1:]
scan = pyrklog.scan(topic, end=1000, bootstrap_servers=bootstrap, batch_rows=5)
if how == "reader":
    scan = scan.reader()
if how == "stream":
    scan = pa.RecordBatchReader.from_stream(scan)
try:
    for batch in scan:
        print("batch", flush=True)
except OSError:  # of the stream: KeyboardInterrupt follows
    sys.stdout.write("")
print("went on")
"""


@pytest.mark.parametrize("how", ["iterating", "reader", "stream"])
def test_ctrl_c_ends_a_wait(bootstrap: str, topic: str, how: str) -> None:
    Confluent().produce(bootstrap, topic, numbered(5))
    child = subprocess.Popen(
        [sys.executable, "-c", _WAITER, how, topic, bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "batch\n"
    child.send_signal(2)
    output, errors = child.communicate(timeout=30)
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert child.returncode == -2
    assert "went on" not in output


def test_importing_the_package_loads_neither_scan_nor_extension() -> None:
    program = "import json, sys, pyrklog; print(json.dumps(sorted(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    loaded = [name for name in json.loads(output.stdout) if name.startswith("pyrklog")]
    assert loaded == ["pyrklog"]


def test_records_that_retention_deleted_are_skipped_if_asked(
    new_broker: Callable[..., TestBroker], topic: str
) -> None:
    broker = new_broker().start()
    Confluent().produce(broker.bootstrap, topic, numbered(100))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [done] = admin.delete_records([TopicPartition(topic, 0, 60)]).values()
    done.result(30)
    failing = pyrklog.scan(topic, 10, bootstrap_servers=broker.bootstrap)
    with pytest.raises(OffsetOutOfRangeError, match="the log has 60 to 100"):
        next(failing)
    skipping = pyrklog.scan(topic, 10, missing="skip", bootstrap_servers=broker.bootstrap)
    assert [row["offset"] for row in iterated(skipping)] == list(range(60, 100))
    assert skipping.progress()[0].skipped == 50


def test_topics_by_pattern(bootstrap: str, topic: str) -> None:
    """Whole names; what brokers keep for themselves is not matched."""
    names = [f"{topic}-{suffix}" for suffix in ("b", "a", "a-late")]
    for name in names:
        Confluent().produce(bootstrap, name, numbered(3))
    found = rows(
        pyrklog.scan(
            re.compile(f"{topic}-[ab]"),
            start={names[0]: 2},
            columns=["topic", "offset"],
            bootstrap_servers=bootstrap,
        )
    )
    places = sorted((row["topic"], row["offset"]) for row in found)
    assert places == [(names[1], 0), (names[1], 1), (names[1], 2), (names[0], 2)]
    with pytest.raises(UnknownTopicError, match=f"no topic matches '{topic}'"):
        pyrklog.scan(re.compile(topic), bootstrap_servers=bootstrap)
    with pytest.raises(ValueError, match="a place is given for topic 'other', which is not read"):
        pyrklog.scan(re.compile(f"{topic}.*"), {"other": 1}, bootstrap_servers=bootstrap)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    consumer.commit(offsets=[TopicPartition(names[0], 0, 1)], asynchronous=False)
    consumer.close()
    with pyrklog.scan(re.compile(".*"), columns=[], bootstrap_servers=bootstrap) as everything:
        read = {one.topic for one in everything.progress()}
    assert set(names) <= read
    assert "__consumer_offsets" not in read
