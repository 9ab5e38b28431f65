"""``format("pyrklog")`` in streams: limits, restarts, added partitions, the group, losses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec
from pyspark.errors import StreamingQueryException

from pyrklog.testing import TestBroker
from tests.support.groups import create_topic, fill
from tests.support.spark import our_source, positions, start_session_without_jars
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(240)]

STREAM_S = 90


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = start_session_without_jars(tmp_path_factory.mktemp("warehouse"))
    yield session
    session.stop()


class Files:
    """A query into Parquet, run to its end as often as the test wants."""

    def __init__(self, spark: Any, bootstrap: str, topic: str, folder: Path) -> None:
        self.spark, self.bootstrap, self.topic, self.folder = spark, bootstrap, topic, folder

    def start(self, trigger: dict[str, Any], **options: str) -> Any:
        given = {"startingOffsets": "earliest"} | options
        return (
            our_source(self.spark.readStream, self.bootstrap, self.topic, **given)
            .selectExpr("CAST(value AS STRING) AS value", "topic", "partition", "offset")
            .writeStream.format("parquet")
            .option("path", str(self.folder / "out"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(**trigger)
            .start()
        )

    def run(self, **options: str) -> Any:
        query = self.start({"availableNow": True}, **options)
        assert query.awaitTermination(STREAM_S)
        return query

    def values(self) -> list[str]:
        rows = self.spark.read.parquet(str(self.folder / "out")).orderBy("partition", "offset")
        return [row.value for row in rows.collect()]


@pytest.fixture
def files(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> Files:
    return Files(spark, bootstrap, topic, tmp_path)


def numbered(partition: int, start: int, end: int) -> list[str]:
    return [f"{partition}:{number}" for number in range(start, end)]


def test_runs_go_on_where_the_last_one_ended(files: Files, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 1)
    fill(bootstrap, topic, 1, 200)
    files.run()
    fill(bootstrap, topic, 1, 150, first=200)
    query = files.run()
    assert files.values() == numbered(0, 0, 350)
    progress = query.recentProgress[-1].sources[0]
    assert positions(progress.startOffset, topic) == {0: 200}
    assert positions(progress.endOffset, topic) == {0: 350}
    assert positions(progress.latestOffset, topic) == {0: 350}
    files.run()
    assert files.values() == numbered(0, 0, 350)


@pytest.mark.parametrize(
    ("options", "most"),
    [({"maxOffsetsPerTrigger": "64"}, 64), ({"maxBytesPerTrigger": "3000"}, 75)],
)
def test_limits(
    files: Files, bootstrap: str, topic: str, options: dict[str, str], most: int
) -> None:
    """A record has at least 40 bytes by our estimate: so many of them have more than the limit."""
    create_topic(bootstrap, topic, 2)
    fill(bootstrap, topic, 2, 150)
    query = files.run(**options)
    sizes = [progress.numInputRows for progress in query.recentProgress]
    assert sum(sizes) == 300
    assert max(sizes) <= most
    assert files.values() == numbered(0, 0, 150) + numbered(1, 0, 150)


def test_added_partitions_are_read_from_their_beginning(
    files: Files, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic, 1)
    fill(bootstrap, topic, 1, 20)
    files.run(startingOffsets="latest")
    fill(bootstrap, topic, 1, 10, first=20)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    fill(bootstrap, topic, 3, 5, first=100)
    files.run(startingOffsets="latest")
    expected = numbered(0, 20, 30) + numbered(0, 100, 105)
    assert files.values() == expected + numbered(1, 100, 105) + numbered(2, 100, 105)


def test_a_batch_that_fails_is_repeated_as_it_was(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """The stream starts at ``latest``, which is another offset after the restart; the first batch
    is empty."""
    create_topic(bootstrap, topic, 1)
    fill(bootstrap, topic, 1, 10)
    read: list[int] = []
    fails = True

    def take(frame: Any, number: int) -> None:
        rows = [row.offset for row in frame.select("offset").collect()]
        if rows and fails:
            raise RuntimeError("the sink is away")
        read.extend(sorted(rows))

    def start() -> Any:
        return (
            our_source(spark.readStream, bootstrap, topic, startingOffsets="latest")
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="100 milliseconds")
            .start()
        )

    query = start()
    wait_until(lambda: query.lastProgress is not None, "the query does not begin")
    fill(bootstrap, topic, 1, 5, first=10)
    with pytest.raises(StreamingQueryException, match="the sink is away"):
        query.awaitTermination(STREAM_S)
    fill(bootstrap, topic, 1, 5, first=15)
    fails = False
    query = start()
    try:
        wait_until(lambda: len(read) >= 10, "the query does not go on")
    finally:
        query.stop()
    assert read == list(range(10, 20))


def test_the_group_shows_the_streams_lag(files: Files, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 2)
    fill(bootstrap, topic, 2, 30)
    files.run(commitGroup=f"{topic}-lag")
    fill(bootstrap, topic, 2, 7, first=30)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-lag"})
    try:
        committed = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], 30)
    finally:
        consumer.close()
    assert [one.offset for one in committed] == [30, 30]
    assert {one.metadata for one in committed} == {"pyrklog.spark 1"}


def test_a_stream_survives_its_broker(
    spark: Any, new_broker: Callable[..., TestBroker], topic: str, tmp_path: Path
) -> None:
    """Killed between batches: a new leader epoch without a record of its own is no truncation."""
    broker = new_broker().start()
    files = Files(spark, broker.bootstrap, topic, tmp_path)
    create_topic(broker.bootstrap, topic, 1)
    fill(broker.bootstrap, topic, 1, 20)
    files.run()
    for turn in range(2):
        broker.restart()
        files.run()
        fill(broker.bootstrap, topic, 1, 10, first=20 + 10 * turn)
        files.run()
    assert files.values() == numbered(0, 0, 40)


def test_records_deleted_unread_are_a_loss(files: Files, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 1)
    fill(bootstrap, topic, 1, 10)
    files.run()
    fill(bootstrap, topic, 1, 10, first=10)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    place = TopicPartition(topic, 0, 15)
    admin.delete_records([place])[place].result(30)
    with pytest.raises(StreamingQueryException, match="offsets 10 to 14 of"):
        files.run()
    files.run(failOnDataLoss="false")
    assert files.values() == numbered(0, 0, 10) + numbered(0, 15, 20)


def test_a_topic_created_anew_is_a_loss(files: Files, bootstrap: str, topic: str) -> None:
    """With as many records as before."""
    create_topic(bootstrap, topic, 1)
    fill(bootstrap, topic, 1, 10)
    files.run()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=30).topics, "the topic stays")
    create_topic(bootstrap, topic, 1)
    fill(bootstrap, topic, 1, 10, first=500)
    place = TopicPartition(topic, 0)
    end = admin.list_offsets({place: OffsetSpec.latest()})[place].result(30)
    assert end.offset == 10
    with pytest.raises(StreamingQueryException, match="was deleted and created anew"):
        files.run()
    files.run(failOnDataLoss="false")
    assert sorted(files.values()) == sorted(numbered(0, 0, 10) + numbered(0, 500, 510))


def test_a_stock_checkpoint_is_taken_over(files: Files, bootstrap: str, topic: str) -> None:
    """Its offset log has the stock connector's documents."""
    create_topic(bootstrap, topic, 1)
    fill(bootstrap, topic, 1, 20)
    files.run()
    for path in (files.folder / "checkpoint" / "offsets").glob("[0-9]*"):
        lines = path.read_text().splitlines()
        lines[-1] = json.dumps({topic: positions(lines[-1], topic)}, separators=(",", ":"))
        path.write_text("\n".join(lines))
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    fill(bootstrap, topic, 1, 5, first=20)
    files.run()
    assert files.values() == numbered(0, 0, 25)
