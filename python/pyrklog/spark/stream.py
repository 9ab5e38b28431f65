"""Spark's class for streams."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyrklog.spark.cluster import KafkaCluster
from pyrklog.spark.group_commit import KafkaGroup
from pyrklog.spark.high_watermarks import KafkaHighWatermarks
from pyrklog.spark.offsets import Json
from pyrklog.spark.options import SourceOptions
from pyrklog.spark.reader import Task, read_task
from pyrklog.spark.resolve import require_bad_topic
from pyrklog.spark.sizes import SampledSizes
from pyrklog.spark.stream_engine import StreamEngine

if TYPE_CHECKING:
    import pyarrow


class PyrklogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. Pickled to executors, where only ``read`` is called: the engine, with its
    connections, is made with the first question on the driver."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._engine: StreamEngine | None = None

    def initialOffset(self) -> Json:
        return self._on_driver().initial()

    def prepareForTriggerAvailableNow(self) -> None:
        self._on_driver().prepare_available_now()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark has no limit of several kinds: it is told one of the options', and all are kept."""
        limits = self._options.limits
        if limits.records is not None:
            return ReadMaxRows(limits.records)
        if limits.bytes is not None:
            return ReadMaxBytes(limits.bytes)
        if self._options.min_records is not None:
            return ReadMinRows(self._options.min_records)
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        is_limited = not isinstance(limit, ReadAllAvailable)
        return self._on_driver().latest(start, is_limited=is_limited)

    def reportLatestOffset(self) -> Json | None:
        return self._on_driver().report()

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        return [Task(one) for one in self._on_driver().tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return read_task(partition, self._options, self._schema)

    def commit(self, end: Json) -> None:
        self._on_driver().commit(end)

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.stop()
            self._engine = None

    def _on_driver(self) -> StreamEngine:
        if self._engine is None:
            options = self._options
            connection = options.connection
            group = options.commit_group
            cluster = KafkaCluster(connection)
            try:
                require_bad_topic(cluster, options)
                self._engine = StreamEngine(
                    options,
                    cluster,
                    KafkaHighWatermarks(connection),
                    SampledSizes(connection, with_headers=options.include_headers),
                    None if group is None else KafkaGroup(connection, group),
                    time.monotonic,
                    time.sleep,
                )
            except Exception:
                cluster.close()
                raise
        return self._engine
