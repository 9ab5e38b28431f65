"""Directories that Apache Kafka wrote in message formats 0 and 1: served, and handed back.

Kafka 3.9 in ZooKeeper mode still writes both, for brokers of an older ``inter.broker.protocol``.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_END, TIMESTAMP_NOT_AVAILABLE, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.plane.offline import dump_file
from pyrklog.testing import TestBroker
from pyrklog.testing.broker import BrokerExited
from tests.clients.test_adoption import events
from tests.clients.test_kafka_round_trip import committed, export, read_on
from tests.clients.test_old_clients import FORMAT_0, FORMAT_1, OLD_CODECS, kafka_python
from tests.support import jvm, zookeeper_kafka
from tests.support.clients import CLIENTS, Confluent, Record
from tests.support.cluster_clients import end_offset
from tests.support.kafka_broker import KafkaBroker
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

COUNT = 400
BATCH = 50
FIRST_MS = 1_600_000_000_000
SEGMENT_BYTES = "20000"
MAGIC_AT = 16
FILES = {".log", ".index", ".timeindex"}


class Seen(NamedTuple):
    """A record at its place; ``timestamp_ms`` -1: it has none."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@contextmanager
def old_kafka(folder: Path, version: str) -> Iterator[zookeeper_kafka.ZookeeperKafka]:
    """A Kafka that writes as version 0.9 or 0.10 did, as its internal topics' values too."""
    more = [
        f"inter.broker.protocol.version={version}.0",
        f"log.message.format.version={version}.0",
        "log.index.interval.bytes=512",
        "group.initial.rebalance.delay.ms=0",
    ]
    with (
        zookeeper_kafka.zookeeper(folder) as address,
        zookeeper_kafka.kafka(folder, address, node_id=1, more=more) as kafka,
    ):
        yield kafka


def create(bootstrap: str, topic: str, segment_bytes: str = SEGMENT_BYTES) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    options = {"segment.bytes": segment_bytes, "retention.ms": "-1"}
    admin.create_topics([NewTopic(topic, 1, 1, config=options)])[topic].result(PATIENCE_S)


def records(word: str) -> list[Record]:
    return [
        Record(b"k%d" % number, b"%s %d " % (word.encode(), number) * 8, (), FIRST_MS + number)
        for number in range(COUNT)
    ]


def write(bootstrap: str, topic: str, sent: list[Record], codec: str = "none") -> None:
    """In batches that fit into a segment."""
    for first in range(0, len(sent), BATCH):
        some = sent[first : first + BATCH]
        Confluent().produce(bootstrap, topic, some, codec=codec, idempotent=False)


def seen(bootstrap: str, topic: str, count: int) -> list[Seen]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer(settings | {"check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Seen] = []

    def has_all() -> bool:
        for message in consumer.consume(1000, 0.5):
            assert message.error() is None, message.error()
            kind, timestamp_ms = message.timestamp()
            known = -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms
            found.append(Seen(message.offset() or 0, known, message.key(), message.value()))
        return len(found) >= count

    wait_until(has_all, lambda: f"{len(found)} of {count}")
    consumer.close()
    return found


def places(bootstrap: str, topic: str) -> list[int]:
    """Offsets by time, from before the first record to behind the last one."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    times = [FIRST_MS - 1, FIRST_MS, FIRST_MS + 7, FIRST_MS + COUNT - 1, FIRST_MS + COUNT]
    asked = [
        consumer.offsets_for_times([TopicPartition(topic, 0, time)], PATIENCE_S)[0].offset
        for time in times
    ]
    consumer.close()
    return asked


def magics(folder: Path) -> set[int]:
    """The formats of the segments' first messages."""
    found: set[int] = set()
    for path in folder.glob("*.log"):
        try:
            with path.open("rb") as file:
                found.update(file.read(MAGIC_AT + 1)[MAGIC_AT:])
        except FileNotFoundError:
            continue  # just replaced
    return found


def sound_rows(folder: Path) -> set[object]:
    """The kinds of rows that ``pyrklog log verify`` makes of the folder's files, none of damage."""
    paths = [path for path in folder.iterdir() if path.suffix in FILES]
    rows = [row for path in paths for row in dump_file(str(path), records=True, verify=True)]
    assert [row for row in rows if row["kind"] == "damage"] == []
    return {row["kind"] for row in rows}


def console(bootstrap: str, topic: str) -> list[str]:
    """What Kafka's own consumer prints of all records."""
    shown = [f"print.{what}=true" for what in ("offset", "timestamp", "key")]
    arguments = [word for one in shown for word in ("--property", one)]
    output = jvm.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(COUNT), *arguments),
    )
    # A record without a timestamp: of format 0, and of the batch that was made of it.
    output = output.replace("CreateTime:-1", "NO_TIMESTAMP")
    return [line for line in output.splitlines() if "Offset:" in line]


@pytest.mark.parametrize("version", [FORMAT_0, FORMAT_1])
def test_a_directory_of_an_old_format_is_served_and_handed_back(
    new_broker: Callable[..., TestBroker], topic: str, tmp_path: Path, version: str
) -> None:
    magic = 0 if version == FORMAT_0 else 1
    topics = {codec: f"{topic}-{codec}" for codec in OLD_CODECS}
    with old_kafka(tmp_path, version) as kafka:
        for codec, name in topics.items():
            create(kafka.bootstrap, name)
            write(kafka.bootstrap, name, records(codec), codec)
        expected = {name: seen(kafka.bootstrap, name, COUNT) for name in topics.values()}
        by_time = {name: [OFFSET_END] * 5 for name in topics.values()}
        if version != FORMAT_0:  # for which Kafka has no answer
            by_time = {name: places(kafka.bootstrap, name) for name in topics.values()}
        printed = console(kafka.bootstrap, topics["gzip"])
        assert read_on(kafka.bootstrap, topics["none"], 30)[0] == expected[topics["none"]][0].value
        place = committed(kafka.bootstrap, topics["none"])
    folders = {name: kafka.data / f"{name}-0" for name in topics.values()}
    for name, folder in folders.items():
        assert magics(folder) == {magic}, name
        assert len(list(folder.glob("*.log"))) > 1 or name != topics["none"]
        assert "messages" in sound_rows(folder)
    offsets = [path for path in kafka.data.glob("__consumer_offsets-*") if magics(path)]
    assert {one for path in offsets for one in magics(path)} == {magic}

    # Without ZooKeeper the topics come from their folders.
    ours = new_broker(kafka.data).start()
    for name in topics.values():
        assert seen(ours.bootstrap, name, COUNT) == expected[name], name
        assert places(ours.bootstrap, name) == by_time[name], name
        assert magics(folders[name]) == {2}
    assert committed(ours.bootstrap, topics["none"]) == place
    assert read_on(ours.bootstrap, topics["none"], 20)[0] == expected[topics["none"]][30].value
    assert console(ours.bootstrap, topics["gzip"]) == printed
    for name in topics.values():
        for client in CLIENTS:
            values = [one.value for one in client.consume(ours.bootstrap, name, COUNT)]
            assert values == [one.value for one in expected[name]], client.name
        for old in (FORMAT_0, FORMAT_1):
            lines = kafka_python(ours.bootstrap, old, name, "consume", str(COUNT))
            assert [line[0] for line in lines] == [one.offset for one in expected[name]]
            assert [line[3].encode() for line in lines] == [one.value for one in expected[name]]
        more = [Record(b"more", b"more")]
        assert Confluent().produce(ours.bootstrap, name, more) == [COUNT]
    told = events(ours, "log_recovered")
    converted = [line for line in told if int(line["converted_segments"]) > 0]
    assert len(converted) >= len(topics)
    assert len(events(ours, "log_conversion_begins")) == len(converted)
    assert all("damaged" not in json.dumps(line) for line in converted)
    assert ours.stop() == 0
    for folder in folders.values():
        assert "messages" not in sound_rows(folder)
    done = export(kafka.data)
    assert done.returncode == 0, done

    with KafkaBroker(tmp_path / "again", kafka.data) as again:
        for name in topics.values():
            assert seen(again.bootstrap, name, COUNT)[:COUNT] == expected[name], name
            assert Confluent().produce(again.bootstrap, name, more) == [COUNT + 1]
        assert committed(again.bootstrap, topics["none"]) == place + 20


def test_kills_during_the_conversion_lose_nothing(
    new_broker: Callable[..., TestBroker], topic: str, tmp_path: Path
) -> None:
    count = 60_000
    with old_kafka(tmp_path, FORMAT_0) as kafka:
        create(kafka.bootstrap, topic, "1100000")
        value = b"v" * 1000
        sent = [Record(b"k%d" % number, value) for number in range(count)]
        Confluent().produce(kafka.bootstrap, topic, sent, idempotent=False)
    folder = kafka.data / f"{topic}-0"
    segments = len(list(folder.glob("*.log")))
    assert segments > 40
    ours = new_broker(kafka.data)
    interrupted = 0
    for _ in range(4):
        ours.log.clear()
        ended: list[Any] = []

        def start(ended: list[Any] = ended) -> None:
            try:
                ended.append(ours.start())
            except BrokerExited as error:
                ended.append(error)

        thread = threading.Thread(target=start)
        thread.start()

        def is_converting(ended: list[Any] = ended) -> bool:
            begun = any('"log_conversion_begins"' in line for line in list(ours.log))
            has_some = 2 in magics(folder)
            return bool(ended) or (begun and has_some)

        wait_until(is_converting, "it does not begin")
        ours.kill()
        thread.join()
        interrupted += magics(folder) == {0, 2}
    assert interrupted > 0
    ours.start()
    found = seen(ours.bootstrap, topic, count)
    assert [one.offset for one in found] == list(range(count))
    assert [one.key for one in found] == [one.key for one in sent]
    assert {one.value for one in found} == {value}
    assert magics(folder) == {2}
    consumer = Consumer({"bootstrap.servers": ours.bootstrap, "group.id": "none"})
    assert end_offset(consumer, TopicPartition(topic, 0)) == count
    consumer.close()
