"""The row of the feature table (docs/using/compared.md) that needs Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import pyrklog
from tests.support.feature_claims import Claims
from tests.support.feature_table import NO, YES
from tests.support.groups import create_topic, fill
from tests.support.spark import our_source
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.spark]
EACH = 10


def test_jar_free_spark_visible_lag(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    """The session has none of Kafka's jars; Spark's own connector commits to no group."""
    assert not list(Path(pyrklog.__file__).parent.rglob("*.jar"))
    create_topic(bootstrap, topic, 2)
    fill(bootstrap, topic, 2, EACH)
    stream = our_source(
        spark.readStream, bootstrap, topic, startingOffsets="earliest", commitGroup=topic
    )
    found: list[int] = []
    query = (
        stream.writeStream.foreachBatch(lambda frame, _: found.append(frame.count()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sum(found) == 2 * EACH
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    places = [TopicPartition(topic, number) for number in range(2)]

    def committed() -> list[int]:
        return [one.offset for one in consumer.committed(places, timeout=PATIENCE_S)]

    wait_until(lambda: committed() == [EACH, EACH], lambda: f"committed are {committed()}")
    consumer.close()
    claim = Claims("jar_free_spark_visible_lag")
    claim(pyrklog=YES, kafka=NO, kcat=NO)
