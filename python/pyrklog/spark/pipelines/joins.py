"""Joins: flights with the weather of their hour, a stream; and with their planes, a table.

A stream joined with a stream: both sides are kept until the watermarks say that nothing more can
fit. A flight whose weather never came is written then, without.

A stream joined with a table: Spark plans a table once a query, so that it would stay as it was at
the start. In ``foreachBatch`` each batch reads it as it is then. The batch's number makes the write
exactly once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from pyrklog.spark.pipelines.run import FLIGHT, PLANE, WEATHER, Run, keyed, parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

LATE_AT_MOST = "1 day"


def start(run: Run) -> list[StreamingQuery]:
    return [
        run.to_topic(keyed(with_weather(run), "origin"), "flights-with-weather"),
        with_planes(run),
    ]


def with_weather(run: Run) -> DataFrame:
    flights = run.rows("flights", FLIGHT).withWatermark("time", LATE_AT_MOST)
    weather = run.rows("weather", WEATHER).withWatermark("time", LATE_AT_MOST)
    joined = flights.join(weather, ["origin", "time"], "left_outer")
    return joined.select("id", "origin", "time", "temp", "visib")


def with_planes(run: Run) -> StreamingQuery:
    name = "flights-with-planes"
    app_id = run.app_id(name)

    def write(flights: DataFrame, batch: int) -> None:
        planes = parsed(
            flights.sparkSession.read.format("pyrklog")
            .option("kafka.bootstrap.servers", run.bootstrap)
            .option("table", "planes")
            .load(),
            PLANE,
        )
        joined = flights.join(f.broadcast(planes), "tailnum", "left_outer")
        (
            keyed(joined.select("id", "tailnum", "manufacturer", "seats"), "tailnum")
            .write.format("pyrklog")
            .mode("append")
            .option("kafka.bootstrap.servers", run.bootstrap)
            .option("topic", name)
            .option("delivery", "exactly_once")
            .option("txnAppId", app_id)
            .option("txnVersion", batch)
            .save()
        )

    return run.writer(run.rows("flights", FLIGHT), name).foreachBatch(write).start()
