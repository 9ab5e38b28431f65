"""Spark's stock connector on three brokers, of which one is killed."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create, end_offset, leaders
from tests.support.cluster_load import Writer
from tests.support.spark import source, start_session
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.spark]

PARTITIONS = 3
QUERY_S = 2 * PATIENCE_S
"""For a few batches, of which one may wait for a dead broker."""

# Spark asks for the ends of partitions by Apache's admin client, which can wait for a dead broker
# for the latter time, a minute by default (cluster.md, section 7).
TIMEOUTS = {"kafka.request.timeout.ms": "5000", "kafka.default.api.timeout.ms": "10000"}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = start_session(tmp_path_factory.mktemp("warehouse"))
    yield session
    session.stop()


def ends(cluster: BrokerCluster, topic: str) -> dict[str, int]:
    """The end of each partition, as Spark writes it."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    found = {str(p.partition): end_offset(consumer, p) for p in places}
    consumer.close()
    return found


def has_read(query: Any, topic: str, wanted: dict[str, int]) -> bool:
    """Whether a query has committed up to ``wanted``. Raises the query's error."""
    if not query.isActive:
        raise query.exception()
    progress = query.lastProgress
    read = json.loads(progress.sources[0].endOffset or "{}") if progress is not None else {}
    return bool(read.get(topic) == wanted)


def controller_that_leads(cluster: BrokerCluster, admin: AdminClient, topic: str) -> int:
    """Each broker leads a partition at first. While Spark starts on a busy machine, a session may
    end: leaders are led back by an election."""

    def found() -> int | None:
        controller = cluster.controller()
        if controller in leaders(admin, topic).values():
            return controller
        with suppress(KafkaException):
            admin.elect_leaders(ElectionType.PREFERRED, None).result(30)
        return None

    return wait_until(found, "the controller leads nothing")


def test_spark_stream_goes_on_when_leader_and_controller_are_killed(
    spark: Any, cluster: BrokerCluster, topic: str, tmp_path: Path
) -> None:
    """During writes; the files hold each row once, with its partition and offset."""
    admin = create(cluster, topic, PARTITIONS, 3, options={"min.insync.replicas": "2"})
    writer = Writer(cluster, topic, PARTITIONS)
    try:
        writer.go_on()
        query = (
            source(
                spark.readStream, cluster.bootstrap, topic, startingOffsets="earliest", **TIMEOUTS
            )
            .selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="200 milliseconds")
            .start()
        )
        wait_until(lambda: len(query.recentProgress) >= 3, "the query does not begin", QUERY_S)
        victim = controller_that_leads(cluster, admin, topic)
        cluster.brokers[victim].kill()
        writer.go_on()
        batches = query.lastProgress.batchId
        wait_until(
            lambda: query.lastProgress.batchId >= batches + 3, "the query stands still", QUERY_S
        )
        writer.go_on()
    finally:
        writer.stop()
    try:
        wanted = ends(cluster, topic)
        wait_until(lambda: has_read(query, topic, wanted), "not everything is read", QUERY_S)
    finally:
        query.stop()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    places = sorted((row.partition, row.offset) for row in rows)
    assert places == [(p, offset) for p in range(PARTITIONS) for offset in range(wanted[str(p)])]
    for partition in range(PARTITIONS):
        values = [int(row.value) for row in rows if row.partition == partition]
        assert len(values) == len(set(values))
        assert set(values) == writer.acknowledged[partition]
