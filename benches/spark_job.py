"""One job of Spark on ``local[2]``: ``python -m benches.spark_job FORMAT JOB BOOTSTRAP TOPIC ROWS
FOLDER [JARS]``. FORMAT is ``pyrklog``, or ``kafka`` for the stock connector with its jars, with
commas. JOB is one of ``JOBS``.

Runs it once to warm up, and once more, and prints a line of JSON: rows, seconds and CPU seconds of
the second run; those of the driver, Java's process and Python's workers.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import pyrklog.spark
from benches import process

VALUE_BYTES = 100
EVENT = "id LONG, user STRING, amount DOUBLE, paid BOOLEAN, at STRING"
_SPREAD = 9_973


class Job:
    """What a job needs: a session and a topic, read or written by one of the formats."""

    def __init__(self, session: Any, format_: str, bootstrap: str, topic: str, rows: int) -> None:
        self.session, self.format, self.rows = session, format_, rows
        self._options = {"kafka.bootstrap.servers": bootstrap}
        self._topic = topic
        self._runs = 0

    def read(self) -> Any:
        return self._read(self.session.read)

    def stream(self) -> Any:
        return self._read(self.session.readStream.option("startingOffsets", "earliest"))

    def _read(self, reader: Any) -> Any:
        return reader.format(self.format).options(**self._options, subscribe=self._topic).load()

    def write(self, frame: Any) -> None:
        named = frame.write.format(self.format).options(**self._options, topic=self._topic)
        named.mode("append").save()

    def checkpoint(self, folder: Path) -> str:
        self._runs += 1
        return str(folder / f"{self.format}-{self._runs}")

    def check(self, found: int) -> None:
        if found != self.rows:
            raise SystemExit(f"{self._topic} has {self.rows} rows; {found} were read")


def read(job: Job, folder: Path) -> None:
    """A sum over the values, so that each one is looked at."""
    row = job.read().agg(F.count("*"), F.sum(F.length("value"))).first()
    job.check(row[0])


def read_json(job: Job, folder: Path) -> None:
    """Five typed fields of JSON, and a group by one of them."""
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

    writer = job.stream().writeStream.foreachBatch(take).trigger(availableNow=True)
    query = writer.option("checkpointLocation", job.checkpoint(folder)).start()
    query.awaitTermination()
    job.check(found)


JOBS: dict[str, Callable[[Job, Path], None]] = {
    "read": read,
    "read-json": read_json,
    "write": write,
    "write-json": write_json,
    "stream": stream,
}


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
    return made


def main(
    format_: str, name: str, bootstrap: str, topic: str, rows: str, folder: str, jars: str = ""
) -> None:
    place = Path(folder)
    spark = session(format_, place, jars)
    job = Job(spark, format_, bootstrap, topic, int(rows))
    JOBS[name](job, place)
    before, began = process.usage(os.getpid()).cpu_s, time.monotonic()
    JOBS[name](job, place)
    seconds = time.monotonic() - began
    cpu_s = process.usage(os.getpid()).cpu_s - before
    print(json.dumps({"rows": job.rows, "seconds": seconds, "cpu_s": cpu_s}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
