"""``format("pyrklog")`` in writes to Apache Kafka: what it refuses. ``test_everywhere.py`` has the
rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.support.groups import create_topic
from tests.support.kafka_broker import KafkaBroker
from tests.support.sinking import sink, values

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


def test_a_time_out_that_the_brokers_refuse(spark: Any, broker: KafkaBroker, topic: str) -> None:
    create_topic(broker.bootstrap, topic, 1)
    options = {
        "delivery": "exactly_once",
        "txnAppId": topic,
        "txnVersion": "1",
        "kafka.transaction.timeout.ms": "900001",
    }
    frame = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(PySparkException, match=r"more than the brokers allow"):
        sink(frame, broker.bootstrap, topic, **options).save()


def test_a_record_that_a_topic_does_not_take(spark: Any, broker: KafkaBroker, topic: str) -> None:
    """And batches that are halved until it takes them."""
    create_topic(broker.bootstrap, topic, 1)
    frame = spark.range(8).selectExpr("repeat(CAST(id AS STRING), 300000) AS value")
    sink(frame, broker.bootstrap, topic, **{"kafka.batch.size": "5000000"}).save()
    assert values(broker.bootstrap, topic).total() == 8
    frame = spark.range(1).selectExpr("repeat('x', 3000000) AS value")
    with pytest.raises(PySparkException, match="takes no record so large"):
        sink(frame, broker.bootstrap, topic).save()
