"""``format("pyrklog")`` in streams: limits, restarts, added partitions, the group, losses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec
from pyspark.errors import StreamingQueryException

from pyrklog.testing import TestBroker
from tests.support.groups import create_topic, fill
from tests.support.spark import our_source, positions
from tests.support.transactions import producer_of, wait_until_ended
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(240)]

STREAM_S = 90


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


def create_anew(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=30).topics, "the topic stays")
    create_topic(bootstrap, topic, 1)


def committed(bootstrap: str, topic: str, partitions: int) -> list[TopicPartition]:
    """Of the group that the tests name after the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-lag"})
    try:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        found: list[TopicPartition] = consumer.committed(places, 30)
        return found
    finally:
        consumer.close()


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
    is empty. The group is told of what is finished alone."""
    options = {"startingOffsets": "latest", "commitGroup": f"{topic}-lag"}
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
            our_source(spark.readStream, bootstrap, topic, **options)
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
    assert [one.offset for one in committed(bootstrap, topic, 1)] == [OFFSET_INVALID]
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
    places: list[TopicPartition] = []

    def is_told() -> bool:
        places[:] = committed(bootstrap, topic, 2)
        return [(one.offset, one.metadata) for one in places] == [(30, "pyrklog.spark 1")] * 2

    wait_until(is_told, lambda: f"the group has {places}")
    assert all(one.leader_epoch is not None for one in places)


def test_a_stream_survives_its_broker(
    spark: Any, new_broker: Callable[..., TestBroker], topic: str, tmp_path: Path
) -> None:
    """Restarted between batches: that its log has nothing new is no truncation."""
    broker = new_broker().start()
    files = Files(spark, broker.bootstrap, topic, tmp_path)
    create_topic(broker.bootstrap, topic, 1)
    fill(broker.bootstrap, topic, 1, 20)
    files.run()
    broker.restart()
    files.run()
    fill(broker.bootstrap, topic, 1, 10, first=20)
    files.run()
    assert files.values() == numbered(0, 0, 30)


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
    create_anew(bootstrap, topic)
    fill(bootstrap, topic, 1, 10, first=500)
    place = TopicPartition(topic, 0)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    end = admin.list_offsets({place: OffsetSpec.latest()})[place].result(30)
    assert end.offset == 10
    with pytest.raises(StreamingQueryException, match="was deleted and created anew"):
        files.run()
    files.run(failOnDataLoss="false")
    assert sorted(files.values()) == sorted(numbered(0, 0, 10) + numbered(0, 500, 510))


def test_a_batch_is_of_the_topic_that_was_there_when_it_was_planned(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """The driver dies with its first batch, and the topic is created anew with as many records."""
    create_topic(bootstrap, topic, 1)
    fill(bootstrap, topic, 1, 10)
    read: list[str] = []
    fails = True

    def take(frame: Any, number: int) -> None:
        rows = frame.selectExpr("CAST(value AS STRING) AS value").collect()
        if rows and fails:
            raise RuntimeError("the sink is away")
        read.extend(row.value for row in rows)

    def run(**options: str) -> None:
        query = (
            our_source(spark.readStream, bootstrap, topic, startingOffsets="earliest", **options)
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(STREAM_S)

    with pytest.raises(StreamingQueryException, match="the sink is away"):
        run()
    create_anew(bootstrap, topic)
    fill(bootstrap, topic, 1, 10, first=500)
    fails = False
    with pytest.raises(StreamingQueryException, match="created anew before offsets 0 to 9"):
        run()
    assert read == []
    run(failOnDataLoss="false")
    assert sorted(read) == sorted(numbered(0, 500, 510))


def test_an_end_that_moves_back_is_no_loss(files: Files, bootstrap: str, topic: str) -> None:
    """Here since an open transaction is not read any more; as on a leader that has just taken
    over."""
    create_topic(bootstrap, topic, 1)
    fill(bootstrap, topic, 1, 5)
    producer = producer_of(bootstrap, topic, **{"transaction.timeout.ms": 600_000})
    producer.begin_transaction()
    for number in range(5, 10):
        producer.produce(topic, f"0:{number}")
    producer.flush()
    files.run(**{"kafka.isolation.level": "read_uncommitted"})
    assert files.values() == numbered(0, 0, 10)
    files.run()
    producer.commit_transaction()
    # The marker follows the answer.
    wait_until_ended(bootstrap, topic)
    fill(bootstrap, topic, 1, 5, first=10)
    files.run()
    assert files.values() == numbered(0, 0, 15)


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
