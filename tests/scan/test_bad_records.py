"""``pyrklog.scan(bad_records=...)``: records whose values do not fit go to a topic."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

import pyrklog
from pyrklog.scanning import BadRecordsError, Scan
from pyrklog.testing import TestBroker
from tests.support.avro import encoded, framed
from tests.support.bad_records import ID, bad_places, create_with, mixed, places, read_bad
from tests.support.clients import Confluent, Record
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create, leaders
from tests.support.groups import create_topic
from tests.support.registry import Registry
from tests.support.scanning import iterated, rows

NOW_MS = 1000 * int(time.time())
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


def scan(bootstrap: str, topic: Any, **options: Any) -> Scan:
    columns = options.pop("columns", ["partition", "offset", "value"])
    options = {"decode": "json", "schema": ID, "bootstrap_servers": bootstrap, **options}
    return pyrklog.scan(topic, columns=columns, **options)


def produce(
    bootstrap: str, topic: str, values: list[bytes | None], partition: int = 0, key: bytes = b"k"
) -> None:
    records = [Record(key, value) for value in values]
    Confluent().produce(bootstrap, topic, records, partition=partition, codec="zstd")


def test_a_record_goes_there_as_it_was_with_its_place_and_reason(
    bootstrap: str, topic: str
) -> None:
    bad = f"{topic}-bad"
    create_topic(bootstrap, bad, 1)
    headers = (("h", b"\xff"), ("h", None), ("__connect.errors.topic", b"earlier"))
    records = [
        Record(b"a", b'{"id": 1}', (), NOW_MS),
        Record(b"\xff", b"\xfe", headers, NOW_MS + 1),
        Record(None, None, (), NOW_MS + 2),
        Record(None, b'{"id": "x"}', (), NOW_MS + 3),
    ]
    Confluent().produce(bootstrap, topic, records)
    found = rows(scan(bootstrap, topic, bad_records=bad, client_id="orders-etl"))
    assert [row["value"] for row in found] == [{"id": 1}, None, None, None]
    first, second = read_bad(bootstrap, bad)
    assert [one.place for one in (first, second)] == [(topic, 0, 1), (topic, 0, 3)]
    for one, record in ((first, records[1]), (second, records[3])):
        assert (one.record.key, one.record.value) == (record.key, record.value)
        assert one.record.timestamp_ms == record.timestamp_ms
        assert one.record.headers[: len(record.headers)] == record.headers
    sentence = f"topic {topic} partition 0 offset 3: the value does not fit the schema: "
    assert second.told.pop("exception.message").startswith(sentence)
    assert second.told == {
        "topic": topic,
        "partition": "0",
        "offset": "3",
        "connector.name": "orders-etl",
        "stage": "VALUE_CONVERTER",
        "exception.class.name": "pyrklog.scanning.BadValueError",
    }
    dropped = scan(bootstrap, topic, bad_records=bad, on_bad="drop")
    assert [row["offset"] for row in iterated(dropped)] == [0, 2]
    assert dropped.progress()[0].bad == 2
    assert places(bootstrap, bad) == sorted([first.place, second.place] * 2)


@pytest.mark.parametrize("on_bad", ["null", "drop"])
def test_each_bad_record_is_written_once(bootstrap: str, topic: str, on_bad: str) -> None:
    bad, count, every = f"{topic}-bad", 5000, 7
    create_topic(bootstrap, topic, 3)
    create_topic(bootstrap, bad, 4)
    for partition in range(3):
        produce(bootstrap, topic, mixed(count, every), partition, b"%d" % partition)
    found = scan(bootstrap, topic, bad_records=bad, on_bad=on_bad, batch_rows=300)
    bads = bad_places(topic, 3, count, every)
    good = 3 * count - len(bads)
    assert len(iterated(found)) == (good if on_bad == "drop" else 3 * count)
    assert sum(one.bad for one in found.progress()) == len(bads)
    assert places(bootstrap, bad) == bads
    # By their keys, as Java's producer would.
    assert len({one.record.key for one in read_bad(bootstrap, bad)}) == 3


def test_a_batch_is_given_when_its_bad_records_are_there(bootstrap: str, topic: str) -> None:
    """And a scan that starts at another one's progress misses none, wherever that one was left."""
    bad, count, every = f"{topic}-bad", 3000, 10
    create_topic(bootstrap, bad, 1)
    produce(bootstrap, topic, mixed(count, every))
    first = scan(bootstrap, topic, bad_records=bad, batch_rows=100)
    for _ in range(7):
        batch = pa.record_batch(next(first)).to_pydict()
        [progress] = first.progress()
        assert progress.position == batch["offset"][-1] + 1
        written = places(bootstrap, bad)
        assert written == bad_places(topic, 1, progress.position, every)
    # It dies here: what it had read ahead was not written.
    first.close()
    start = (progress.position, progress.leader_epoch)
    iterated(scan(bootstrap, topic, bad_records=bad, start=start))
    assert places(bootstrap, bad) == bad_places(topic, 1, count, every)


_READER = """
import sys, pyarrow, pyrklog

topic, bad, bootstrap, start = sys.argv[1:]
schema = pyarrow.schema([pyarrow.field("id", pyarrow.int64(), nullable=False)])
scan = pyrklog.scan(
    topic, int(start), decode="json", schema=schema, bad_records=bad, batch_rows=50,
    bootstrap_servers=bootstrap, memory_bytes=16 << 20,
)
for batch in scan:
    print(scan.progress()[0].position, flush=True)
"""


def test_killed_readers_miss_none(bootstrap: str, topic: str) -> None:
    """Each is killed a few batches after it began, and the next goes on where it said it was."""
    bad, count, every = f"{topic}-bad", 2000, 3
    create_topic(bootstrap, bad, 1)
    produce(bootstrap, topic, mixed(count, every))
    position, kills = 0, 0
    while position < count:
        command = [sys.executable, "-c", _READER, topic, bad, bootstrap, str(position)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            for _ in range(8):
                line = reader.stdout.readline()
                if not line:
                    break
                position = int(line)
            reader.kill()
        kills += 1
    assert kills > 3
    found = Counter(places(bootstrap, bad))
    assert sorted(found) == bad_places(topic, 1, count, every)
    # What a killed reader wrote and did not tell of.
    assert found.total() <= len(found) + kills * 200


def test_every_way_of_reading_writes_them(bootstrap: str, topic: str) -> None:
    bad = f"{topic}-bad"
    create_topic(bootstrap, bad, 1)
    produce(bootstrap, topic, mixed(500, 5))
    ways: list[Callable[[Scan], Any]] = [
        iterated,
        rows,
        lambda found: found.reader().read_all(),
        lambda found: pa.table(found),
    ]
    for way in ways:
        way(scan(bootstrap, topic, bad_records=bad))
    expected = sorted(bad_places(topic, 1, 500, 5) * len(ways))
    assert places(bootstrap, bad) == expected


def test_avro_of_a_registry(bootstrap: str, topic: str) -> None:
    bad = f"{topic}-bad"
    create_topic(bootstrap, bad, 1)
    good = framed(3, encoded(ORDER, {"id": 7}))
    produce(bootstrap, topic, [good, framed(9, b"\0"), good[:-1], b"x", good])
    with Registry({3: ORDER}) as registry:
        options = {"schema": None, "registry": registry.url}
        found = scan(bootstrap, topic, decode="avro", bad_records=bad, on_bad="drop", **options)
        assert [row["value"]["id"] for row in iterated(found)] == [7, 7]
    reasons = [
        one.told["exception.message"].split("schema: ")[1] for one in read_bad(bootstrap, bad)
    ]
    assert reasons[0] == "the registry has no schema 9"
    assert [one.record.value for one in read_bad(bootstrap, bad)][1:] == [good[:-1], b"x"]


def test_a_topic_that_cannot_take_them_is_told(bootstrap: str, topic: str) -> None:
    small = f"{topic}-small"
    produce(bootstrap, topic, [b'{"id": 1}', b"x" * 3000, b"y"])
    told = "records whose values do not fit cannot be written to topic "
    missing = f"{topic}-missing"
    with pytest.raises(BadRecordsError, match=f"^{told}{missing}: there is no topic {missing}"):
        scan(bootstrap, topic, bad_records=missing)
    assert missing not in AdminClient({"bootstrap.servers": bootstrap}).list_topics().topics
    create_with(bootstrap, small, max_message_bytes="2000")
    found = scan(bootstrap, topic, bad_records=small)
    largest = (
        f"the largest of them, topic {topic} partition 0 offset 1, has about 3[0-9]{{3}} bytes$"
    )
    for _ in range(2):
        with pytest.raises(
            BadRecordsError, match=f"^{told}{small}: .*max.message.bytes.*{largest}"
        ):
            next(found)
    assert isinstance(found.error, BadRecordsError)
    assert found.progress()[0].position == 0
    with pytest.raises(OSError, match=told):
        rows(scan(bootstrap, topic, bad_records=small))


def test_a_topic_that_is_read_cannot_take_them(bootstrap: str, topic: str) -> None:
    bad = f"{topic}-bad"
    create_topic(bootstrap, bad, 1)
    produce(bootstrap, topic, [b'{"id": 1}', b"x"])
    read: list[Any] = [bad, [topic, bad], {topic: [0], bad: [0]}, re.compile(f"{topic}.*")]
    for topics in read:
        with pytest.raises(ValueError, match=f"^bad_records is '{bad}', which is read"):
            scan(bootstrap, topics, bad_records=bad)
    found = scan(bootstrap, re.compile(topic), bad_records=bad)
    assert [row["value"] for row in iterated(found)] == [{"id": 1}, None]
    assert places(bootstrap, bad) == [(topic, 0, 1)]


def test_a_broker_that_dies_meanwhile(new_broker: Callable[..., TestBroker], topic: str) -> None:
    """The scan and its producer wait for it, and nothing is lost or written twice."""
    broker, bad, count, every = new_broker().start(), f"{topic}-bad", 20_000, 2
    create_topic(broker.bootstrap, bad, 1)
    produce(broker.bootstrap, topic, mixed(count, every))
    options = {"batch_rows": 200, "memory_bytes": 16 << 20, "bad_records": bad, "threads": 1}
    found = scan(broker.bootstrap, topic, **options)
    taken = 0
    for number, batch in enumerate(found):
        taken += pa.record_batch(batch).num_rows
        if number in (5, 40):
            broker.kill()
            broker.start()
    assert taken == count
    assert places(broker.bootstrap, bad) == bad_places(topic, 1, count, every)


@pytest.mark.jvm
def test_a_leader_that_is_away_is_told(cluster: BrokerCluster, topic: str) -> None:
    bad = f"{topic}-bad"
    admin = create(cluster, topic, 1, 3)
    create(cluster, bad, 3, 1)
    source, homes = leaders(admin, topic)[0], leaders(admin, bad)
    away = next(broker for broker in homes.values() if broker != source)
    servers = ",".join(one.bootstrap for number, one in cluster.brokers.items() if number != away)
    # Of so many keys each partition has some.
    records = [Record(b"%d" % number, b"bad", (), NOW_MS) for number in range(300)]
    Confluent().produce(servers, topic, records)
    found = scan(servers, topic, bad_records=bad, timeout_s=3.0)
    cluster.brokers[away].kill()
    told = (
        rf"cannot be written to topic {bad}: partition \d of topic {bad} was not written within 3"
    )
    with pytest.raises(BadRecordsError, match=told):
        iterated(found)


_MEASURED = """
import json, sys, pyarrow, pyrklog

def resident():
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["VmHWM"].split()[0]) * 1024

topic, bad, bootstrap, memory = sys.argv[1:]
schema = pyarrow.schema([pyarrow.field("id", pyarrow.int64(), nullable=False)])
scan = pyrklog.scan(
    topic, decode="json", schema=schema, bad_records=bad, on_bad="drop",
    bootstrap_servers=bootstrap, memory_bytes=int(memory),
)
before = resident()
rows = sum(pyarrow.record_batch(batch).num_rows for batch in scan)
bad = sum(one.bad for one in scan.progress())
print(json.dumps({"rows": rows, "bad": bad, "grown": resident() - before}))
"""


def test_many_bad_records_take_little_memory(bootstrap: str, topic: str) -> None:
    """200 MB of them without a single row."""
    bad, memory, count = f"{topic}-bad", 32 << 20, 20_000
    create_topic(bootstrap, bad, 2)
    value = b"no JSON, and nothing else either, " * 300
    produce(bootstrap, topic, [value] * count)
    command = [sys.executable, "-c", _MEASURED, topic, bad, bootstrap, str(memory)]
    output = subprocess.run(command, capture_output=True, text=True, check=True)
    told = json.loads(output.stdout)
    assert (told["rows"], told["bad"]) == (0, count)
    # As in test_memory.py, besides what is encoded.
    assert told["grown"] < memory + (96 << 20), told
    ends = pyrklog.scan(bad, bootstrap_servers=bootstrap).progress()
    assert sum(one.end for one in ends) == count
