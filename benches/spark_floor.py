"""``format("floor")``: what any source or sink in Python costs.

The sink takes Arrow batches and drops them. The source gives the number of rows that the option
``rows`` says, of 100 bytes, from one batch: as a table, and as a stream of which all is there.
"""

from collections.abc import Iterator

import pyarrow
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

_PARTITIONS = 6
# As the source of `format("pyrklog")` makes them.
_BATCH_ROWS = 10_000
_VALUE = bytes(range(100))


class Rows(InputPartition):
    """So many rows of a table or stream."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        values = pyarrow.array([_VALUE] * min(_BATCH_ROWS, self.count), pyarrow.binary())
        batch = pyarrow.record_batch([values], names=["value"])
        for start in range(0, self.count, _BATCH_ROWS):
            yield batch.slice(0, min(_BATCH_ROWS, self.count - start))


def parts(rows: int) -> list[Rows]:
    """As many rows in each partition, but for one more in the first ones."""
    each, more = divmod(rows, _PARTITIONS)
    return [Rows(each + (index < more)) for index in range(_PARTITIONS)]


class FixedReader(DataSourceReader):
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def partitions(self) -> list[Rows]:
        return parts(self._rows)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        assert isinstance(partition, Rows)
        return partition.batches()


class FixedStreamReader(DataSourceStreamReader):
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"rows": self._rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Rows]:
        return parts(end["rows"] - start["rows"])

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        assert isinstance(partition, Rows)
        return partition.batches()


class DroppingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            continue
        return WriterCommitMessage()


class Floor(DataSource):
    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> str:
        return "value BINARY"

    def reader(self, schema: StructType) -> FixedReader:
        return FixedReader(int(self.options["rows"]))

    def streamReader(self, schema: StructType) -> FixedStreamReader:
        return FixedStreamReader(int(self.options["rows"]))

    def writer(self, schema: StructType, overwrite: bool) -> DroppingWriter:
        return DroppingWriter()
