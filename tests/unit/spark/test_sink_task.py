"""An attempt of a task, with a producer in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from pyrklog.producing import (
    ClusterUnavailableError,
    OpenTransaction,
    ProducerSettings,
    TransactionFencedError,
    Written,
)
from pyrklog.spark.sink_slots import Slots
from pyrklog.spark.sink_task import Attempt, Place, write_at_least_once, write_in_transaction

SETTINGS = ProducerSettings("127.0.0.1:1", ["value"], topic="t")
PLACE = Place("sink", 5, 4)
EPOCH = 3


class FakeProducer:
    """Fails at its row number ``fails_at``."""

    made: ClassVar[list[FakeProducer]] = []
    fails_at = 1 << 30

    def __init__(self, settings: ProducerSettings) -> None:
        self.settings = settings
        self.rows = 0
        self.is_flushed = False
        FakeProducer.made.append(self)

    @property
    def producer_id(self) -> tuple[int, int]:
        return 7, EPOCH

    def send(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        if self.rows > FakeProducer.fails_at:
            raise TransactionFencedError("fenced")

    def flush(self) -> None:
        self.is_flushed = True

    @property
    def written(self) -> list[Written]:
        return [Written("t", 0, self.rows - 1), Written("t", 2, 1)]


class FakeTransactions:
    """A coordinator. ``markers`` are the epochs of those that it has written, by transactional
    id: EndTxn has the epoch of the transaction, and InitProducerId of an open one the next."""

    markers: ClassVar[dict[str, int]] = {}
    is_away = False

    def __init__(self, settings: ProducerSettings) -> None:
        pass

    def abort(self, transactions: list[OpenTransaction]) -> None:
        for one in transactions:
            self._mark(one.transactional_id, one.epoch)

    def fence(self, transactional_id: str) -> tuple[int, int]:
        self._mark(transactional_id, EPOCH + 1)
        return 7, EPOCH + 2

    def _mark(self, transactional_id: str, epoch: int) -> None:
        if FakeTransactions.is_away:
            raise ClusterUnavailableError("away")
        FakeTransactions.markers[transactional_id] = epoch


@pytest.fixture(autouse=True)
def _fresh() -> None:
    FakeProducer.made, FakeProducer.fails_at = [], 1 << 30
    FakeTransactions.markers, FakeTransactions.is_away = {}, False


def batches(*sizes: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"value": [b"v"] * size}) for size in sizes]


def attempt(rows: Any, slots: Slots) -> Attempt:
    producer: Any = FakeProducer
    transactions: Any = FakeTransactions
    return write_in_transaction(rows, SETTINGS, PLACE, slots, producer, transactions)


def test_a_transaction_is_left_open() -> None:
    slots = Slots("p")
    done = attempt(batches(0, 3, 4), slots)
    transaction = OpenTransaction("pyrklog-spark/sink/p/0", 7, EPOCH, (("t", (0, 2)),))
    assert done == Attempt("sink", 5, 7, transaction)
    (producer,) = FakeProducer.made
    assert producer.is_flushed
    assert producer.settings.transactional_id == "pyrklog-spark/sink/p/0"
    assert FakeTransactions.markers == {}
    assert slots.take("sink", 5, 4).transactional_id.endswith("/1"), "the first may be decided"


@pytest.mark.parametrize("rows", [[], batches(0, 0)])
def test_without_rows_there_is_no_transaction(rows: list[pa.RecordBatch]) -> None:
    assert attempt(rows, Slots("p")) == Attempt("sink", 5)
    assert FakeProducer.made == []


def test_a_failure_aborts() -> None:
    slots = Slots("p")
    FakeProducer.fails_at = 5
    with pytest.raises(TransactionFencedError):
        attempt(batches(4, 4), slots)
    assert FakeTransactions.markers.keys() == {"pyrklog-spark/sink/p/0"}
    assert slots.take("sink", 5, 4).transactional_id.endswith("/0")


def test_a_failure_of_the_query_aborts() -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield from batches(4)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        attempt(rows(), Slots("p"))
    assert len(FakeTransactions.markers) == 1


def test_what_arrives_behind_an_abort_is_refused() -> None:
    """A batch on its way has the epoch of the attempt. Before Kafka 3.6 a broker looks at nothing
    else: it would be the first of a transaction that nobody ends, or that the next attempt with
    this id commits."""
    FakeProducer.fails_at = 5
    with pytest.raises(TransactionFencedError):
        attempt(batches(4, 4), Slots("p"))
    (marker,) = FakeTransactions.markers.values()
    assert marker > EPOCH


def test_a_slot_that_could_not_be_aborted_is_not_used_again() -> None:
    slots = Slots("p")
    FakeProducer.fails_at, FakeTransactions.is_away = 5, True
    with pytest.raises(TransactionFencedError):
        attempt(batches(6), slots)
    assert slots.take("sink", 5, 4).transactional_id.endswith("/1")


def test_at_least_once_waits_for_acknowledgements() -> None:
    producer: Any = FakeProducer
    assert write_at_least_once(batches(2, 0, 3), SETTINGS, producer) == 5
    (made,) = FakeProducer.made
    assert made.is_flushed
    assert made.settings.transactional_id is None
    assert write_at_least_once(batches(0), SETTINGS, producer) == 0
