"""Stock consumers read from the earliest offset through a whole expansion."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from pyrklog.cli.throttles import FILL_RATE
from pyrklog.config.broker_options import RACK_AWARE_SELECTOR
from tests.cluster.test_expansion import run
from tests.support.balancing import moving_of, place, replicas, wait_until_told
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import end_offset, leaders, produce
from tests.support.cluster_load import Writer
from tests.support.rereading import JavaRereader, LibraryRereader, Rereader, read_again
from tests.support.spark import source, start_session
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(900)]

NEW = 4
RACKS = {1: "a", 2: "b", 3: "c", NEW: "d"}
OPTIONS = {
    "replica.selector.class": RACK_AWARE_SELECTOR,
    "zookeeper.session.timeout.ms": 30_000,
    "pyrklog.expansion.rate": 0,
    "log.segment.bytes": 50_000,
}
BEFORE = [[1, 2], [2, 3], [3, 1]]
PARTITIONS = len(BEFORE)
LARGE = [b"1" * 10_000] * 4
"""Fit in a segment, as one batch."""
PARTS = 15
SLOW, FAST = 50_000, 500_000_000
"""Bytes a second of back-fills."""
A_TRIGGER = 2_000
"""Offsets: the stream reads old records while the replicas are moved."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = start_session(tmp_path_factory.mktemp("warehouse"))
    yield session
    session.stop()


class SparkRereader:
    """Batch reads by the stock connector, which fails where offsets are gone."""

    def __init__(self, spark: Any, cluster: BrokerCluster, topic: str) -> None:
        self._spark, self._cluster, self._topic = spark, cluster, topic

    def read(self) -> None:
        ends = ends_of(self._cluster, self._topic)
        rows = source(
            self._spark.read, self._cluster.bootstrap, self._topic, startingOffsets="earliest"
        )
        places = sorted((row.partition, row.offset) for row in rows.collect())
        found = [sum(number == index for number, _ in places) for index in range(PARTITIONS)]
        assert places == [(index, at) for index in range(PARTITIONS) for at in range(found[index])]
        assert all(map(int.__ge__, found, ends)), f"{found} of {ends}"


def ends_of(cluster: BrokerCluster, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    found = [end_offset(consumer, TopicPartition(topic, index)) for index in range(PARTITIONS)]
    consumer.close()
    return found


def partial(cluster: BrokerCluster) -> list[str]:
    """Partitions of which the new broker lacks the beginning."""
    folders = (cluster.brokers[NEW].data / "logs").glob("*/partial")
    return [path.parent.name for path in folders]


def set_rate(cluster: BrokerCluster, rate: int) -> None:
    run(cluster, "config", "alter", "broker", str(NEW), "--set", f"{FILL_RATE}={rate}")


def wait_until_settled(cluster: BrokerCluster, topic: str) -> None:
    """Until nothing moves, and all brokers tell of all replicas in sync."""
    wait_until(lambda: not moving_of(cluster, topic), "it moves still", 2 * PATIENCE_S)
    wait_until_told(cluster, topic, replicas(cluster, topic))


def expand_and_drain(
    cluster: BrokerCluster, topic: str, writer: Writer, read: Callable[[], None]
) -> None:
    """All that an expansion does, with a look at the topic from its beginning at each step."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    run(cluster, "cluster", "expand", "--broker", str(NEW))
    wait_until(lambda: partial(cluster), "no replica starts at its leader's end")
    writer.go_on()
    read()
    assert partial(cluster), "old records are copied with the rate 0"
    set_rate(cluster, SLOW)
    read()
    set_rate(cluster, FAST)
    wait_until_settled(cluster, topic)
    assert not partial(cluster)
    read()
    assert any(NEW in members for members in replicas(cluster, topic))
    run(cluster, "cluster", "elect-leaders", "--preferred")
    run(cluster, "cluster", "drain", "--broker", "1", "-y")
    wait_until_settled(cluster, topic)
    assert all(1 not in members for members in replicas(cluster, topic))
    read()
    assert NEW in leaders(admin, topic).values(), "the new broker leads nothing"
    writer.go_on()
    read()


def test_consumers_from_the_beginning_notice_nothing_of_an_expansion(
    spark: Any, new_cluster: Callable[..., BrokerCluster], topic: str, tmp_path: Path
) -> None:
    cluster = new_cluster(count=4, racks=RACKS, **OPTIONS).start()
    place(cluster, topic, BEFORE)
    for _ in range(PARTS):
        produce(cluster, topic, PARTITIONS, LARGE)
    writer = Writer(cluster, topic, PARTITIONS)
    query = (
        source(
            spark.readStream,
            cluster.bootstrap,
            topic,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=str(A_TRIGGER),
        )
        .selectExpr("partition", "offset")
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    batches = SparkRereader(spark, cluster, topic)
    with ExitStack() as readers:
        again: list[Rereader] = [
            readers.enter_context(closing(made))
            for made in (
                LibraryRereader(cluster.bootstrap, topic, PARTITIONS, RACKS[NEW]),
                LibraryRereader(cluster.bootstrap, topic, PARTITIONS, ""),
                JavaRereader(cluster.bootstrap, topic, PARTITIONS, RACKS[NEW], tmp_path),
            )
        ]

        def read() -> None:
            read_again(*again)
            batches.read()
            assert query.exception() is None, query.exception()

        try:
            expand_and_drain(cluster, topic, writer, read)
        finally:
            writer.stop()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    places = sorted((row.partition, row.offset) for row in rows)
    ends = ends_of(cluster, topic)
    assert places == [(index, at) for index in range(PARTITIONS) for at in range(ends[index])]
    assert sum(ends) >= writer.count + PARTITIONS * PARTS * len(LARGE)
