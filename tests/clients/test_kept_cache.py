"""A clean restart keeps the block cache: what stock clients and Apache Kafka see of it."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from benches.process import usage
from pyrklog.cli.app import app
from pyrklog.testing import TestBroker
from pyrklog.testing.broker import BrokerExited
from tests.support.cluster_clients import end_offset
from tests.support.kafka_broker import KafkaBroker

Make = Callable[..., TestBroker]
PATIENCE_S = 60
COUNT = 4_000
VALUE_BYTES = 8_192
FEW_BYTES = 64 * VALUE_BYTES
"""What is read of programs and indexes when memory is short, beside 32 MB of records."""


@pytest.fixture
def cache_dir() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="pyrklog-test-", dir="/dev/shm"))
    yield place
    shutil.rmtree(place)


def options(cache_dir: Path) -> dict[str, object]:
    return {
        "pyrklog.cache.dir": str(cache_dir),
        "pyrklog.cache.keep": True,
        "pyrklog.cache.max.bytes": 256 << 20,
    }


def value(number: int) -> bytes:
    return (b"%d " % number).ljust(VALUE_BYTES, os.urandom(1))


def produce(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(first, first + count):
        producer.produce(topic, value(number), partition=0)
        producer.poll(0)
        if number % 1_000 == 999:
            assert producer.flush(PATIENCE_S) == 0
    assert producer.flush(PATIENCE_S) == 0


def consume(bootstrap: str, topic: str, first: int = 0) -> list[int]:
    """The number of each record up to the end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    end = end_offset(consumer, TopicPartition(topic, 0))
    consumer.assign([TopicPartition(topic, 0, first)])
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while first + len(found) < end and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            content = message.value()
            assert content is not None
            found.append(int(content.split()[0]))
    consumer.close()
    return found


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)


def forget_pages(folder: Path) -> None:
    for path in folder.glob("*.log"):
        with path.open("rb") as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def arena(cache_dir: Path, *arguments: str) -> str:
    done = CliRunner().invoke(app, ["arena", *arguments, "--dir", str(cache_dir)])
    assert done.exit_code == 0, done.output
    return done.stdout


def disk_bytes_of_reading(broker: TestBroker, topic: str) -> int:
    """Of a broker that was just started, with its files outside the page cache."""
    assert consume(broker.bootstrap, topic, COUNT - 1)[0] == COUNT - 1
    forget_pages(broker.data / "logs" / f"{topic}-0")
    before = usage(broker.pid).disk_read_bytes
    assert consume(broker.bootstrap, topic) == list(range(COUNT))
    return usage(broker.pid).disk_read_bytes - before


def test_a_consumer_reads_nothing_from_the_disk_after_a_restart(
    new_broker: Make, cache_dir: Path, topic: str
) -> None:
    broker = new_broker(options=options(cache_dir)).start()
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, 0, COUNT)
    assert broker.stop() == 0
    assert any("stay in memory for the next start" in line for line in broker.log)
    assert " kept " in arena(cache_dir, "list")
    broker.start()
    assert " in use " in arena(cache_dir, "list")
    assert disk_bytes_of_reading(broker, topic) < FEW_BYTES
    assert broker.stop() == 0

    dropping = new_broker(broker.data, options=options(cache_dir), arguments=["--drop-cache"])
    dropping.start()
    assert disk_bytes_of_reading(dropping, topic) > COUNT * VALUE_BYTES // 2
    assert dropping.stop() == 0
    elsewhere = broker.data / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "meta.properties").touch()
    assert arena(cache_dir, "drop", str(elsewhere)).startswith("0 arenas")
    assert arena(cache_dir, "drop", str(broker.data / "logs")).startswith("1 arena ")
    assert list(cache_dir.iterdir()) == []
    broker.start()
    assert consume(broker.bootstrap, topic) == list(range(COUNT))


def test_a_test_broker_keeps_nothing(new_broker: Make, cache_dir: Path, topic: str) -> None:
    broker = new_broker(options={"pyrklog.cache.dir": str(cache_dir)}).start()
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, 0, 10)
    assert broker.stop() == 0
    assert list(cache_dir.iterdir()) == []


@pytest.mark.jvm
@pytest.mark.timeout(240)
def test_records_that_kafka_wrote_in_between_are_read(
    new_broker: Make, cache_dir: Path, topic: str, tmp_path: Path
) -> None:
    """Kafka deletes the topic and fills another of its name to the same length."""
    with KafkaBroker(tmp_path / "kafka") as kafka:
        create(kafka.bootstrap, topic)
        create(kafka.bootstrap, "other")
    ours = new_broker(kafka.data, options=options(cache_dir)).start()
    produce(ours.bootstrap, topic, 0, 100)
    produce(ours.bootstrap, "other", 0, 100)
    assert ours.stop() == 0
    assert " kept " in arena(cache_dir, "list")
    exported = CliRunner().invoke(app, ["log", "export-kraft", "--data", str(kafka.data)])
    assert exported.exit_code == 0, exported.output

    with KafkaBroker(tmp_path / "again", kafka.data) as again:
        assert consume(again.bootstrap, topic) == list(range(100))
        produce(again.bootstrap, topic, 1_000, 50)
        admin = AdminClient({"bootstrap.servers": again.bootstrap})
        cut = admin.delete_records([TopicPartition("other", 0, 40)])
        for done in cut.values():
            done.result(PATIENCE_S)
    ours.start()
    assert any("another broker has used the directory since" in line for line in ours.log)
    assert consume(ours.bootstrap, topic) == [*range(100), *range(1_000, 1_050)]
    assert consume(ours.bootstrap, "other", 40) == list(range(40, 100))
    assert ours.stop() == 0


def test_a_failed_start_leaves_nothing_of_its_own(
    new_broker: Make, cache_dir: Path, topic: str, tmp_path: Path
) -> None:
    broker = new_broker(options=options(cache_dir)).start()
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, 0, 100)
    of_broker = set(cache_dir.iterdir())
    place = tmp_path / "new" / "place"
    late = new_broker(place, options=options(cache_dir), port=broker.port)
    with pytest.raises(BrokerExited, match="exit code 75"):
        late.start()
    assert not place.parent.exists()
    assert set(cache_dir.iterdir()) == of_broker

    # A refused start keeps the arena that its last shutdown left.
    older = new_broker(tmp_path / "older", options=options(cache_dir)).start()
    create(older.bootstrap, topic)
    produce(older.bootstrap, topic, 0, 100)
    assert older.stop() == 0
    kept = set(cache_dir.iterdir())
    assert len(kept) == 2
    again = new_broker(tmp_path / "older", options=options(cache_dir), port=broker.port)
    with pytest.raises(BrokerExited, match="exit code 75"):
        again.start()
    assert set(cache_dir.iterdir()) == kept
    older.start()
    assert any("reattached" in line for line in older.log)
    assert consume(older.bootstrap, topic) == list(range(100))
