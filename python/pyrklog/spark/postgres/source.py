"""The data source that Spark knows as ``pyrklog-postgres``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from pyrklog.spark.postgres.changes import (
    ChangesEngine,
    ChangesTask,
    SnapshotTask,
    read_changes,
    read_snapshot,
)
from pyrklog.spark.postgres.events import Record
from pyrklog.spark.postgres.options import PostgresOptions, parse
from pyrklog.spark.postgres.positions import Json
from pyrklog.spark.postgres.watermark import MarkTask, WatermarkEngine, read_marks

COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("table", StringType()),
        StructField("lsn", LongType()),
    ]
)


class PostgresSource(DataSource):
    """``format("pyrklog-postgres")``, for streams; options: ``docs/using/spark.md``."""

    @classmethod
    def name(cls) -> str:
        return "pyrklog-postgres"

    def schema(self) -> StructType:
        return COLUMNS

    def streamReader(self, schema: StructType) -> PostgresStreamReader:
        return PostgresStreamReader(parse(self.options))


class Engine(Protocol):
    def initial(self) -> Json: ...
    def prepare_available_now(self) -> None: ...
    def latest(self, start: Json) -> Json: ...
    def tasks(self, start: Json, end: Json) -> Sequence[SnapshotTask | ChangesTask | MarkTask]: ...
    def commit(self, end: Json) -> None: ...
    def stop(self) -> None: ...


@dataclass
class Task(InputPartition):
    """What one of Spark's tasks reads."""

    what: SnapshotTask | ChangesTask | MarkTask


class PostgresStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Pickled to executors, where only ``read`` is called: the engine, with its connections, is
    made with the first question on the driver."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._engine: Engine | None = None

    def initialOffset(self) -> Json:
        return self._on_driver().initial()

    def prepareForTriggerAvailableNow(self) -> None:
        self._on_driver().prepare_available_now()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option's limit is of changes, which Spark has no word for."""
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        return self._on_driver().latest(start)

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        return [Task(one) for one in self._on_driver().tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Record]:
        assert isinstance(partition, Task)
        match partition.what:
            case SnapshotTask() as task:
                return read_snapshot(self._options, task)
            case ChangesTask() as task:
                return read_changes(self._options, task)
            case task:
                return read_marks(self._options, task)

    def commit(self, end: Json) -> None:
        self._on_driver().commit(end)

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.stop()
            self._engine = None

    def _on_driver(self) -> Engine:
        if self._engine is None:
            if self._options.watermark is None:
                self._engine = ChangesEngine(self._options)
            else:
                self._engine = WatermarkEngine(self._options)
        return self._engine
