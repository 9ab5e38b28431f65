"""A stream of ``format("pyrklog")`` on three brokers: leaders die, partitions are added, the driver
is replaced. The files hold each acknowledged record once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from pyrklog.spark.cluster import KafkaCluster
from pyrklog.spark.connection import Connection
from pyrklog.spark.offsets import OffsetRange, TopicPartition
from pyrklog.spark.places import LATEST
from pyrklog.spark.reading import read_range
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create, end_offset, enlarge, in_sync, leaders, produce
from tests.support.cluster_load import Writer
from tests.support.spark import our_source, positions
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(240)]

PARTITIONS = 3
ADDED = 10


class Copy:
    """A running query into Parquet, which can be replaced by one with the same checkpoint."""

    def __init__(self, spark: Any, cluster: BrokerCluster, topic: str, folder: Path) -> None:
        self._spark, self._cluster, self._topic, self._folder = spark, cluster, topic, folder
        self.query = self._start(400)

    def _start(self, most: int) -> Any:
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(most)}
        return (
            our_source(self._spark.readStream, self._cluster.bootstrap, self._topic, **options)
            .selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
            .writeStream.format("parquet")
            .option("path", str(self._folder / "out"))
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(processingTime="200 milliseconds")
            .start()
        )

    def replace(self, most: int = 400) -> None:
        """Stops the query, in the middle of whatever it does, and starts the next one."""
        self.query.stop()
        self.query = self._start(most)

    def go_on(self, batches: int = 3) -> None:
        first = -1 if self.query.lastProgress is None else self.query.lastProgress.batchId
        wait_until(lambda: self._last_batch() >= first + batches, "the query stands still")

    def has_read(self, wanted: dict[int, int]) -> bool:
        self._raise_failure()
        progress = self.query.lastProgress
        document = None if progress is None else progress.sources[0].endOffset
        return positions(document, self._topic) == wanted

    def places(self) -> list[tuple[int, int, int]]:
        """(partition, offset, value) of each row."""
        rows = self._spark.read.parquet(str(self._folder / "out")).collect()
        return sorted((row.partition, row.offset, int(row.value)) for row in rows)

    def _last_batch(self) -> int:
        self._raise_failure()
        progress = self.query.lastProgress
        return -1 if progress is None else int(progress.batchId)

    def _raise_failure(self) -> None:
        if not self.query.isActive:
            raise self.query.exception()


def ends(cluster: BrokerCluster, topic: str, partitions: int) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    try:
        return {
            number: end_offset(consumer, ConfluentPartition(topic, number))
            for number in range(partitions)
        }
    finally:
        consumer.close()


def test_a_throttled_stream_loses_and_doubles_nothing(
    spark: Any, cluster: BrokerCluster, topic: str, tmp_path: Path
) -> None:
    """The leader of partition 0 is killed twice, ten partitions are added, and the driver is
    replaced in between, while records are written."""
    admin = create(cluster, topic, PARTITIONS, 3, options={"min.insync.replicas": "2"})
    writer = Writer(cluster, topic, PARTITIONS)
    try:
        writer.go_on()
        copy = Copy(spark, cluster, topic, tmp_path)
        copy.go_on()
        for turn in range(2):
            victim = cluster.brokers[leaders(admin, topic)[0]]
            victim.kill()
            writer.go_on()
            copy.go_on()
            victim.start()
            writer.go_on()
            if turn == 0:
                enlarge(admin, topic, PARTITIONS + ADDED)
            copy.replace()
        writer.go_on()
    except BaseException:
        writer.abandon()
        raise
    writer.stop()
    # Into all partitions.
    produce(cluster, topic, PARTITIONS + ADDED, [b"-%d" % number for number in range(1, 6)])
    wanted = ends(cluster, topic, PARTITIONS + ADDED)
    copy.replace(sum(wanted.values()))
    try:
        wait_until(lambda: copy.has_read(wanted), "not everything is read", 120)
    finally:
        copy.query.stop()
    found = copy.places()
    assert [(number, offset) for number, offset, _ in found] == [
        (number, offset) for number, end in wanted.items() for offset in range(end)
    ]
    written = [value for _, _, value in found if value > -1]
    assert len(written) == len(set(written))
    assert set(written) == set().union(*writer.acknowledged)
    for number in wanted:
        last = [value for partition, _, value in found if partition == number and value < 0]
        assert last == [-1, -2, -3, -4, -5]


def test_leaders_that_wrote_nothing_have_lost_nothing(cluster: BrokerCluster, topic: str) -> None:
    """Two leaders die one after the other, and nobody writes meanwhile: the epoch that the driver
    was told is that of a leader without records."""
    admin = create(cluster, topic, 1, 3)
    produce(cluster, topic, 1, [b"%d" % number for number in range(20)])
    place, connection = TopicPartition(topic, 0), Connection(cluster.bootstrap)
    driver, told = KafkaCluster(connection), []
    for _ in range(2):
        leader = leaders(admin, topic)[0]
        cluster.brokers[leader].kill()
        told.append(driver.offsets({place: LATEST})[place])
        assert driver.describe([topic], {})[topic].partitions == (0,)
        cluster.brokers[leader].start()
        wait_until(lambda: len(in_sync(admin, topic)[0]) == 3, "a replica stays behind")
    assert [one.offset for one in told] == [20, 20]
    assert 0 < told[0].epoch < told[1].epoch
    assert driver.find_truncated({place: told[0]}) is None
    produce(cluster, topic, 1, [b"%d" % number for number in range(5)])
    planned = OffsetRange(topic, 0, 20, 25, told[0].epoch)
    batches = read_range(planned, ["offset"], connection, fail_on_data_loss=True)
    assert sum(batch.num_rows for batch in batches) == 5
