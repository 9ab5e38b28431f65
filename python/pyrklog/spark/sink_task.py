"""One attempt of a task: its rows become records."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyrklog.producing import (
    OpenTransaction,
    ProduceError,
    Producer,
    ProducerSettings,
    Transactions,
)
from pyrklog.spark.sink_slots import Slot, Slots

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger("pyrklog.spark")


@dataclass(frozen=True)
class Place:
    """Which number of which sink is written. All numbers up to ``finished`` are over."""

    sink: str
    number: int
    finished: int


@dataclass(frozen=True)
class Attempt:
    """What an attempt tells the driver."""

    sink: str
    number: int
    records: int = 0
    transaction: OpenTransaction | None = None
    """Left open; None without rows."""
    is_skipped: bool = False
    """The number is decided: nothing was written."""
    opened_s: float | None = field(default=None, compare=False)
    """By the clock of the task's machine, in seconds since 1970: the transaction began then, or
    later. None without one."""


def write_at_least_once(
    batches: Iterable[pyarrow.RecordBatch],
    settings: ProducerSettings,
    open_producer: Callable[[ProducerSettings], Producer] = Producer,
) -> int:
    """Writes all rows, and waits until they are acknowledged. Their number. Raises the exceptions
    of ``pyrklog.producing``."""
    producer: Producer | None = None
    for batch in batches:
        if batch.num_rows:
            if producer is None:
                producer = open_producer(settings)
            producer.send(batch)
    if producer is None:
        return 0
    producer.flush()
    return _records(producer)


def write_in_transaction(
    batches: Iterable[pyarrow.RecordBatch],
    settings: ProducerSettings,
    place: Place,
    slots: Slots,
    open_producer: Callable[[ProducerSettings], Producer] = Producer,
    open_transactions: Callable[[ProducerSettings], Transactions] = Transactions,
) -> Attempt:
    """Writes all rows in a transaction, which it leaves open. If that fails it is aborted, as far
    as that is possible, and the exception goes on."""
    slot: Slot | None = None
    producer: Producer | None = None
    opened_s: float | None = None
    is_left = False
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            if slot is None or producer is None:
                opened_s = time.time()
                slot = slots.take(place.sink, place.number, place.finished)
                producer = open_producer(settings._replace(transactional_id=slot.transactional_id))
            producer.send(batch)
        if slot is None or producer is None:
            return Attempt(place.sink, place.number)
        producer.flush()
        transaction = _left_open(slot, producer)
        is_left = True
        return Attempt(place.sink, place.number, _records(producer), transaction, opened_s=opened_s)
    finally:
        if slot is not None:
            is_open = is_left or not _is_aborted(slot, producer, settings, open_transactions)
            slots.give_back(slot, is_open=is_open)


def _is_aborted(
    slot: Slot,
    producer: Producer | None,
    settings: ProducerSettings,
    open_transactions: Callable[[ProducerSettings], Transactions],
) -> bool:
    """Ends the attempt's epoch with its transaction. Batches of it may still be on their way: one
    that arrives behind a marker of its own epoch would begin a transaction that no coordinator
    knows of, on brokers before Kafka 3.6."""
    if producer is None:
        # No producer id: an older transaction of the slot is none that may be decided.
        return True
    try:
        open_transactions(settings).fence(slot.transactional_id)
    except ProduceError as error:
        logger.warning("transaction %s is left open: %s", slot.transactional_id, error)
        return False
    return True


def _left_open(slot: Slot, producer: Producer) -> OpenTransaction:
    by_topic: dict[str, list[int]] = {}
    for one in producer.written:
        by_topic.setdefault(one.topic, []).append(one.partition)
    partitions = tuple((topic, tuple(numbers)) for topic, numbers in by_topic.items())
    return OpenTransaction(slot.transactional_id, *producer.producer_id, partitions)


def _records(producer: Producer) -> int:
    return sum(one.records for one in producer.written)
