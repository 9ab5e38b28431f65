"""Kafka -> pyrklog -> Kafka -> pyrklog on one directory, with producers and a group at each stage.

Nothing is lost or seen twice: records, options, topic ids, committed offsets, producer ids.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
)

from pyrklog.testing import TestBroker
from pyrklog.testing.broker import BrokerExited
from tests.clients.test_dump_log import dump
from tests.support import kafka_tools
from tests.support.clients import Confluent, Record
from tests.support.kafka_broker import KafkaBroker
from tests.support.transactions import producer_of, read, read_committed_when
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

GROUP = "travellers"
RETENTION = "7777777"
PER_STAGE = 10


def produce(bootstrap: str, topic: str, stage: str) -> None:
    """Idempotent, so that each stage takes a producer id of its broker."""
    records = [Record(b"k", f"{stage} {number}".encode()) for number in range(PER_STAGE)]
    Confluent().produce(bootstrap, topic, records)


def commit_in_transaction(bootstrap: str, topic: str, value: bytes) -> None:
    producer = producer_of(bootstrap, "traveller")
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    producer.commit_transaction(PATIENCE_S)


def read_on(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """The group's next records; commits the offset after them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            found.append(value)
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def committed(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    found: list[int] = []

    def is_told() -> bool:
        try:
            [place] = consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
        except KafkaException:  # a coordinator that is still loading, in either broker
            return False
        found.append(place.offset)
        return True

    wait_until(is_told, "no coordinator")
    consumer.close()
    return found[0]


def facts(bootstrap: str, topic: str) -> tuple[str, str | None]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource("topic", topic)
    options = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    from confluent_kafka import TopicCollection

    described = admin.describe_topics(TopicCollection([topic]))[topic].result(PATIENCE_S)
    return str(described.topic_id), options["retention.ms"].value


def set_for_all(bootstrap: str, option: str, value: str) -> None:
    """Sets an option of all brokers at run time."""
    for_all = "configs --alter --entity-type brokers --entity-default"
    [done] = kafka_tools.run(bootstrap, [f"{for_all} --add-config {option}={value}"])
    assert done.status == 0, done.text


def retention_bytes(bootstrap: str, topic: str) -> str | None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource("topic", topic)
    options = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    value: str | None = options["retention.bytes"].value
    return value


def producer_ids(folder: Path) -> list[int]:
    """Of each batch of ``produce``, by Kafka's own tool, which must find no error."""
    output = dump(folder, ".log", options=("--deep-iteration",))
    batches = [line for line in output.splitlines() if line.startswith("baseOffset:")]
    assert all("isvalid: true" in line for line in batches), output
    words = [line.split() for line in batches]
    return [int(line[line.index("producerId:") + 1]) for line in words]


def export(data: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pyrklog", "log", "export-kraft", "--data", str(data)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_there_and_back_and_there_again(
    new_broker: Callable[..., TestBroker], topic: str, tmp_path: Path
) -> None:
    with KafkaBroker(tmp_path / "kafka") as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        new = NewTopic(topic, 1, 1, config={"retention.ms": RETENTION})
        admin.create_topics([new])[topic].result(PATIENCE_S)
        set_for_all(kafka.bootstrap, "log.retention.bytes", "7654321")
        produce(kafka.bootstrap, topic, "kafka")
        commit_in_transaction(kafka.bootstrap, topic, b"committed by kafka")
        assert read_on(kafka.bootstrap, topic, 4) == [b"kafka %d" % n for n in range(4)]
        known = facts(kafka.bootstrap, topic)
        assert known[1] == RETENTION
        ours = new_broker(kafka.data)
        with pytest.raises(BrokerExited, match="exit code 75"):  # Kafka holds .lock
            ours.start()
    folders = {path.name for path in kafka.data.iterdir() if path.is_dir()}

    ours.start()
    assert folders == {path.name for path in kafka.data.iterdir() if path.is_dir()}
    assert facts(ours.bootstrap, topic) == known
    assert retention_bytes(ours.bootstrap, topic) == "7654321"
    assert committed(ours.bootstrap, topic) == 4
    produce(ours.bootstrap, topic, "ours")
    assert len(read_on(ours.bootstrap, topic, 8)) == 8
    commit_in_transaction(ours.bootstrap, topic, b"committed by us")
    admin = AdminClient({"bootstrap.servers": ours.bootstrap})
    admin.create_topics([NewTopic("second", 2, 1)])["second"].result(PATIENCE_S)
    refused = export(kafka.data)
    assert refused.returncode != 0
    assert "in use" in refused.stderr
    with pytest.raises(AssertionError, match=r"(?s)lock"):  # ours holds .lock
        KafkaBroker(tmp_path / "intruder", kafka.data).__enter__()
    assert ours.stop() == 0
    done = export(kafka.data)
    assert done.returncode == 0, done

    with KafkaBroker(tmp_path / "again", kafka.data) as again:
        assert facts(again.bootstrap, topic) == known
        assert retention_bytes(again.bootstrap, topic) == "7654321"
        assert committed(again.bootstrap, topic) == 4 + 8 + 1  # and the transaction's marker
        produce(again.bootstrap, topic, "again")
        commit_in_transaction(again.bootstrap, topic, b"committed again")
        assert read_on(again.bootstrap, topic, 5) == [b"ours %d" % n for n in range(1, 6)]
        admin = AdminClient({"bootstrap.servers": again.bootstrap})
        topics = admin.list_topics(timeout=PATIENCE_S)
        assert len(topics.topics["second"].partitions) == 2

    ours.start()
    assert facts(ours.bootstrap, topic) == known
    produce(ours.bootstrap, topic, "last")
    rest = read_on(ours.bootstrap, topic, 4 + 1 + PER_STAGE + 1 + PER_STAGE)
    assert rest[:4] == [b"ours %d" % n for n in range(6, 10)]
    assert rest[-1] == b"last 9"
    assert {b"committed by us", b"committed again"} <= set(rest)
    assert ours.stop() == 0
    ids = producer_ids(kafka.data / f"{topic}-0")
    of_stages = list(dict.fromkeys(ids))
    assert len(of_stages) == 5, ids  # four producers and the transactional id, which kept its own


def test_open_transactions_there_and_back(
    new_broker: Callable[..., TestBroker], topic: str, tmp_path: Path
) -> None:
    """Each broker aborts what the other one left open, for the next producer of the id."""
    with KafkaBroker(tmp_path / "kafka") as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)
        leave_open(kafka.bootstrap, topic, b"left open by kafka")
        Confluent().produce(kafka.bootstrap, topic, [Record(None, b"behind")])
        data = kafka.data
    ours = new_broker(data)
    ours.start()
    assert read(ours.bootstrap, topic) == []
    leave_open(ours.bootstrap, topic, b"left open by us")
    assert read(ours.bootstrap, topic) == [b"behind"]
    assert ours.stop() == 0
    assert export(data).returncode == 0
    with KafkaBroker(tmp_path / "again", data) as again:
        assert read(again.bootstrap, topic) == [b"behind"]
        commit_in_transaction(again.bootstrap, topic, b"done")
        read_committed_when(again.bootstrap, topic, [b"behind", b"done"])
        uncommitted = read(again.bootstrap, topic, isolation="read_uncommitted")
    assert uncommitted == [b"left open by kafka", b"behind", b"left open by us", b"done"]


def leave_open(bootstrap: str, topic: str, value: bytes) -> None:
    """Of the id whose next transactions are committed. The other broker's start may take long."""
    producer = producer_of(bootstrap, "traveller", **{"transaction.timeout.ms": 600_000})
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    assert producer.flush(PATIENCE_S) == 0
