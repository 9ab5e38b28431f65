"""``format("floor")``: what any sink in Python costs; it takes Arrow batches and drops them."""

from collections.abc import Iterator

import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType


class DroppingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            continue
        return WriterCommitMessage()


class Floor(DataSource):
    @classmethod
    def name(cls) -> str:
        return "floor"

    def writer(self, schema: StructType, overwrite: bool) -> DroppingWriter:
        return DroppingWriter()
