"""Where a pipeline runs: the cluster, the folder of its checkpoints, how often a batch begins."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FLIGHT = """
    id LONG, time TIMESTAMP, carrier STRING, tailnum STRING, origin STRING, dest STRING,
    dep_delay INT
"""
WEATHER = "time TIMESTAMP, origin STRING, temp DOUBLE, visib DOUBLE"
PLANE = "tailnum STRING, manufacturer STRING, seats INT"


@dataclass(frozen=True)
class Run:
    """Arguments that all pipelines share. Topics must exist."""

    spark: SparkSession
    bootstrap: str
    folder: Path
    """Of checkpoints and files: as durable as what is written."""
    trigger: Mapping[str, Any] = field(default_factory=lambda: {"availableNow": True})
    records_a_batch: int | None = None

    def app_id(self, name: str) -> str:
        """Of the batch writes of a query: in its checkpoint, and lost with it, so that a new
        checkpoint, whose batches count from 0 again, is not taken for the old one."""
        folder = self.folder / "checkpoints" / name
        place = folder / "app-id"
        if not place.exists():
            folder.mkdir(parents=True, exist_ok=True)
            draft = folder / ".app-id"
            with draft.open("w") as file:
                file.write(f"{name}-{secrets.token_hex(8)}")
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, place)
        return place.read_text()

    def stream(self, topic: str, **options: str) -> DataFrame:
        """All records, from the first on, as keys and values in bytes."""
        if self.records_a_batch is not None:
            options["maxOffsetsPerTrigger"] = str(self.records_a_batch)
        return (
            self.spark.readStream.format("pyrklog")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .options(**options)
            .load()
        )

    def rows(self, topic: str, schema: str, **options: str) -> DataFrame:
        """The same as columns, of values in JSON."""
        return parsed(self.stream(topic, **options), schema)

    def writer(self, frame: DataFrame, name: str) -> DataStreamWriter:
        """Without a sink. A checkpoint belongs to one query: ``name`` is its folder's."""
        return (
            frame.writeStream.queryName(name)
            .option("checkpointLocation", str(self.folder / "checkpoints" / name))
            .trigger(**self.trigger)
        )

    def to_topic(
        self, frame: DataFrame, topic: str, *, bootstrap: str | None = None, name: str | None = None
    ) -> StreamingQuery:
        """Rows of ``key`` and ``value``, each once for readers of committed records."""
        return (
            self.writer(frame, name or topic)
            .format("pyrklog")
            .option("kafka.bootstrap.servers", bootstrap or self.bootstrap)
            .option("topic", topic)
            .option("delivery", "exactly_once")
            .start()
        )


def parsed(frame: DataFrame, schema: str) -> DataFrame:
    """The values of records, in JSON, as columns."""
    value = f.from_json(f.col("value").cast("string"), schema)
    return frame.select(value.alias("row")).select("row.*")


def keyed(frame: DataFrame, key: str) -> DataFrame:
    """Rows as records: a key, and all columns as JSON."""
    return frame.select(f.col(key).alias("key"), f.to_json(f.struct("*")).alias("value"))
