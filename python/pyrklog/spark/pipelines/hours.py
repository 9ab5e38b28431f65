"""Parquet files by hour, and their compaction.

``FOLDER/hour=2013-01-31T05/batches=7-12/*.parquet`` has the rows of that hour (UTC) in the batches
7 to 12 of the stream. A batch is written to ``FOLDER/.staging`` and its hours are then renamed to
their places, one by one. An hour that is there already is from an attempt that died: a repeated
batch has the same rows. Compaction writes files of several batches anew, renames the folder to its
place and removes those that it replaces. Until they are gone a folder whose batches are within
those of another does not count, so that a kill in between doubles nothing.

FOLDER belongs to one checkpoint: a new one begins with batch 0 again, which is taken for a repeated
one. Not promised: that a batch is seen as a whole while it is published. Folders must be renamed at
once, as on local disks and HDFS; object stores do not do so: use a table format there.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES_MOST = 4
"""Of an hour, before they become one."""

_STAGING = ".staging"
_MERGED = ".merged"
_BATCHES = re.compile(r"batches=([0-9]+)-([0-9]+)")


class Part(NamedTuple):
    """Rows of an hour from batches ``first`` to ``last``."""

    first: int
    last: int
    path: Path

    def is_within(self, other: Part) -> bool:
        return self != other and other.first <= self.first and self.last <= other.last


def staging(folder: Path) -> Path:
    """Where a batch is written first, by columns ``hour``."""
    return folder / _STAGING


def publish(folder: Path, batch: int) -> None:
    """Puts the hours of a batch, which is in ``staging``, in their places. Raises OSError."""
    for hour in sorted(staging(folder).glob("hour=*")):
        place = folder / hour.name / f"batches={batch}-{batch}"
        if not place.exists():
            place.parent.mkdir(exist_ok=True)
            os.replace(hour, place)
    shutil.rmtree(staging(folder))


def compact(folder: Path, before: int, files_most: int | None = None) -> None:
    """Makes one file of each hour that has more than ``files_most`` (by default ``FILES_MOST``) of
    batches before ``before``, which are finished. One process at a time. Raises OSError and
    pyarrow's errors."""
    most = FILES_MOST if files_most is None else files_most
    for hour in sorted(folder.glob("hour=*")):
        parts = _parts(hour)
        for old in [one for one in parts if any(one.is_within(other) for other in parts)]:
            shutil.rmtree(old.path)
        finished = [one for one in _valid(hour) if one.last < before]
        if len(finished) > most:
            _merge(folder, hour, finished)


def folders(folder: Path) -> list[Path]:
    """Those whose rows count, in the order of hours and batches."""
    return [one.path for hour in sorted(folder.glob("hour=*")) for one in _valid(hour)]


def read(spark: SparkSession, folder: Path) -> DataFrame:
    """All rows, with the columns ``hour`` and ``batches``."""
    paths = [str(path) for path in folders(folder)]
    return spark.read.option("basePath", str(folder)).parquet(*paths)


def _parts(hour: Path) -> list[Part]:
    found = [(path, _BATCHES.fullmatch(path.name)) for path in hour.iterdir()]
    return sorted(Part(int(match[1]), int(match[2]), path) for path, match in found if match)


def _valid(hour: Path) -> list[Part]:
    parts = _parts(hour)
    return [one for one in parts if not any(one.is_within(other) for other in parts)]


def _merge(folder: Path, hour: Path, parts: list[Part]) -> None:
    """A row group is held at a time."""
    import pyarrow.parquet

    merged = folder / _MERGED
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir()
    files = [file for one in parts for file in sorted(one.path.glob("*.parquet"))]
    schema = pyarrow.parquet.read_schema(files[0])
    # Spark's own type of times, unless it is told otherwise, which pyarrow reads as nanoseconds.
    with pyarrow.parquet.ParquetWriter(
        merged / "part-0.parquet", schema, use_deprecated_int96_timestamps=True
    ) as writer:
        for file in files:
            with pyarrow.parquet.ParquetFile(file) as source:
                for number in range(source.num_row_groups):
                    writer.write_table(source.read_row_group(number))
    with (merged / "part-0.parquet").open("rb") as written:
        os.fsync(written.fileno())
    first, last = min(one.first for one in parts), max(one.last for one in parts)
    os.replace(merged, hour / f"batches={first}-{last}")
    for one in parts:
        shutil.rmtree(one.path)
