"""Filters of queries that decide what ``format("pyrklog")`` reads, in a session."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from tests.support.clients import Confluent, Record
from tests.support.spark import our_source
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.jvm, pytest.mark.spark]

PUSHED = "spark.sql.python.filterPushdown.enabled"
START_MS = 1_767_355_200_000
START = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=START_MS)
COUNT = 100
PARTITIONS = 3
# A task for each ten offsets: how many are planned shows.
TASK = 10


@pytest.fixture
def pushing(spark: Any) -> Iterator[Any]:
    spark.conf.set(PUSHED, "true")
    yield spark
    spark.conf.unset(PUSHED)


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """A record a second in each partition; every tenth is an hour late."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # The times are long past.
    new = NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin.create_topics([new])[topic].result(PATIENCE_S)
    records = [
        Record(b"%d" % (number % 7), b'{"id": %d}' % number, (), _time_ms(number))
        for number in range(COUNT)
    ]
    for partition in range(PARTITIONS):
        Confluent().produce(bootstrap, topic, records, partition=partition)
    return topic


def _time_ms(number: int) -> int:
    return START_MS + 1000 * number - (3_600_000 if number % 10 == 9 else 0)


def loaded(session: Any, bootstrap: str, topic: str, **options: str) -> Any:
    given = {"maxRecordsPerPartition": str(TASK), "pushFilters": "once"} | options
    return our_source(session.read, bootstrap, topic, **given)


def tasks_and_rows(frame: Any) -> tuple[int, list[tuple[int, int]]]:
    rows = sorted(
        (row.partition, row.offset) for row in frame.select("partition", "offset").collect()
    )
    return frame.rdd.getNumPartitions(), rows


@pytest.mark.parametrize(
    ("where", "tasks"),
    [
        ("partition = 1", 10),
        ("partition in (0, 2) and offset >= 80", 4),
        ("partition != 1 and offset between 35 and 44", 2),
        ("offset = 99", 3),
        ("offset in (3, 7, 55) and partition < 1", 6),
        ("timestamp >= timestamp '2026-01-02 21:01:00+09:00'", 12),
        ("timestamp > timestamp '2026-01-02 12:01:00Z' and partition = 0", 4),
        ("timestamp = timestamp '2026-01-02 12:01:35Z'", 3),
        ("timestamp >= '2027-01-01' and partition = 0", 1),
        ("timestamp < timestamp '2026-01-02 12:00:00Z'", 30),
        ("cast(offset as double) / 2 < 20 and topic like '%'", 30),
        ("partition = 0 or offset = 5", 30),
        ("topic = 'another'", 1),
        ("topic is null", 1),
    ],
)
def test_rows_are_the_same_and_tasks_fewer(
    pushing: Any, bootstrap: str, filled: str, where: str, tasks: int
) -> None:
    """A plan without a task has one without rows."""
    expected = tasks_and_rows(loaded(pushing, bootstrap, filled, pushFilters="false").where(where))
    assert expected[0] == PARTITIONS * COUNT // TASK
    found = tasks_and_rows(loaded(pushing, bootstrap, filled).where(where))
    assert found == (tasks, expected[1])


def test_a_plan_is_of_what_is_left(pushing: Any, bootstrap: str, filled: str) -> None:
    whole = loaded(pushing, bootstrap, filled, maxRecordsPerPartition="1000", minPartitions="8")
    frame = whole.where((f.col("partition") == 2) & (f.col("offset") >= 50))
    assert frame.rdd.getNumPartitions() == 8
    assert [row.offset for row in frame.orderBy("offset").collect()] == list(range(50, COUNT))
    now = loaded(pushing, bootstrap, filled).where("timestamp >= now() - interval 1 hour")
    assert now.count() == 0
    by_python = loaded(pushing, bootstrap, filled).where(
        f.col("timestamp") >= START + timedelta(seconds=95)
    )
    assert tasks_and_rows(by_python) == (
        PARTITIONS,
        [(partition, offset) for partition in range(PARTITIONS) for offset in range(95, 99)],
    )


def test_decoded_values_and_some_columns(pushing: Any, bootstrap: str, filled: str) -> None:
    schema = "partition int, offset long, value struct<id: bigint>"
    options = {"decode": "json", "pushFilters": "once", "maxRecordsPerPartition": str(TASK)}
    frame = our_source(pushing.read.schema(schema), bootstrap, filled, **options)
    # The condition on a field is Spark's.
    frame = frame.where("partition = 1 and offset >= 90 and value.id > 95")
    assert [row.value.id for row in frame.orderBy("offset").collect()] == [96, 97, 98, 99]
    assert frame.rdd.getNumPartitions() == 1


def test_a_table(pushing: Any, bootstrap: str, filled: str) -> None:
    """The last value of a key may lie behind the condition."""
    options = {"table": filled, "pushFilters": "once"}
    frame = our_source(pushing.read, bootstrap, None, **options)
    assert frame.where("partition = 1 and offset < 95").collect() == [
        row for row in frame.where("partition = 1").collect() if row.offset < 95
    ]
    last = our_source(pushing.read, bootstrap, None, **options).where("offset >= 95")
    assert tasks_and_rows(last)[1] == [
        (partition, offset) for partition in range(PARTITIONS) for offset in range(95, COUNT)
    ]


def test_what_it_needs_is_told(spark: Any, bootstrap: str, filled: str) -> None:
    with pytest.raises(PySparkException, match=PUSHED.replace(".", r"\.")):
        loaded(spark, bootstrap, filled).where("partition = 1").collect()
    with pytest.raises(PySparkException, match="it can be false or once"):
        loaded(spark, bootstrap, filled, pushFilters="true").where("partition = 1").collect()


def test_spark_keeps_a_plan_with_the_dataframe(pushing: Any, bootstrap: str, filled: str) -> None:
    """Why ``once`` has its name. A Spark in which this fails needs no such promise."""
    frame = loaded(pushing, bootstrap, filled)
    assert frame.where("partition = 1").count() == COUNT
    assert frame.where("partition in (0, 1)").count() == 2 * COUNT
    assert frame.count() == 2 * COUNT
    both = frame.where("partition = 0").union(frame.where("partition = 2"))
    assert both.count() < 2 * COUNT


def test_spark_does_not_tell_the_columns_of_a_query(
    spark: Any, bootstrap: str, filled: str
) -> None:
    frame = our_source(spark.read, bootstrap, filled).select("offset")
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    scanned = next(line for line in plan.splitlines() if "Relation" in line)
    assert "value#" in scanned
    named = our_source(spark.read.schema("offset long"), bootstrap, filled).select("offset")
    assert "value#" not in named._jdf.queryExecution().optimizedPlan().toString()
