"""One job of Spark on ``local[2]``: ``python -m benches.spark_job FORMAT JOB BOOTSTRAP TOPIC ROWS
FOLDER [JARS]``. FORMAT is ``pyrklog``, ``floor`` (of raw reads and writes, without a broker), or
``kafka`` for the stock connector with its jars, with commas. JOB is one of ``JOBS``.

Runs it once to warm up, and once more, and prints a line of JSON: rows, seconds and CPU seconds of
the second run; those of the driver, Java's process and Python's workers. ``follow`` runs once,
without its first seconds, and adds percentiles of milliseconds from when a record was due until its
batch is looked at.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

import pyrklog.spark
from benches import process, spark_feed
from benches.spark_floor import Floor

VALUE_BYTES = 100
EVENT_FIELDS = "id: LONG, user: STRING, amount: DOUBLE, paid: BOOLEAN, at: STRING"
EVENT = EVENT_FIELDS.replace(":", "")
VALUE = "value BINARY"
_SPREAD = 9_973


Figures = dict[str, float]


class Job:
    """What a job needs: a session and a topic, read or written by one of the formats."""

    def __init__(self, session: Any, format_: str, bootstrap: str, topic: str, rows: int) -> None:
        self.session, self.format, self.rows = session, format_, rows
        self.bootstrap, self.topic = bootstrap, topic
        self._options = {"kafka.bootstrap.servers": bootstrap}
        self._runs = 0

    def read(self, columns: str | None = None, **options: str) -> Any:
        return self._read(self.session.read.options(**options), columns)

    def stream(self, columns: str | None = None) -> Any:
        reader = self.session.readStream.option("startingOffsets", "earliest")
        return self._read(reader, columns)

    def _read(self, reader: Any, columns: str | None) -> Any:
        """``columns`` for ours alone: the stock connector refuses a schema."""
        if columns is not None and self.format == "pyrklog":
            reader = reader.schema(columns)
        if self.format == "floor":
            return reader.format("floor").option("rows", self.rows).load()
        return reader.format(self.format).options(**self._options, subscribe=self.topic).load()

    def write(self, frame: Any) -> None:
        named = frame.write.format(self.format).options(**self._options, topic=self.topic)
        named.mode("append").save()

    def checkpoint(self, folder: Path) -> str:
        self._runs += 1
        return str(folder / f"{self.format}-{self._runs}")

    def check(self, found: int) -> None:
        if found != self.rows:
            raise SystemExit(f"{self.topic} has {self.rows} rows; {found} were read")


def read(job: Job, folder: Path) -> None:
    """A sum over the values, so that each one is looked at."""
    row = job.read().agg(F.count("*"), F.sum(F.length("value"))).first()
    job.check(row[0])


def read_json(job: Job, folder: Path) -> None:
    """Five typed fields of JSON, and a group by one of them."""
    if job.format == "pyrklog":
        schema = DataType.fromDDL(EVENT).json()
        columns = f"value STRUCT<{EVENT_FIELDS}>"
        frame = job.read(columns, decode="json", schema=schema).select("value.*")
    else:
        event = F.from_json(F.col("value").cast("string"), EVENT).alias("event")
        frame = job.read().select(event).select("event.*")
    sums = frame.groupBy("paid").agg(F.count("*").alias("rows"), F.sum("amount"), F.max("id"))
    job.check(sum(row["rows"] for row in sums.collect()))


def write(job: Job, folder: Path) -> None:
    """Rows of 100 bytes, which cost Spark little to make."""
    value = F.rpad(F.col("id").cast("string"), VALUE_BYTES, "x").cast("binary").alias("value")
    job.write(job.session.range(job.rows, numPartitions=6).select(value))


def write_json(job: Job, folder: Path) -> None:
    """Five typed fields to JSON."""
    number = F.col("id")
    user = F.concat(F.lit("user-"), (number % _SPREAD).cast("string"))
    fields = F.struct(
        number.alias("id"),
        user.alias("user"),
        (number / 100).alias("amount"),
        (number % 3 == 0).alias("paid"),
        F.lit("2026-01-31T12:00:00Z").alias("at"),
    )
    job.write(job.session.range(job.rows, numPartitions=6).select(F.to_json(fields).alias("value")))


def stream(job: Job, folder: Path) -> None:
    """A stream of all rows that ends with the last one."""
    found = 0

    def take(frame: Any, batch_id: int) -> None:
        nonlocal found
        row = frame.agg(F.count("*"), F.sum(F.length("value"))).first()
        found += row[0]

    writer = job.stream(VALUE).writeStream.foreachBatch(take).trigger(availableNow=True)
    query = writer.option("checkpointLocation", job.checkpoint(folder)).start()
    query.awaitTermination()
    job.check(found)


def follow(job: Job, folder: Path) -> Figures:
    """A stream beside a producer, batch after batch, until all its rows have come."""
    delays: list[tuple[float, float]] = []
    """Of rows: milliseconds, by when they were looked at."""

    def take(frame: Any, batch_id: int) -> None:
        sent = [row[0] for row in frame.select(F.unix_millis("timestamp")).collect()]
        now = time.time()
        delays.extend((now, 1000 * now - one) for one in sent)

    writer = job.stream().writeStream.foreachBatch(take)
    query = writer.option("checkpointLocation", job.checkpoint(folder)).start()
    feed = (job.bootstrap, job.topic, spark_feed.ROWS_PER_S, job.rows)
    command = [sys.executable, "-m", "benches.spark_feed", *map(str, feed)]
    subprocess.run(command, check=True)
    query.processAllAvailable()
    query.stop()
    job.check(len(delays))
    begin = min(now for now, _ in delays) + spark_feed.WARM_S
    found = sorted(delay for now, delay in delays if now >= begin)
    return {f"p{at}_ms": found[len(found) * at // 100] for at in (50, 99)}


JOBS: dict[str, Callable[[Job, Path], Figures | None]] = {
    "read": read,
    "read-json": read_json,
    "write": write,
    "write-json": write_json,
    "stream": stream,
    "follow": follow,
}
WARM_ITSELF = ("follow",)


def session(format_: str, folder: Path, jars: str) -> Any:
    """With the Java heap that Spark has by default."""
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("pyrklog-bench")
        .config("spark.ui.enabled", False)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.warehouse.dir", str(folder))
        .config("spark.log.level", "ERROR")
        .config("spark.pyspark.python", sys.executable)
        .config("spark.executorEnv.PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    )
    if format_ == "kafka":
        return builder.config("spark.jars", jars).getOrCreate()
    made = builder.getOrCreate()
    pyrklog.spark.register(made)
    made.dataSource.register(Floor)
    return made


def main(
    format_: str, name: str, bootstrap: str, topic: str, rows: str, folder: str, jars: str = ""
) -> None:
    place = Path(folder)
    spark = session(format_, place, jars)
    job = Job(spark, format_, bootstrap, topic, int(rows))
    if name not in WARM_ITSELF:
        JOBS[name](job, place)
    before, began = process.usage(os.getpid()).cpu_s, time.monotonic()
    more = JOBS[name](job, place) or {}
    seconds = time.monotonic() - began
    cpu_s = process.usage(os.getpid()).cpu_s - before
    print(json.dumps({"rows": job.rows, "seconds": seconds, "cpu_s": cpu_s, **more}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
