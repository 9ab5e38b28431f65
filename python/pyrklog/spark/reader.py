"""Spark's classes for tasks, and for batch reads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from pyrklog.spark.batch_plan import plan_batch
from pyrklog.spark.cluster import KafkaCluster
from pyrklog.spark.columns import converted, value_of
from pyrklog.spark.decoding import is_judged, scan_arguments
from pyrklog.spark.filters import conditions
from pyrklog.spark.high_watermarks import KafkaHighWatermarks
from pyrklog.spark.last_values import columns_to_read, last_values, local_folder
from pyrklog.spark.narrowing import EVERYWHERE, Narrowing, narrowing
from pyrklog.spark.offsets import OffsetRange
from pyrklog.spark.options import SourceOptions
from pyrklog.spark.reading import read_range
from pyrklog.spark.resolve import require_bad_topic
from pyrklog.spark.sizes import SampledSizes

if TYPE_CHECKING:
    import pyarrow


class Task(InputPartition):
    """One range, as Spark sends it to an executor."""

    def __init__(self, one: OffsetRange) -> None:
        super().__init__(one)
        self.one = one


def read_task(
    partition: InputPartition, options: SourceOptions, schema: StructType
) -> Iterator[pyarrow.RecordBatch]:
    """What a task gives. Spark makes a partition of its own if there is none: it has no rows."""
    if not isinstance(partition, Task):
        return
    columns = schema.fieldNames()
    wanted = columns_to_read(columns) if options.is_table else columns
    decode = None
    if options.decoding is not None:
        asked = value_of(schema)
        # Without the column a value that does not fit still says whether there is a row, and goes
        # to its topic.
        if asked is not None or is_judged(options.decoding):
            wanted = [*wanted, *([] if asked is not None else ["value"])]
            decode = scan_arguments(options.decoding, asked)
    batches = read_range(
        partition.one,
        wanted,
        options.connection,
        fail_on_data_loss=options.fail_on_data_loss,
        decode=decode,
    )
    if options.is_table:
        batches = last_values(batches, columns, str(partition.one.place), local_folder(os.environ))
    yield from converted(batches, schema)


class PyrklogReader(DataSourceReader):
    """A batch read. Pickled to executors: it holds options, and no connection."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._narrowing: Narrowing = EVERYWHERE

    def partitions(self) -> list[InputPartition]:
        cluster = KafkaCluster(self._options.connection)
        high_watermarks = KafkaHighWatermarks(self._options.connection)
        sizes = SampledSizes(self._options.connection, with_headers=self._options.include_headers)
        try:
            require_bad_topic(cluster, self._options)
            planned = plan_batch(self._options, cluster, high_watermarks, sizes, self._narrowing)
            return [Task(one) for one in planned]
        finally:
            cluster.close()
            high_watermarks.close()

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return read_task(partition, self._options, self._schema)


class NarrowedReader(PyrklogReader):
    """A batch read that leaves out what the query's filters do not want. Spark refuses readers with
    this method while its configuration does not push filters down, whatever the query is."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Gives all of them back: Spark filters the rows that are left."""
        self._narrowing = narrowing(conditions(filters))
        return filters
