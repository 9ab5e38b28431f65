"""One topic, three groups: a dashboard, an offline batch in Parquet, and a mirror.

Each is a query with a checkpoint of its own. None waits for another, and each commits its offsets
for a group, so that tools show how far it is behind: ``pyrklog group describe flights-mirror``.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from pyrklog.spark.pipelines import files
from pyrklog.spark.pipelines.run import FLIGHT, Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


def start(run: Run, mirror: str) -> list[StreamingQuery]:
    """``mirror``: the bootstrap servers of the other cluster, where the topic has as many
    partitions."""
    return [dashboard(run), *files.start(run), copy(run, mirror)]


def dashboard(run: Run) -> StreamingQuery:
    """``dashboard.json``: flights and delays of each carrier as of the last batch."""
    carriers = (
        run.rows("flights", FLIGHT, commitGroup="flights-dashboard")
        .groupBy("carrier")
        .agg(f.count("*").alias("flights"), f.avg("dep_delay").alias("delay"))
    )

    def show(frame: DataFrame, batch: int) -> None:
        rows = [row.asDict() for row in frame.orderBy("carrier").collect()]
        draft, place = run.folder / ".dashboard.json", run.folder / "dashboard.json"
        draft.write_text(json.dumps({"batch": batch, "carriers": rows}))
        os.replace(draft, place)

    return run.writer(carriers, "dashboard").outputMode("complete").foreachBatch(show).start()


def copy(run: Run, mirror: str) -> StreamingQuery:
    """Keys, values, headers, times and partitions are kept, and the order within a partition;
    offsets are the other cluster's."""
    records = run.stream("flights", includeHeaders="true", commitGroup="flights-mirror")
    kept = records.select("key", "value", "headers", "partition", "timestamp")
    return run.to_topic(kept, "flights", bootstrap=mirror, name="mirror")
