"""Transactional producers, and what readers of committed records see."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from pyrklog.protocol.transaction_admin import (
    LIST_TRANSACTIONS,
    ListTransactionsRequest,
    TransactionState,
)
from tests.support.groups import ask_committed
from tests.support.raw_client import RawClient
from tests.support.waiting import PATIENCE_S, wait_until

READ_S = PATIENCE_S
"""How long a read waits for records that must come. A broker that was just killed delays it."""


def producer_of(place: str, name: str, **options: object) -> Any:
    """With ``name`` as transactional id, initialized."""
    made = Producer({"bootstrap.servers": place, "transactional.id": name, **options})
    made.init_transactions(PATIENCE_S)
    return made


def read(
    place: str, topic: str, *, partition: int = 0, isolation: str = "read_committed"
) -> list[bytes]:
    """All values of a partition up to the last stable offset, or to the high watermark."""
    consumer = Consumer(
        {
            "bootstrap.servers": place,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + READ_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return found
                continue
            value = message.value()
            assert value is not None
            found.append(value)
    finally:
        consumer.close()
    raise AssertionError(f"no end of {topic}; read {found}")


def read_committed_when(place: str, topic: str, wanted: list[bytes], *, partition: int = 0) -> None:
    """Markers follow the answer of EndTxn: waits for them."""
    found: list[bytes] = []

    def is_read() -> bool:
        nonlocal found
        found = read(place, topic, partition=partition)
        return found == wanted

    wait_until(is_read, lambda: f"read {found}, wanted {wanted}")


def wait_until_ended(bootstrap: str, transactional_id: str) -> None:
    """Until its coordinator has recorded the end. A new coordinator writes the markers once more
    if only they were written."""

    def is_recorded() -> bool:
        told: list[TransactionState] = []
        for place in bootstrap.split(","):
            with RawClient(place) as raw:
                told += raw.ask(LIST_TRANSACTIONS, 1, ListTransactionsRequest()).transaction_states
        states = [one.transaction_state for one in told if one.transactional_id == transactional_id]
        return bool(states) and all(state.startswith("Complete") for state in states)

    wait_until(is_recorded, f"the transaction of {transactional_id} has not ended")


def committed(place: str, group: str, topic: str, partition: int = 0) -> int:
    """A group's offset; -1001 without one. Waits for a marker that it depends on."""
    consumer = Consumer({"bootstrap.servers": place, "group.id": group})
    try:
        [found] = ask_committed(consumer, [TopicPartition(topic, partition)])
    finally:
        consumer.close()
    return int(found.offset)


def produce_by_turns(bootstrap: str, topic: str, count: int) -> None:
    """A transaction for each of ``count`` numbers; each third, from the second on, is aborted."""
    producer = producer_of(bootstrap, topic)
    for number in range(count):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush()
        if number % 3 == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    # Markers follow the answer: a reader of committed records would miss the last one.
    wait_until_ended(bootstrap, topic)
