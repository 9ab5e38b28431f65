"""Windows and sessions: flights of each carrier by the hour, and the working days of planes.

In append mode a window is written once, when the watermark has passed its end: the watermark is the
latest time seen less a day, and rows before it are dropped. So one partition may be a day behind
another, and results come a day late. (Output mode ``update`` writes every change at once instead,
as Kafka Streams does; readers then take the last record of a key.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from pyrklog.spark.pipelines.run import FLIGHT, Run, keyed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

LATE_AT_MOST = "1 day"
REST = "330 minutes"
"""A plane that does not start for so long has ended its day."""


def start(run: Run) -> list[StreamingQuery]:
    flights = run.rows("flights", FLIGHT)
    return [
        run.to_topic(keyed(by_hour(flights), "carrier"), "flights-by-hour"),
        run.to_topic(keyed(days(flights), "tailnum"), "plane-days"),
    ]


def by_hour(flights: DataFrame) -> DataFrame:
    """``window("time", "1 hour", "10 minutes")`` would be hopping windows."""
    return (
        flights.withWatermark("time", LATE_AT_MOST)
        .groupBy(f.window("time", "1 hour"), "carrier")
        .agg(f.count("*").alias("flights"), f.sum("dep_delay").alias("delay"))
        .select("carrier", f.col("window.start").alias("hour"), "flights", "delay")
    )


def days(flights: DataFrame) -> DataFrame:
    return (
        flights.withWatermark("time", LATE_AT_MOST)
        .where("tailnum IS NOT NULL")
        .groupBy(f.session_window("time", REST).alias("day"), "tailnum")
        .agg(f.count("*").alias("flights"), f.max("time").alias("last"))
        .select("tailnum", f.col("day.start").alias("first"), "last", "flights")
    )
