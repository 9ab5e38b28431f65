"""Deduplication: records that a producer sent again, by an id in their values.

An id is kept until the watermark is a day behind it, so state is bounded. For duplicates at any
distance write to a table by upsert, or to a compacted topic by key, instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from pyrklog.spark.pipelines.run import FLIGHT, Run

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LATE_AT_MOST = "1 day"


def start(run: Run) -> list[StreamingQuery]:
    record = f.from_json(f.col("value").cast("string"), FLIGHT)
    once = (
        run.stream("flights-twice")
        .select("key", "value", record["id"].alias("id"), record["time"].alias("time"))
        .withWatermark("time", LATE_AT_MOST)
        .dropDuplicatesWithinWatermark(["id"])
        .select("key", "value")
    )
    return [run.to_topic(once, "flights-once")]
