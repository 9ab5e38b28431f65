"""How many bytes a record has: estimated from a sample, since Kafka cannot be asked."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyrklog.scanning import (
    LogTruncatedError,
    OffsetOutOfRangeError,
    Scan,
    TopicDeletedError,
    UnknownTopicError,
    scan,
)
from pyrklog.spark.connection import Connection
from pyrklog.spark.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    import pyarrow

SAMPLE_OFFSETS = 100
SAMPLE_BYTES_MAX = 64 << 20
"""A hundred records may have a hundred megabytes each: a sample of a topic ends with the batch that
reaches this."""
OTHER_COLUMNS_BYTES = 40
"""Of topic, partition, offset, timestamp and its type in a row of Spark's."""

# What is not there any more is told by those who read it: as a loss, if it is one.
_GONE = (LogTruncatedError, OffsetOutOfRangeError, TopicDeletedError, UnknownTopicError)

logger = logging.getLogger("pyrklog.spark")


class Sizes(Protocol):
    """Estimates of records' sizes."""

    def record_bytes(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, float]:
        """Bytes per offset, above 0, of the partition of each range."""


@dataclass
class Sample:
    """Records of one partition, from the offset ``first`` to ``last``."""

    bytes: float
    first: int
    last: int

    @property
    def bytes_per_offset(self) -> float:
        return self.bytes / (self.last + 1 - self.first)

    def add(self, other: Sample) -> None:
        self.bytes += other.bytes
        self.first = min(self.first, other.first)
        self.last = max(self.last, other.last)


class SampledSizes:
    """Reads the first ``SAMPLE_OFFSETS`` offsets of each range: keys, values, headers. Where they
    have no record, as in a compacted log, the first records behind them are read. Where records are
    so large that ``SAMPLE_BYTES_MAX`` ends the sample, partitions that it did not reach count as
    the one with the largest of their topic."""

    def __init__(self, connection: Connection, *, with_headers: bool) -> None:
        self._connection = connection
        self._columns = ["topic", "partition", "offset", "key", "value"]
        if with_headers:
            self._columns.append("headers")

    def record_bytes(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, float]:
        """Of several ranges of a partition the first counts. 1 for what has no record, and for
        topics that are gone: that is told when they are read. Raises ScanError."""
        first: dict[TopicPartition, OffsetRange] = {}
        for one in ranges:
            if one.size > 0:
                first.setdefault(one.place, one)
        if not first:
            return {}
        samples: dict[TopicPartition, Sample] = {}
        begins = [one._replace(end=_sample_end(one)) for one in first.values()]
        gone = self._sample(begins, samples)
        sizes = {place: sample.bytes_per_offset for place, sample in samples.items()}
        is_cut = sum(sample.bytes for sample in samples.values()) >= SAMPLE_BYTES_MAX
        largest: dict[str, float] = {}
        for place, size in sizes.items() if is_cut else ():
            largest[place.topic] = max(size, largest.get(place.topic, 0.0))
        for place, one in first.items():
            if place in sizes or place.topic in gone:
                continue
            if place.topic in largest:
                sizes[place] = largest[place.topic]
            else:
                behind = one if is_cut else one._replace(start=_sample_end(one))
                found = self._first_behind(behind) if behind.size > 0 else None
                if found is not None:
                    sizes[place] = found.bytes_per_offset
        return {place: max(sizes.get(place, 0.0), 1.0) for place in first}

    def _sample(
        self, ranges: Sequence[OffsetRange], samples: dict[TopicPartition, Sample]
    ) -> set[str]:
        """Adds to ``samples`` what is read, and gives the topics that could not be read whole."""
        topics = sorted({one.topic for one in ranges})
        read: dict[TopicPartition, Sample] = {}
        try:
            with self._scan(ranges) as reading:
                for batch in reading.reader():
                    _add(read, samples_of(batch))
                    if sum(sample.bytes for sample in read.values()) >= SAMPLE_BYTES_MAX:
                        break
        except _GONE as loss:
            if len(topics) > 1:
                # Which one it is, the scan does not say.
                alone = ([one for one in ranges if one.topic == topic] for topic in topics)
                return set[str]().union(*(self._sample(some, samples) for some in alone))
            logger.info("the sizes of records in topic %s are not known: %s", topics[0], loss)
            _add(samples, read)
            return set(topics)
        _add(samples, read)
        return set()

    def _first_behind(self, one: OffsetRange) -> Sample | None:
        """The first records of a range, None if it has none."""
        try:
            with self._scan([one], batch_rows=SAMPLE_OFFSETS) as reading:
                for batch in reading.reader():
                    if batch.num_rows:
                        return samples_of(batch)[one.place]
        except _GONE as loss:
            logger.info("the sizes of records in %s are not known: %s", one.place, loss)
        return None

    def _scan(self, ranges: Sequence[OffsetRange], batch_rows: int = 65_536) -> Scan:
        topics: dict[str, list[int]] = {}
        starts: dict[str, dict[int, int]] = {}
        ends: dict[str, dict[int, int]] = {}
        for one in ranges:
            topics.setdefault(one.topic, []).append(one.partition)
            starts.setdefault(one.topic, {})[one.partition] = one.start
            ends.setdefault(one.topic, {})[one.partition] = one.end
        return scan(
            topics,
            start=starts,
            end=ends,
            columns=self._columns,
            missing="skip",
            batch_rows=batch_rows,
            **self._connection.scan_arguments(),
        )


def samples_of(batch: pyarrow.RecordBatch) -> dict[TopicPartition, Sample]:
    """Each partition's rows; headers are shared out evenly among a batch's rows."""
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
            "offset": batch.column("offset"),
            "size": pyarrow.compute.add(*lengths),
        }
    )
    other = float(OTHER_COLUMNS_BYTES)
    if "headers" in batch.schema.names and batch.num_rows:
        other += batch.column("headers").nbytes / batch.num_rows
    grouped = table.group_by(["topic", "partition"]).aggregate(
        [("size", "sum"), ("size", "count"), ("offset", "min"), ("offset", "max")]
    )
    return {
        TopicPartition(row["topic"], row["partition"]): Sample(
            row["size_sum"] + other * row["size_count"], row["offset_min"], row["offset_max"]
        )
        for row in grouped.to_pylist()
    }


def _add(samples: dict[TopicPartition, Sample], others: dict[TopicPartition, Sample]) -> None:
    for place, sample in others.items():
        if place in samples:
            samples[place].add(sample)
        else:
            samples[place] = sample


def _sample_end(one: OffsetRange) -> int:
    return min(one.end, one.start + SAMPLE_OFFSETS)
