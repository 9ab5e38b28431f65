"""The driver's decisions on a broker, without a session: what holds back a log's end, what is gone.

The clock is the test's: losses that take a minute are told at once.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from pyrklog.spark.batch_plan import plan_batch
from pyrklog.spark.cluster import KafkaCluster
from pyrklog.spark.connection import Connection
from pyrklog.spark.high_watermarks import KafkaHighWatermarks
from pyrklog.spark.offsets import Json, OffsetRange, TopicPartition
from pyrklog.spark.options import SourceOptions, parse
from pyrklog.spark.reading import read_range
from pyrklog.spark.resolve import SelectionError
from pyrklog.spark.sizes import SampledSizes
from pyrklog.spark.stream_engine import LAGGING_MOST_S, DataLossError, StreamEngine
from tests.support.groups import create_topic, fill
from tests.support.transactions import wait_until_ended
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(120)


class Driver:
    """A stream from a checkpoint of the stock connector's."""

    def __init__(self, bootstrap: str, topics: str, **options: str) -> None:
        connection = Connection(bootstrap)
        self.now_s = 0.0
        self.engine = StreamEngine(
            given(bootstrap, topics, is_stream=True, **options),
            KafkaCluster(connection),
            KafkaHighWatermarks(connection),
            SampledSizes(connection, with_headers=False),
            None,
            lambda: self.now_s,
            self._sleep,
        )

    def next(self, document: Any) -> Any:
        return json.loads(json.dumps(self.engine.latest(document, is_limited=True)))

    def _sleep(self, seconds: float) -> None:
        self.now_s += 20 * seconds


def given(bootstrap: str, topics: str, *, is_stream: bool, **options: str) -> SourceOptions:
    required = {"kafka.bootstrap.servers": bootstrap, "subscribe": topics}
    return parse(required | options, is_stream=is_stream)


@pytest.fixture
def transaction(bootstrap: str, topic: str) -> Producer:
    """Open, with ten records behind five that are committed."""
    create_topic(bootstrap, topic, 1)
    fill(bootstrap, topic, 1, 5)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    write(producer, topic, 10, 5)
    return producer


def write(producer: Producer, topic: str, count: int, length: int) -> None:
    for _ in range(count):
        producer.produce(topic, b"v" * length)
    producer.flush()


def delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=30).topics, "the topic stays")


def test_a_position_in_an_open_transaction_is_no_loss(
    bootstrap: str, topic: str, transaction: Producer
) -> None:
    """The stock connector reads uncommitted records unless it is told otherwise."""
    driver = Driver(bootstrap, topic)
    start: Json = {topic: {"0": 12}}
    for _ in range(3):
        assert driver.next(start) == start
        driver.now_s += LAGGING_MOST_S
    transaction.commit_transaction()
    # Its marker, at offset 15, comes behind the answer.
    wait_until(lambda: driver.next(start) != start, "the transaction stays open")
    end = driver.next(start)
    assert [(one.start, one.end) for one in driver.engine.tasks(start, end)] == [(12, 16)]
    driver.engine.stop()


def test_a_batchs_end_in_an_open_transaction_is_waited_for(
    bootstrap: str, topic: str, transaction: Producer
) -> None:
    connection = Connection(bootstrap)
    ending = json.dumps({topic: {"0": 12}})
    (task,) = plan_batch(
        given(bootstrap, topic, is_stream=False, endingOffsets=ending),
        KafkaCluster(connection),
        KafkaHighWatermarks(connection),
        SampledSizes(connection, with_headers=False),
    )
    assert (task.start, task.end) == (0, 12)
    batches = read_range(task, ["offset"], connection, fail_on_data_loss=True)
    rows = next(batches).num_rows
    transaction.commit_transaction()
    assert rows + sum(batch.num_rows for batch in batches) == 12


def test_available_now_behind_a_log_that_was_made_anew(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 1)
    fill(bootstrap, topic, 1, 5)
    start: Json = {topic: {"0": 9}}
    driver = Driver(bootstrap, topic)
    driver.engine.prepare_available_now()
    with pytest.raises(DataLossError, match=f"{topic}-0 ends at offset 5 since 60 s"):
        driver.next(start)
    driver = Driver(bootstrap, topic, failOnDataLoss="false")
    driver.engine.prepare_available_now()
    end = driver.next(start)
    assert driver.engine.tasks(start, end) == []
    assert driver.next(end) == end
    fill(bootstrap, topic, 1, 2)
    driver.engine.prepare_available_now()
    tasks = driver.engine.tasks(end, driver.next(end))
    assert [(one.start, one.end) for one in tasks] == [(5, 7)]
    driver.engine.stop()


def test_a_name_that_a_restart_adds_must_exist(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 1)
    fill(bootstrap, topic, 1, 5)
    driver = Driver(bootstrap, f"{topic},{topic}-misspelt")
    with pytest.raises(SelectionError, match=f"there is no topic {topic}-misspelt"):
        driver.next({topic: {"0": 0}})
    driver.engine.stop()


def test_a_planned_topic_that_is_gone_has_tasks(bootstrap: str, topic: str) -> None:
    """Whose reading tells the loss; without failOnDataLoss the other topic is read."""
    other = f"{topic}-other"
    for name in (topic, other):
        create_topic(bootstrap, name, 1)
        fill(bootstrap, name, 1, 50)
    driver = Driver(bootstrap, f"{topic},{other}", maxBytesPerPartition="1000")
    start: Json = {topic: {"0": 0}, other: {"0": 0}}
    end = driver.next(start)
    before = driver.engine.tasks(start, end)
    delete(bootstrap, other)
    after = driver.engine.tasks(start, end)
    assert [one for one in after if one.topic == topic] == [
        one for one in before if one.topic == topic
    ]
    assert [(one.start, one.end) for one in after if one.topic == other] == [(0, 50)]
    driver.engine.stop()


def test_sizes_behind_a_hole(bootstrap: str, topic: str) -> None:
    """Of an aborted transaction, which is as empty as what compaction took."""
    create_topic(bootstrap, topic, 1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    write(producer, topic, 300, 5)
    producer.abort_transaction()
    producer.begin_transaction()
    write(producer, topic, 200, 960)
    producer.commit_transaction()
    # The marker follows the answer.
    wait_until_ended(bootstrap, topic)
    sizes = SampledSizes(Connection(bootstrap), with_headers=False)
    found = sizes.record_bytes([OffsetRange(topic, 0, 0, 501)])
    assert found == {TopicPartition(topic, 0): 1000}
