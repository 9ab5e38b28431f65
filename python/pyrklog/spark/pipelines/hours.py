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
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES_MOST = 4
"""Of an hour, before they become fewer."""

_STAGING = ".staging"
_MERGED = ".merged"
_OLD = ".old-"
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


def publish(folder: Path, batch: int) -> list[str]:
    """Puts the hours of a batch, which is in ``staging``, in their places, and on the disk. Returns
    the names of their folders. Raises OSError."""
    names = sorted(hour.name for hour in staging(folder).glob("hour=*"))
    for name in names:
        place = folder / name / f"batches={batch}-{batch}"
        if not place.exists():
            _sync(staging(folder) / name)
            place.parent.mkdir(exist_ok=True)
            os.replace(staging(folder) / name, place)
            _sync_folder(place.parent)
    _sync_folder(folder)
    shutil.rmtree(staging(folder))
    return names


def compact(
    folder: Path,
    before: int,
    names: Iterable[str] | None = None,
    files_most: int | None = None,
) -> None:
    """Makes fewer files of each hour that has more than ``files_most`` (by default ``FILES_MOST``)
    of batches before ``before``, which are finished: of the folders ``names``, or of all. One
    process at a time. Raises OSError and pyarrow's errors."""
    most = FILES_MOST if files_most is None else files_most
    hours = folder.glob("hour=*") if names is None else (folder / name for name in names)
    for hour in sorted(hours):
        parts = _parts(hour)
        for old in [one for one in parts if any(one.is_within(other) for other in parts)]:
            _remove(old.path)
        for left in hour.glob(f"{_OLD}*"):
            shutil.rmtree(left)
        finished = [one for one in _valid(hour) if one.last < before]
        if len(finished) > most:
            _merge(folder, hour, _latest_of_a_size(finished))


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


def _latest_of_a_size(parts: list[Part]) -> list[Part]:
    """The last two, and those before as long as each is no larger than twice what follows. So rows
    are written anew a few times, not with each late batch, and a few parts stay."""
    sizes = [sum(file.stat().st_size for file in one.path.iterdir()) for one in parts]
    first = len(parts) - 2
    while first > 0 and sizes[first - 1] <= 2 * sum(sizes[first:]):
        first -= 1
    return parts[first:]


def _merge(folder: Path, hour: Path, parts: list[Part]) -> None:
    """A row group is held at a time."""
    import pyarrow.parquet

    merged = folder / _MERGED
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir()
    files = [file for one in parts for file in sorted(one.path.glob("*.parquet"))]
    with ExitStack() as stack:
        writer: pyarrow.parquet.ParquetWriter | None = None
        for file in files:
            # Spark's own type of times is INT96, unless it is told otherwise. In nanoseconds, as
            # pyarrow would read it, only the years 1677 to 2262 have a place.
            with pyarrow.parquet.ParquetFile(file, coerce_int96_timestamp_unit="us") as source:
                if writer is None:
                    writer = stack.enter_context(
                        pyarrow.parquet.ParquetWriter(
                            merged / "part-0.parquet",
                            source.schema_arrow,
                            use_deprecated_int96_timestamps=True,
                        )
                    )
                for number in range(source.num_row_groups):
                    writer.write_table(source.read_row_group(number))
    _sync(merged)
    first, last = min(one.first for one in parts), max(one.last for one in parts)
    os.replace(merged, hour / f"batches={first}-{last}")
    _sync_folder(hour)
    for one in parts:
        _remove(one.path)


def _remove(part: Path) -> None:
    """At once: a reader that still has its name gets an error, and not a part of it."""
    old = part.with_name(f"{_OLD}{part.name}")
    os.replace(part, old)
    shutil.rmtree(old)


def _sync(folder: Path) -> None:
    """Brings files and their names to the disk."""
    for file in folder.iterdir():
        with file.open("rb") as written:
            os.fsync(written.fileno())
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
