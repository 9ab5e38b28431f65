"""The sink's tasks and driver without Spark, on real brokers: the driver dies between its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import pyrklog
from pyrklog.producing import OpenTransaction, ProduceError, ProducerSettings, Transactions
from pyrklog.spark.connection import Connection
from pyrklog.spark.decisions import Decision, KafkaDecisions
from pyrklog.spark.sink_commit import Committer, LostTransactionError, NotDecidedError
from pyrklog.spark.sink_slots import Slots, ids_prefix
from pyrklog.spark.sink_task import Attempt, Place, write_in_transaction
from pyrklog.testing import TestBroker
from tests.support.groups import create_topic
from tests.support.kafka_broker import KafkaBroker
from tests.support.sinking import values
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(120)]

TASKS = 3
ROWS = 40
CLEANUP = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


@pytest.fixture(scope="module", params=["pyrklog", "kafka"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("broker")
    if request.param == "kafka":
        with KafkaBroker(folder / "kafka", options=CLEANUP) as kafka:
            yield kafka.bootstrap
    else:
        with TestBroker(folder / "data", options=CLEANUP) as ours:
            yield ours.bootstrap


class Died(Exception):
    """The driver's process is gone."""


class DyingEnds:
    """Ends so many transactions, and dies."""

    def __init__(self, inner: Transactions, ends: int) -> None:
        self._inner, self._left = inner, ends

    def commit(self, transactions: Sequence[OpenTransaction]) -> list[str | None]:
        self._inner.commit(transactions[: self._left])
        raise Died

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Query:
    """Of one sink: its tasks, and a driver for each call."""

    def __init__(self, bootstrap: str, topic: str, timeout_ms: int = 60_000) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.settings = ProducerSettings(
            bootstrap, ["value"], topic=topic, transaction_timeout_ms=timeout_ms
        )
        self.slots = Slots("p")
        create_topic(bootstrap, topic, 3)

    def attempts(self, number: int) -> list[Attempt]:
        place = Place(self.topic, number, number - 1)
        return [
            write_in_transaction([self.rows(number, task)], self.settings, place, self.slots)
            for task in range(TASKS)
        ]

    def rows(self, number: int, task: int) -> pa.RecordBatch:
        return pa.record_batch(
            {"value": [b"%d:%d:%d" % (number, task, row) for row in range(ROWS)]}
        )

    def committer(self, ends: int | None = None) -> Committer:
        inner = Transactions(self.settings)
        return Committer(
            self.topic,
            self.log(),
            inner if ends is None else DyingEnds(inner, ends),
            is_stream=True,
            fail_on_data_loss=True,
            timeout_s=self.settings.transaction_timeout_ms / 1000,
        )

    def log(self) -> KafkaDecisions:
        return KafkaDecisions(Connection(self.bootstrap), self.settings, self.topic)

    def visible(self) -> Counter[bytes]:
        """Once each marker is there: Kafka answers EndTxn before it writes them."""
        wait_until(lambda: self.ends("read_committed") == self.ends(), "markers are missing")
        return values(self.bootstrap, self.topic)

    def ends(self, isolation: str = "read_uncommitted") -> list[int]:
        reading = pyrklog.scan(self.topic, bootstrap_servers=self.bootstrap, isolation=isolation)
        return [one.end for one in reading.progress()]

    def open(self) -> list[str]:
        return Transactions(self.settings).open_with_prefix(ids_prefix(self.topic))


def expected(numbers: int) -> Counter[bytes]:
    return Counter(
        b"%d:%d:%d" % (number, task, row)
        for number in range(numbers)
        for task in range(TASKS)
        for row in range(ROWS)
    )


@pytest.mark.parametrize("ends", range(TASKS + 1))
def test_the_driver_dies_while_it_ends_transactions(cluster: str, topic: str, ends: int) -> None:
    """After so many. The next run writes the number again, and the former rows are what is seen."""
    query = Query(cluster, topic)
    query.committer().commit(0, query.attempts(0))
    first = query.attempts(1)
    with pytest.raises(Died):
        query.committer(ends).commit(1, first)
    last = query.log().last()
    assert last is not None
    assert (last.number, last.is_done) == (1, False)
    query.committer().abort(1, first)
    query.slots = Slots("q")
    query.committer().commit(1, query.attempts(1))
    query.committer().commit(2, query.attempts(2))
    assert query.visible() == expected(3)
    assert query.log().last() == Decision(2, is_done=True)
    assert query.open() == []


def test_the_driver_dies_before_its_decision(cluster: str, topic: str) -> None:
    query = Query(cluster, topic)
    query.attempts(0)
    query.slots = Slots("q")
    query.committer().commit(0, query.attempts(0))
    assert query.visible() == expected(1)
    assert query.open() == []


def test_the_job_fails(cluster: str, topic: str) -> None:
    query = Query(cluster, topic)
    query.committer().abort(0, query.attempts(0)[:1])
    assert query.open() == []
    assert not query.visible()


def test_time_runs_out_before_the_decision(cluster: str, topic: str) -> None:
    query = Query(cluster, topic, timeout_ms=5000)
    attempts = query.attempts(0)
    wait_until(lambda: not query.open(), "transactions stay open")
    with pytest.raises(NotDecidedError, match="nothing of it is written"):
        query.committer().commit(0, attempts)
    query.committer().abort(0, attempts)
    query.committer().commit(0, query.attempts(0))
    assert query.visible() == expected(1)


def test_time_runs_out_after_the_decision(cluster: str, topic: str) -> None:
    # Enough for all tasks and the decision, on a busy machine too.
    query = Query(cluster, topic, timeout_ms=10_000)
    with pytest.raises(Died):
        query.committer(1).commit(0, query.attempts(0))
    wait_until(lambda: not query.open(), "transactions stay open")
    for _ in range(2):
        with pytest.raises(LostTransactionError, match=rf"batch 0 of stream {topic} are lost"):
            query.committer().commit(0, [Attempt(topic, 0, is_skipped=True)])
    assert query.visible().total() == ROWS


def test_an_attempt_that_runs_on_is_fenced(cluster: str, topic: str) -> None:
    """It began before the number was written by another attempt, and writes more afterwards."""
    query = Query(cluster, topic)

    def rows() -> Iterator[pa.RecordBatch]:
        yield query.rows(0, 0)
        query.committer().commit(0, query.attempts(0))
        yield query.rows(9, 9)

    settings = query.settings._replace(memory_bytes=300, batch_bytes=200)
    with pytest.raises(ProduceError):
        write_in_transaction(rows(), settings, Place(topic, 0, -1), Slots("zombie"))
    assert query.visible() == expected(1)
    assert query.open() == []
