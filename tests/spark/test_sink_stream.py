"""``format("pyrklog")`` in streaming writes: restarts, repeated batches, speculation, failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException

from pyrklog.producing import ProducerSettings, Transactions
from pyrklog.spark.sink_slots import ids_prefix
from pyrklog.testing import TestBroker
from tests.support.groups import create_topic, fill
from tests.support.sinking import sink, values, wait_for_values
from tests.support.spark import our_source
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(240)]

STREAM_S = 90
PARTITIONS = 2


class Copy:
    """A query from a topic to ``TOPIC-out``, run to its end as often as the test wants."""

    def __init__(self, spark: Any, bootstrap: str, topic: str, folder: Path) -> None:
        self.spark, self.bootstrap, self.topic = spark, bootstrap, topic
        self.checkpoint = folder / "checkpoint"
        self.out = f"{topic}-out"
        create_topic(bootstrap, topic, PARTITIONS)
        create_topic(bootstrap, self.out, 3)
        self.query_id = ""

    def run(self, value: str = "value", **options: str) -> Any:
        source = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
        frame = our_source(self.spark.readStream, self.bootstrap, self.topic, **source)
        rows = frame.selectExpr("key", f"{value} AS value")
        query = (
            sink(rows, self.bootstrap, self.out, **options)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        self.query_id = str(query.id)
        assert query.awaitTermination(STREAM_S)
        return query

    def forget_last_commit(self) -> int:
        """As if the driver had died before Spark noted that its last batch was committed."""
        commits = [int(path.name) for path in (self.checkpoint / "commits").glob("[0-9]*")]
        last = max(commits)
        (self.checkpoint / "commits" / str(last)).unlink()
        (self.checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
        return last

    def open_transactions(self) -> list[str]:
        transactions = Transactions(ProducerSettings(self.bootstrap, []))
        return transactions.open_with_prefix(ids_prefix(self.query_id))


@pytest.fixture
def copy(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> Copy:
    return Copy(spark, bootstrap, topic, tmp_path)


def numbered(start: int, end: int) -> Counter[bytes]:
    return Counter(
        b"%d:%d" % (partition, number)
        for partition in range(PARTITIONS)
        for number in range(start, end)
    )


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_runs_go_on_where_the_last_one_ended(copy: Copy, delivery: str) -> None:
    fill(copy.bootstrap, copy.topic, PARTITIONS, 100)
    query = copy.run(delivery=delivery)
    assert len(query.recentProgress) >= 4
    fill(copy.bootstrap, copy.topic, PARTITIONS, 50, first=100)
    copy.run(delivery=delivery)
    copy.run(delivery=delivery)
    wait_for_values(copy.bootstrap, copy.out, numbered(0, 150))
    assert copy.open_transactions() == []


def test_a_batch_that_was_decided_is_not_written_again(copy: Copy) -> None:
    """Not even for readers of uncommitted records."""
    fill(copy.bootstrap, copy.topic, PARTITIONS, 50)
    copy.run(delivery="exactly_once")
    for _ in range(2):
        copy.forget_last_commit()
        copy.run(delivery="exactly_once")
    assert values(copy.bootstrap, copy.out, "read_uncommitted") == numbered(0, 50)
    fill(copy.bootstrap, copy.topic, PARTITIONS, 5, first=50)
    copy.run(delivery="exactly_once")
    wait_for_values(copy.bootstrap, copy.out, numbered(0, 55))


def test_the_same_with_at_least_once_is_written_again(copy: Copy) -> None:
    """What the test above would show without decisions."""
    fill(copy.bootstrap, copy.topic, PARTITIONS, 20)
    copy.run(delivery="at_least_once")
    copy.forget_last_commit()
    copy.run(delivery="at_least_once")
    assert values(copy.bootstrap, copy.out) == numbered(0, 20) + numbered(0, 20)


def test_a_task_that_fails_leaves_nothing(copy: Copy) -> None:
    """Rows of the batch that were sent before the failure are aborted, in this task and others.

    Spark reports the failure while the other task may still be writing. That task aborts its
    transaction itself, and the coordinator does so if Spark kills the worker first.
    """
    fill(copy.bootstrap, copy.topic, PARTITIONS, 25)
    fails = "IF(CAST(value AS STRING) = '1:20', raise_error('no'), value)"
    short = {"kafka.transaction.timeout.ms": "15000"}
    with pytest.raises(StreamingQueryException, match="no"):
        copy.run(fails, delivery="exactly_once", **short)
    assert not values(copy.bootstrap, copy.out)
    wait_until(lambda: not copy.open_transactions(), "a transaction stays open", 60)
    assert not values(copy.bootstrap, copy.out)
    copy.run(delivery="exactly_once")
    wait_for_values(copy.bootstrap, copy.out, numbered(0, 25))


def test_a_checkpoint_that_was_put_back_is_refused(copy: Copy) -> None:
    fill(copy.bootstrap, copy.topic, PARTITIONS, 100)
    copy.run(delivery="exactly_once")
    for _ in range(2):
        last = copy.forget_last_commit()
        (copy.checkpoint / "offsets" / str(last)).unlink()
        (copy.checkpoint / "offsets" / f".{last}.crc").unlink(missing_ok=True)
    with pytest.raises(StreamingQueryException, match="the checkpoint was put back"):
        copy.run(delivery="exactly_once")
    wait_for_values(copy.bootstrap, copy.out, numbered(0, 100))


def test_a_stream_has_no_app(copy: Copy) -> None:
    fill(copy.bootstrap, copy.topic, PARTITIONS, 1)
    with pytest.raises(StreamingQueryException, match="txnAppId: a stream has Spark's ids"):
        copy.run(delivery="exactly_once", txnAppId="a")


def test_what_a_dead_attempt_left_is_aborted(copy: Copy) -> None:
    """Else readers would wait for it."""
    fill(copy.bootstrap, copy.topic, PARTITIONS, 10)
    copy.run(delivery="exactly_once")
    stray = Producer(
        {
            "bootstrap.servers": copy.bootstrap,
            "transactional.id": f"{ids_prefix(copy.query_id)}dead/0",
        }
    )
    stray.init_transactions()
    stray.begin_transaction()
    stray.produce(copy.out, b"stray", partition=0)
    stray.flush(30)
    fill(copy.bootstrap, copy.topic, PARTITIONS, 10, first=10)
    copy.run(delivery="exactly_once")
    assert copy.open_transactions() == []
    wait_for_values(copy.bootstrap, copy.out, numbered(0, 20))


def test_a_stream_survives_its_broker(
    spark: Any, new_broker: Callable[..., TestBroker], topic: str, tmp_path: Path
) -> None:
    """The broker restarts while the query runs: tasks and driver wait for it."""
    broker = new_broker().start()
    copy = Copy(spark, broker.bootstrap, topic, tmp_path)
    fill(broker.bootstrap, topic, PARTITIONS, 300)
    frame = our_source(
        spark.readStream,
        broker.bootstrap,
        topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="20",
    )
    query = (
        sink(frame.select("value"), broker.bootstrap, copy.out, delivery="exactly_once")
        .option("checkpointLocation", str(copy.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    for _ in range(2):
        assert not query.awaitTermination(3)
        broker.kill()
        broker.start()
    # Thirty batches.
    assert query.awaitTermination(2 * STREAM_S)
    wait_for_values(broker.bootstrap, copy.out, numbered(0, 300))
