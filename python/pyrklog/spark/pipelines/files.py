"""A topic to Parquet, a folder an hour, each record once, and few files.

How the folders are laid out, and why a kill at any moment neither loses nor doubles rows:
``pyrklog.spark.pipelines.hours``. Read them with its ``read``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from pyrklog.spark.pipelines import hours
from pyrklog.spark.pipelines.run import FLIGHT, Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


def start(run: Run) -> list[StreamingQuery]:
    return [to_hours(run, run.folder / "flights-by-hour", commitGroup="flights-offline")]


def to_hours(run: Run, folder: Path, **options: str) -> StreamingQuery:
    # At the start of a query any hour may have many files.
    touched: Sequence[str] | None = None

    def write(flights: DataFrame, batch: int) -> None:
        nonlocal touched
        # What is before this batch is finished: Spark repeats none of it any more.
        hours.compact(folder, before=batch, names=touched)
        staging = hours.staging(folder)
        # In UTC, which has no hour twice.
        utc = f.to_utc_timestamp("time", f.current_timezone())
        (
            flights.withColumn("hour", f.date_format(utc, "yyyy-MM-dd'T'HH"))
            .repartition("hour")
            .write.mode("overwrite")
            .partitionBy("hour")
            .parquet(str(staging))
        )
        touched = hours.publish(folder, batch)

    return run.writer(run.rows("flights", FLIGHT, **options), "files").foreachBatch(write).start()
