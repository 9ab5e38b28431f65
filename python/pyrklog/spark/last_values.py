"""The last row of each key, in bounded memory: what a compacted topic is as a table.

Rows come in the order of their offsets. They are held until there are too many, and those that a
later one of the same key replaces are dropped. If what is left is still too much it goes to files
by a hash of the key, and each file is then treated like the whole, with other bits of the hash. A
row without a value is a tombstone: it drops the rows of its key before it, and is not a row itself.
A row without a key belongs to no table: reading stops there, with a sentence.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

HELD_BYTES_MAX = 64 << 20
"""Of rows in memory; while some are dropped, keys and offsets of all are there once more, and those
that stay twice."""

FAN_OUT_BITS = 6
"""2^6 files a level: 2 GiB of different keys are read twice, 128 GiB three times."""
_HASH_BITS = 64
_ROWS_OF_A_BATCH = 16_384
_ALIVE = "is alive"


class NullKeyError(ValueError):
    """A record without a key in a topic that is read as a table."""


def last_values(
    batches: Iterable[pyarrow.RecordBatch],
    columns: Sequence[str],
    place: str,
    folder: str | None = None,
    *,
    held_bytes_max: int = HELD_BYTES_MAX,
) -> Iterator[pyarrow.RecordBatch]:
    """The last row of each key that has a value, with ``columns``, in no order.

    ``batches`` are of one partition, ``place``, and have the columns ``key``, ``value`` and
    ``offset``, which rises, besides those named. Temporary files are made in ``folder``, without
    names; None is the system's folder for such files. Raises OSError for them, and NullKeyError.
    """
    kept = _Kept(held_bytes_max, folder)
    try:
        for batch in batches:
            kept.add(_with_life(batch, columns, place))
        for batch in kept.rows():
            yield batch.select(columns)
    finally:
        kept.close()


def columns_to_read(columns: Sequence[str]) -> list[str]:
    """Those that ``last_values`` needs to give ``columns``."""
    return [*columns, *(name for name in ("key", "value", "offset") if name not in columns)]


def local_folder(environment: Mapping[str, str]) -> str | None:
    """Where Spark wants a task's temporary files (``spark.local.dir``); None if it says nothing."""
    folders = [one for one in environment.get("SPARK_LOCAL_DIRS", "").split(",") if one]
    there = [one for one in folders if os.path.isdir(one)]
    return there[os.getpid() % len(there)] if there else None


def _with_life(batch: pyarrow.RecordBatch, columns: Sequence[str], place: str) -> pyarrow.Table:
    """The rows, and whether each has a value. A value that nobody wants is dropped."""
    import pyarrow
    import pyarrow.compute

    if batch.column("key").null_count:
        first = batch.filter(pyarrow.compute.is_null(batch.column("key"))).column("offset")[0]
        raise NullKeyError(
            f"the record at offset {first} of {place} has no key, and a table is read by keys: "
            "read the topic with subscribe"
        )
    names = [*columns, *(name for name in ("key", "offset") if name not in columns)]
    table = pyarrow.Table.from_batches([batch])
    is_alive = pyarrow.compute.is_valid(table.column("value"))
    return table.select(names).append_column(_ALIVE, is_alive)


class _Kept:
    """Rows of those keys whose hashes agree below ``first_bit``."""

    def __init__(self, held_bytes_max: int, folder: str | None, first_bit: int = 0) -> None:
        self._held_bytes_max = held_bytes_max
        self._folder = folder
        self._first_bit = first_bit
        self._tables: list[pyarrow.Table] = []
        self._bytes = 0
        self._files: list[_Spilled] = []

    def add(self, table: pyarrow.Table) -> None:
        """Rows that are later than those before."""
        self._tables.append(table)
        self._bytes += table.nbytes
        if self._bytes <= self._held_bytes_max:
            return
        held = self._compact()
        # Less is worth another try: it makes room for as much again.
        if held.nbytes > self._held_bytes_max // 2 and self._first_bit < _HASH_BITS:
            self._spill(held)

    def rows(self) -> Iterator[pyarrow.RecordBatch]:
        """What is left, once. Nothing can be added any more."""
        if self._tables:
            held = self._compact()
            if self._files:
                self._spill(held)
            else:
                # Nothing before is hidden by a tombstone of the last rows.
                yield from held.to_batches(max_chunksize=_ROWS_OF_A_BATCH)
                self._forget()
        while self._files:
            with self._files.pop() as spilled:
                part = _Kept(self._held_bytes_max, self._folder, self._first_bit + FAN_OUT_BITS)
                try:
                    for table in spilled.tables():
                        part.add(table)
                    yield from part.rows()
                finally:
                    part.close()

    def close(self) -> None:
        """Removes the files."""
        self._forget()
        for one in self._files:
            one.close()

    def _forget(self) -> None:
        self._tables, self._bytes = [], 0

    def _compact(self) -> pyarrow.Table:
        """The last row of each key among those held. Tombstones stay if there are older rows."""
        import pyarrow
        import pyarrow.compute

        table = pyarrow.concat_tables(self._tables)
        self._forget()
        last = table.select(["key", "offset"]).group_by("key").aggregate([("offset", "max")])
        is_last = pyarrow.compute.is_in(table.column("offset"), value_set=last.column("offset_max"))
        if not self._files:
            is_last = pyarrow.compute.and_(is_last, table.column(_ALIVE))
        table = table.filter(is_last)
        self._tables, self._bytes = [table], table.nbytes
        return table

    def _spill(self, table: pyarrow.Table) -> None:
        import pyarrow
        import pyarrow.compute

        if not self._files:
            for _ in range(1 << FAN_OUT_BITS):
                self._files.append(_Spilled(table.schema, self._folder))
        mask = (1 << FAN_OUT_BITS) - 1
        numbers = pyarrow.array(
            [hash(key) >> self._first_bit & mask for key in table.column("key").to_pylist()],
            type=pyarrow.uint8(),
        )
        for number, spilled in enumerate(self._files):
            part = table.filter(pyarrow.compute.equal(numbers, number))
            if part.num_rows:
                spilled.write(part)
        self._forget()


class _Spilled:
    """A file of rows, which is gone when it is closed or its process ends."""

    def __init__(self, schema: pyarrow.Schema, folder: str | None) -> None:
        import pyarrow

        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._writer = pyarrow.ipc.new_stream(self._file, schema)

    def write(self, table: pyarrow.Table) -> None:
        self._writer.write_table(table, max_chunksize=_ROWS_OF_A_BATCH)

    def tables(self) -> Iterator[pyarrow.Table]:
        """What was written, in order."""
        import pyarrow

        self._writer.close()
        self._file.seek(0)
        with pyarrow.ipc.open_stream(self._file) as reader:
            for batch in reader:
                yield pyarrow.Table.from_batches([batch])

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> _Spilled:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
