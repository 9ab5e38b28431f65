"""``format("pyrklog")`` in writes to Apache Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from pyrklog.producing import ProducerSettings, Transactions
from pyrklog.spark.sink_slots import PREFIX
from tests.support.groups import create_topic, fill
from tests.support.kafka_broker import KafkaBroker
from tests.support.sinking import sink, values
from tests.support.spark import our_source

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


def numbered(start: int, end: int) -> Counter[bytes]:
    return Counter(b"%d:%d" % (partition, at) for partition in range(2) for at in range(start, end))


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_stream(
    spark: Any, broker: KafkaBroker, topic: str, tmp_path: Path, delivery: str
) -> None:
    """Over a restart of the broker, and with its last batch run once more."""
    kafka, out, checkpoint = broker.bootstrap, f"{topic}-out", tmp_path / "checkpoint"
    create_topic(kafka, topic, 2)
    create_topic(kafka, out, 3)

    def run() -> None:
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
        rows = our_source(spark.readStream, kafka, topic, **options).select("key", "value")
        query = (
            sink(rows, kafka, out, delivery=delivery, **{"kafka.compression.type": "zstd"})
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(90)

    fill(kafka, topic, 2, 100)
    run()
    broker.restart()
    fill(kafka, topic, 2, 20, first=100)
    run()
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    run()
    found = values(kafka, out)
    if delivery == "exactly_once":
        assert found == numbered(0, 120)
    else:
        assert set(found) == set(numbered(0, 120))
        assert found.total() > 240, "the last batch is written again"
    transactions = Transactions(ProducerSettings(kafka, []))
    assert transactions.open_with_prefix(PREFIX) == []


def test_batch_writes(spark: Any, broker: KafkaBroker, topic: str) -> None:
    create_topic(broker.bootstrap, topic, 3)
    options = {"delivery": "exactly_once", "txnAppId": topic}
    for version, start, end in (("1", 0, 300), ("1", 0, 300), ("2", 300, 400)):
        frame = spark.range(start, end, 1, 12).selectExpr("CAST(id AS STRING) AS value")
        sink(frame, broker.bootstrap, topic, txnVersion=version, **options).save()
    expected = Counter(b"%d" % number for number in range(400))
    assert values(broker.bootstrap, topic, "read_uncommitted") == expected


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
