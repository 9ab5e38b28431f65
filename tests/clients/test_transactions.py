"""Transactions of real clients on one broker: confluent-kafka (librdkafka), aiokafka and
kafka-python."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka import KafkaProducer

from pyrklog.testing import TestBroker
from tests.support.transactions import committed, producer_of, read, read_committed_when
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.timeout(180)

CHECK_INTERVAL = "transaction.abort.timed.out.transaction.cleanup.interval.ms"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """One that looks at time-outs more often."""
    data = tmp_path_factory.mktemp("transactions") / "data"
    with TestBroker(data, options={CHECK_INTERVAL: 200}) as running:
        yield running


@pytest.fixture
def place(broker: TestBroker) -> str:
    return broker.bootstrap


def test_committed_records_are_read_and_aborted_ones_are_not(place: str, topic: str) -> None:
    producer = producer_of(place, topic)
    for number, commits in enumerate([True, False, True, False, True]):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, b"%d.%d" % (number, part), partition=0)
        if commits:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
    wanted = [b"%d.%d" % (number, part) for number in (0, 2, 4) for part in range(3)]
    read_committed_when(place, topic, wanted)
    assert len(read(place, topic, isolation="read_uncommitted")) == 15


def test_an_open_transaction_is_not_read(place: str, topic: str) -> None:
    producer = producer_of(place, topic)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(PATIENCE_S)
    assert read(place, topic) == []
    assert read(place, topic, isolation="read_uncommitted") == [b"open"]
    producer.commit_transaction(PATIENCE_S)
    read_committed_when(place, topic, [b"open"])


def test_a_transaction_may_have_nothing(place: str, topic: str) -> None:
    producer = producer_of(place, topic)
    producer.begin_transaction()
    producer.commit_transaction(PATIENCE_S)
    producer.begin_transaction()
    producer.abort_transaction(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"something", partition=0)
    producer.commit_transaction(PATIENCE_S)
    read_committed_when(place, topic, [b"something"])


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_count_with_their_transaction(place: str, topic: str, commits: bool) -> None:
    producer = producer_of(place, f"{topic}-1")
    group = f"{topic}-group"
    consumer = Consumer(
        {
            "bootstrap.servers": place,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    producer.begin_transaction()
    producer.produce(topic, b"input", partition=0)
    producer.commit_transaction(PATIENCE_S)
    consumer.subscribe([topic])
    message = wait_until(lambda: consumer.poll(1), "no input")
    assert message.value() == b"input"
    producer.begin_transaction()
    producer.produce(topic, b"output", partition=0)
    producer.send_offsets_to_transaction(
        [TopicPartition(topic, 0, 1)], consumer.consumer_group_metadata(), PATIENCE_S
    )
    if commits:
        producer.commit_transaction(PATIENCE_S)
    else:
        producer.abort_transaction(PATIENCE_S)
    consumer.close()
    assert committed(place, group, topic) == (1 if commits else -1001)
    read_committed_when(place, topic, [b"input", b"output"] if commits else [b"input"])


def test_a_zombie_is_fenced(place: str, topic: str) -> None:
    zombie = producer_of(place, topic)
    zombie.begin_transaction()
    zombie.produce(topic, b"of the zombie", partition=0)
    zombie.flush(PATIENCE_S)
    heir = producer_of(place, topic)
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(PATIENCE_S)
    assert caught.value.args[0].fatal()
    heir.begin_transaction()
    heir.produce(topic, b"of the heir", partition=0)
    heir.commit_transaction(PATIENCE_S)
    read_committed_when(place, topic, [b"of the heir"])


def test_a_transaction_that_lasts_too_long_is_aborted(place: str, topic: str) -> None:
    producer = producer_of(place, topic, **{"transaction.timeout.ms": 5000})
    producer.begin_transaction()
    producer.produce(topic, b"late", partition=0)
    producer.flush(PATIENCE_S)
    wait_until(lambda: _end(place, topic) == 2, "no abort")
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)
    assert read(place, topic) == []


def _end(place: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": place, "group.id": "nobody"})
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
    finally:
        consumer.close()
    return int(high)


def test_many_producers_at_once(place: str, topic: str) -> None:
    """Each commits and aborts in turn; nothing of an aborted transaction is read."""
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            producer = producer_of(place, f"{topic}-{number}")
            for turn in range(10):
                producer.begin_transaction()
                word = b"yes" if turn % 2 else b"no"
                producer.produce(topic, b"%d.%d.%s" % (number, turn, word), partition=0)
                producer.flush(PATIENCE_S)
                end: Callable[[float], None] = (
                    producer.commit_transaction if turn % 2 else producer.abort_transaction
                )
                end(PATIENCE_S)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    wanted = sorted(
        b"%d.%d.yes" % (number, turn) for number in range(8) for turn in range(1, 10, 2)
    )
    wait_until(lambda: sorted(read(place, topic)) == wanted, "not all are read")


def test_transactions_of_aiokafka(place: str, topic: str) -> None:
    async def play() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=place, transactional_id=topic)
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"kept", partition=0)
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"dropped", partition=0)
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_and_wait(topic, b"kept too", partition=0)
        finally:
            await producer.stop()

    asyncio.run(play())
    read_committed_when(place, topic, [b"kept", b"kept too"])


def test_transactions_of_kafka_python(place: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=place, transactional_id=topic)
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"kept", partition=0)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, b"dropped", partition=0).get(PATIENCE_S)
        producer.abort_transaction()
    finally:
        producer.close()
    read_committed_when(place, topic, [b"kept"])


def test_a_killed_broker_goes_on_with_its_transactions(tmp_path: Path, topic: str) -> None:
    """An open transaction outlives the broker; what was committed or aborted stays so."""
    with TestBroker(tmp_path / "data") as running:
        place = running.bootstrap
        producer = producer_of(place, "x")
        for word in (b"first", b"second"):
            producer.begin_transaction()
            producer.produce(topic, word, partition=0)
            if word == b"first":
                producer.commit_transaction(PATIENCE_S)
        producer.flush(PATIENCE_S)
        running.restart()
        assert read(place, topic) == [b"first"]
        producer.produce(topic, b"third", partition=0)
        producer.commit_transaction(PATIENCE_S)
        read_committed_when(place, topic, [b"first", b"second", b"third"])
        producer.begin_transaction()
        producer.produce(topic, b"fourth", partition=0)
        producer.flush(PATIENCE_S)
        running.restart()
        heir = producer_of(place, "x")
        heir.begin_transaction()
        heir.produce(topic, b"fifth", partition=0)
        heir.commit_transaction(PATIENCE_S)
        read_committed_when(place, topic, [b"first", b"second", b"third", b"fifth"])
