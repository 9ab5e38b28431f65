"""``format("pyrklog")`` with ``badRecords``: records whose values do not fit go to a topic."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException, StreamingQueryException

from tests.support.bad_records import bad_places, create_with, mixed, places, read_bad
from tests.support.bad_records_driver import SCHEMA
from tests.support.clients import Confluent, Record
from tests.support.groups import create_topic
from tests.support.spark import our_source
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(240)]

DECODE = {"decode": "json", "schema": SCHEMA}
STREAM_S = 90
START_S = 120
KILLS = 2


def produce(bootstrap: str, topic: str, values: list[bytes | None], partition: int = 0) -> None:
    records = [Record(b"k%d" % partition, value) for value in values]
    Confluent().produce(bootstrap, topic, records, partition=partition)


def ids(frame: Any) -> list[int | None]:
    # Not by orderBy, which reads the source twice: once for a sample.
    rows = sorted(frame.collect(), key=lambda row: (row.partition, row.offset))
    return [None if row.value is None else row.value.id for row in rows]


def test_a_batch_read(spark: Any, bootstrap: str, topic: str) -> None:
    bad, count, every = f"{topic}-bad", 300, 10
    create_topic(bootstrap, topic, 1)
    create_topic(bootstrap, bad, 2)
    produce(bootstrap, topic, mixed(count, every))
    expected = bad_places(topic, 1, count, every)
    given = {**DECODE, "badRecords": bad, "minPartitions": "3"}
    good = [number for number in range(count) if number % every != every - 1]
    dropped = our_source(spark.read, bootstrap, topic, onBad="drop", **given)
    assert ids(dropped) == good
    assert places(bootstrap, bad) == expected
    with_nulls = our_source(spark.read, bootstrap, topic, **given)
    found = ids(with_nulls)
    assert [one for one in found if one is not None] == good
    assert len(found) == count
    # A second read writes again, also where nobody asks for the values.
    offsets = our_source(spark.read.schema("offset long"), bootstrap, topic, **given)
    assert offsets.count() == count
    assert places(bootstrap, bad) == sorted(3 * expected)
    one = read_bad(bootstrap, bad)[0]
    assert one.told["connector.name"] == "pyrklog-spark"
    assert one.told["exception.message"].startswith(f"topic {topic} partition 0 offset ")


def test_what_cannot_be_written_ends_the_query(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    small, missing = f"{topic}-small", f"{topic}-smal"
    create_topic(bootstrap, topic, 1)
    create_with(bootstrap, small, max_message_bytes="500")
    produce(bootstrap, topic, [b'{"id": 1}', b"x" * 700])

    def stream(bad: str) -> Any:
        frame = our_source(
            spark.readStream, bootstrap, topic, startingOffsets="earliest", badRecords=bad, **DECODE
        )
        writer = frame.select("offset").writeStream.format("noop").trigger(availableNow=True)
        return writer.option("checkpointLocation", str(tmp_path / bad)).start()

    told = f"badRecords: there is no topic {missing}; did you mean {small}\\?; it is not made"
    with pytest.raises(PySparkException, match=told):
        our_source(spark.read, bootstrap, topic, badRecords=missing, **DECODE).collect()
    with pytest.raises(StreamingQueryException, match=told):
        stream(missing).awaitTermination(STREAM_S)
    assert missing not in AdminClient({"bootstrap.servers": bootstrap}).list_topics().topics
    told = f"cannot be written to topic {small}: .*max.message.bytes.* partition 0 offset 1, has"
    with pytest.raises(PySparkException, match=told):
        our_source(spark.read, bootstrap, topic, badRecords=small, **DECODE).collect()
    with pytest.raises(StreamingQueryException, match=told):
        stream(small).awaitTermination(STREAM_S)
    pattern = {"subscribePattern": f"{topic}.*", "badRecords": small}
    with pytest.raises(PySparkException, match=f"badRecords is {small}, which is read"):
        our_source(spark.read, bootstrap, None, **pattern, **DECODE).collect()


@pytest.mark.long
def test_none_is_lost_when_tasks_and_drivers_die(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """The first attempt of each task of partition 0 fails, and drivers are killed with all their
    processes amid a batch. Good rows are there once, and each bad record at least once."""
    bad, count, every = f"{topic}-bad", 400, 5
    create_topic(bootstrap, topic, 2)
    create_topic(bootstrap, bad, 2)
    for partition in range(2):
        produce(bootstrap, topic, mixed(count, every), partition)
    command = [sys.executable, "-m", "tests.support.bad_records_driver", bootstrap, topic, bad]
    log = tmp_path / "driver.log"

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                [*command, str(tmp_path)], stdout=output, stderr=output, start_new_session=True
            )

    for _ in range(KILLS):
        before = len(places(bootstrap, bad))
        driver = start()
        try:
            wait_until(
                lambda: len(places(bootstrap, bad)) > before or driver.poll() is not None,  # noqa: B023
                lambda: f"no bad record: {log.read_text()[-2000:]}",
                START_S,
            )
            assert driver.poll() is None, log.read_text()[-2000:]
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    last = start()
    try:
        assert last.wait(START_S) == 0, log.read_text()[-2000:]
    finally:
        if last.poll() is None:
            os.killpg(last.pid, signal.SIGKILL)
            last.wait()
    found = Counter(places(bootstrap, bad))
    assert sorted(found) == bad_places(topic, 2, count, every)
    # Each task of partition 0 has run twice at least.
    assert all(times > 1 for place, times in found.items() if place[1] == 0)
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("partition", "offset").collect()
    good = [number for number in range(count) if number % every != every - 1]
    assert [(row.partition, row.offset, row.id) for row in rows] == [
        (partition, number, number) for partition in range(2) for number in good
    ]
