"""PostgreSQL's table to a topic: its rows as they are, then each change, once.

By logical decoding, or, where the server has no ``wal_level=logical``, by a column that rises with
each change of a row; that sees no deletions. Keys and values are Debezium's in JSON. What is
promised: ``docs/understanding/spark-postgres.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrklog.spark.pipelines.run import Run

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def start(run: Run, conninfo: str, watermark: str | None = None) -> list[StreamingQuery]:
    """``conninfo``: as libpq takes it; passwords better in its password file."""
    reader = (
        run.spark.readStream.format("pyrklog-postgres")
        .option("conninfo", conninfo)
        .option("tables", "planes")
    )
    if watermark is not None:
        reader = reader.option("watermark", watermark)
    else:
        # A slot belongs to a checkpoint, and keeps the server's log until it is dropped.
        reader = reader.option("slot", run.app_id("planes-changes").replace("-", "_"))
    if run.records_a_batch is not None:
        reader = reader.option("maxChangesPerTrigger", run.records_a_batch)
    return [run.to_topic(reader.load().select("key", "value"), "planes-changes")]
