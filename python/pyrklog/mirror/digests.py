"""Digests of records that do not depend on how they lie in batches."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow

COLUMNS = ("key", "value", "headers", "timestamp", "offset")
"""Of a scan whose batches are compared."""
RANGE_RECORDS = 10_000
_DIGEST_BYTES = 16


class RangeDigest(NamedTuple):
    """Of consecutive records: the first and the last offset, how many they are, and the digests of
    key, value, headers and timestamp, and that of the offsets."""

    first: int
    last: int
    records: int
    digests: tuple[bytes, ...]
    offsets: bytes = b""


class _Column:
    """Lengths and contents apart; a null has the length -1."""

    def __init__(self) -> None:
        self._lengths = blake2b(digest_size=_DIGEST_BYTES)
        self._data = blake2b(digest_size=_DIGEST_BYTES)

    def add(self, column: Any) -> None:
        import pyarrow.compute as pc

        if len(column) == 0:
            return
        self._lengths.update(_numbers(pc.fill_null(pc.binary_length(column), -1), 4))
        _, offsets, data = column.buffers()
        (begin,) = struct.unpack_from("<i", offsets, 4 * column.offset)
        (end,) = struct.unpack_from("<i", offsets, 4 * (column.offset + len(column)))
        if end > begin:
            self._data.update(memoryview(data)[begin:end])

    def digest(self) -> bytes:
        return self._lengths.digest() + self._data.digest()


class _Range:
    def __init__(self) -> None:
        self.records = 0
        self._first = self._last = -1
        self._key, self._value = _Column(), _Column()
        self._counts = blake2b(digest_size=_DIGEST_BYTES)
        self._names, self._contents = _Column(), _Column()
        self._times = blake2b(digest_size=_DIGEST_BYTES)
        self._offsets = blake2b(digest_size=_DIGEST_BYTES)

    def add(self, batch: pyarrow.RecordBatch) -> None:
        import pyarrow
        import pyarrow.compute as pc

        self._first = batch.column("offset")[0].as_py() if self.records == 0 else self._first
        self._last = batch.column("offset")[-1].as_py()
        self.records += batch.num_rows
        self._key.add(batch.column("key"))
        self._value.add(batch.column("value"))
        headers = batch.column("headers")
        # None and no headers are the same record.
        self._counts.update(_numbers(pc.fill_null(pc.list_value_length(headers), 0), 4))
        names, contents = headers.flatten().flatten()
        self._names.add(names)
        self._contents.add(contents)
        times = batch.column("timestamp").cast(pyarrow.int64())
        self._times.update(_numbers(pc.fill_null(times, -1), 8))
        self._offsets.update(_numbers(batch.column("offset"), 8))

    def result(self) -> RangeDigest:
        headers = self._counts.digest() + self._names.digest() + self._contents.digest()
        digests = (self._key.digest(), self._value.digest(), headers, self._times.digest())
        offsets = self._offsets.digest()
        return RangeDigest(self._first, self._last, self.records, digests, offsets)


def _numbers(column: Any, width: int) -> memoryview:
    """The bytes of a column without nulls."""
    data = memoryview(column.buffers()[1])
    return data[width * column.offset : width * (column.offset + len(column))]


def ranges(
    batches: Iterable[pyarrow.RecordBatch], skip: int = 0, records: int = RANGE_RECORDS
) -> Iterator[RangeDigest]:
    """Digests of each so many records of one partition, without the first ``skip``."""
    open_range = _Range()
    for batch in batches:
        at = min(skip, batch.num_rows)
        skip -= at
        while at < batch.num_rows:
            count = min(batch.num_rows - at, records - open_range.records)
            open_range.add(batch.slice(at, count))
            at += count
            if open_range.records == records:
                yield open_range.result()
                open_range = _Range()
    if open_range.records:
        yield open_range.result()


def record_digest(value: bytes | None, headers: Any, timestamp: Any) -> bytes | None:
    """Of what belongs to a key; None for a tombstone."""
    if value is None:
        return None
    found = blake2b(value, digest_size=_DIGEST_BYTES)
    pairs = [(one["key"], one["value"]) for one in headers or ()]
    found.update(repr((len(value), pairs, timestamp)).encode())
    return found.digest()


def key_digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()
