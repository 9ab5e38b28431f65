"""How many bytes a record has: estimated from a sample, since Kafka cannot be asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from pyrklog.scanning import scan
from pyrklog.spark.connection import Connection
from pyrklog.spark.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    import pyarrow

SAMPLE_OFFSETS = 100
OTHER_COLUMNS_BYTES = 40
"""Of topic, partition, offset, timestamp and its type in a row of Spark's."""


class Sizes(Protocol):
    """Estimates of records' sizes."""

    def record_bytes(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, float]:
        """Bytes per offset, above 0, of the partition of each range."""


class SampledSizes:
    """Reads the first ``SAMPLE_OFFSETS`` offsets of each range: keys, values, headers."""

    def __init__(self, connection: Connection, *, with_headers: bool) -> None:
        self._connection = connection
        self._columns = ["topic", "partition", "key", "value"]
        if with_headers:
            self._columns.append("headers")

    def record_bytes(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, float]:
        """Of several ranges of a partition the first counts. Raises ScanError."""
        first: dict[TopicPartition, OffsetRange] = {}
        for one in ranges:
            if one.size > 0:
                first.setdefault(one.place, one)
        if not first:
            return {}
        sums = dict.fromkeys(first, 0.0)
        topics: dict[str, list[int]] = {}
        starts: dict[str, dict[int, int]] = {}
        ends: dict[str, dict[int, int]] = {}
        for place, one in first.items():
            topics.setdefault(place.topic, []).append(place.partition)
            starts.setdefault(place.topic, {})[place.partition] = one.start
            ends.setdefault(place.topic, {})[place.partition] = _sample_end(one)
        with scan(
            topics,
            start=starts,
            end=ends,
            columns=self._columns,
            missing="skip",
            **self._connection.scan_arguments(),
        ) as sample:
            for batch in sample.reader():
                for place, size in batch_bytes(batch).items():
                    sums[place] += size
        return {
            place: max(size / (_sample_end(first[place]) - first[place].start), 1.0)
            for place, size in sums.items()
        }


def batch_bytes(batch: pyarrow.RecordBatch) -> dict[TopicPartition, float]:
    """The bytes of each partition's rows; headers are shared out evenly among a batch's rows."""
    import pyarrow
    import pyarrow.compute

    lengths = [
        pyarrow.compute.fill_null(
            pyarrow.compute.cast(pyarrow.compute.binary_length(batch.column(name)), "int64"), 0
        )
        for name in ("key", "value")
    ]
    table = pyarrow.table(
        {
            "topic": batch.column("topic"),
            "partition": batch.column("partition"),
            "size": pyarrow.compute.add(*lengths),
        }
    )
    other = float(OTHER_COLUMNS_BYTES)
    if "headers" in batch.schema.names and batch.num_rows:
        other += batch.column("headers").nbytes / batch.num_rows
    grouped = table.group_by(["topic", "partition"]).aggregate([("size", "sum"), ("size", "count")])
    return {
        TopicPartition(row["topic"], row["partition"]): row["size_sum"] + other * row["size_count"]
        for row in grouped.to_pylist()
    }


def _sample_end(one: OffsetRange) -> int:
    return min(one.end, one.start + SAMPLE_OFFSETS)
