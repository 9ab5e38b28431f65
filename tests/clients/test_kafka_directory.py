"""We serve a partition folder of Apache Kafka, with transactions, as Kafka serves it."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.testing import TestBroker
from tests.support.clients import CODECS, Confluent, Record
from tests.support.cluster_clients import end_offset
from tests.support.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(240)]

PATIENCE_S = 60


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, 1, 1, config={"segment.bytes": "20000"})
    admin.create_topics([new])[topic].result(PATIENCE_S)


def transaction(bootstrap: str, topic: str, name: str, codec: str, commit: bool | None) -> Any:
    """Writes 20 records; commits, aborts or (None) leaves the transaction open."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "compression.type": codec,
            "batch.num.messages": 7,
            "transaction.timeout.ms": 600_000,
        }
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for number in range(20):
        producer.produce(topic, f"{name} {number} ".encode() * 10, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    if commit is not None:
        end = producer.commit_transaction if commit else producer.abort_transaction
        end(PATIENCE_S)
    return producer


def seen(bootstrap: str, topic: str, isolation: str) -> tuple[int, list[tuple[int, bytes]]]:
    """The end offset and every (offset, value) that a consumer of this isolation gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    place = TopicPartition(topic, 0, 0)
    end = end_offset(consumer, place)
    consumer.assign([place])
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is not None:  # the end of the partition
            break
        found.append((message.offset(), message.value()))
    consumer.close()
    return end, found


def write_everything(bootstrap: str, topic: str) -> Any:
    """Plain and idempotent batches of every codec among committed, aborted, open transactions."""
    create(bootstrap, topic)
    for codec in CODECS:
        records = [Record(b"k", b"%d" % number * 30) for number in range(25)]
        Confluent().produce(bootstrap, topic, records, codec=codec, idempotent=codec != "gzip")
        transaction(bootstrap, topic, f"committed-{codec}", codec, commit=True)
        transaction(bootstrap, topic, f"aborted-{codec}", codec, commit=False)
    open_one = transaction(bootstrap, topic, "open", "lz4", commit=None)
    Confluent().produce(bootstrap, topic, [Record(None, b"behind the open transaction")])
    return open_one


def test_a_folder_of_kafkas_is_served_alike(
    new_broker: Callable[..., TestBroker], topic: str, tmp_path: Path
) -> None:
    with KafkaBroker(tmp_path / "kafka") as kafka:
        open_one = write_everything(kafka.bootstrap, topic)
        expected = {
            isolation: seen(kafka.bootstrap, topic, isolation)
            for isolation in ("read_uncommitted", "read_committed")
        }
    del open_one  # its transaction stayed open until the broker was gone
    committed, uncommitted = expected["read_committed"], expected["read_uncommitted"]
    assert len(uncommitted[1]) == 5 * (25 + 20 + 20) + 20 + 1
    assert len(committed[1]) == 5 * (25 + 20)
    assert committed[0] < uncommitted[0]

    broker = new_broker().start()
    create(broker.bootstrap, topic)
    assert broker.stop() == 0
    ours = broker.data / "logs" / f"{topic}-0"
    for path in ours.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    theirs = [path for path in (kafka.data / f"{topic}-0").iterdir() if path.is_file()]
    assert {".log", ".index", ".txnindex", ".snapshot"} <= {path.suffix for path in theirs}
    for path in theirs:
        if path.name != "partition.metadata":
            shutil.copy(path, ours)

    broker.start()
    for isolation, what in expected.items():
        assert seen(broker.bootstrap, topic, isolation) == what, isolation
    # Not idempotent: our producer ids start at 0 like Kafka's, which the folder knows.
    more = [Record(None, b"ours")]
    offsets = Confluent().produce(broker.bootstrap, topic, more, idempotent=False)
    assert offsets == [uncommitted[0]]
    broker.restart()  # and now by recovery: kill -9 left no clean mark
    assert seen(broker.bootstrap, topic, "read_committed") == committed
