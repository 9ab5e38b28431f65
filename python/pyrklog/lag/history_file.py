"""The history file on its disk. Every call may block; only the saver's thread makes them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

from pyrklog.base.durable import sync_folder
from pyrklog.base.logs import get_logger
from pyrklog.lag import history_format, lag_format
from pyrklog.lag.histories import PartitionKey
from pyrklog.lag.history import History
from pyrklog.lag.history_format import FILE_BYTES_MAX, Columns, Parsed
from pyrklog.lag.lag_histories import SeriesKey
from pyrklog.lag.lag_history import Lag, LagColumns, LagHistory

FREE_BYTES_MIN = 256 * 2**20
"""Less than this is left to the records."""

Key = TypeVar("Key")
Kept = TypeVar("Kept")
Points = TypeVar("Points")
Value = TypeVar("Value")

log = get_logger("lag")


@dataclass(frozen=True)
class FileFormat(Generic[Key, Kept, Points, Value]):
    """The functions of a module that makes and reads a file's chunks. ``names_max``: of one file;
    ``consequence``: of damage."""

    name: str
    magic: bytes
    names_max: int
    name_chunk: Callable[[int, Key], bytes]
    points_chunk: Callable[[int, int, Points], bytes]
    round_chunk: Callable[[int, int, Mapping[int, Value]], bytes]
    parse: Callable[[bytes, int], Parsed[Key, Kept]]
    consequence: str


LOG_ENDS: FileFormat[PartitionKey, History, Columns, int] = FileFormat(
    "lag-history",
    history_format.MAGIC,
    history_format.NAMES_MAX,
    history_format.name_chunk,
    history_format.points_chunk,
    history_format.round_chunk,
    history_format.parse,
    "ages of unread records may be told as least ones",
)
GROUPS: FileFormat[SeriesKey, LagHistory, LagColumns, Lag] = FileFormat(
    "group-lag-history",
    lag_format.MAGIC,
    lag_format.NAMES_MAX,
    lag_format.name_chunk,
    lag_format.points_chunk,
    lag_format.round_chunk,
    lag_format.parse,
    "the past lag of groups is missing",
)


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


class HistoryFile(Generic[Key, Kept, Points, Value]):
    def __init__(
        self,
        folder: Path,
        form: FileFormat[Key, Kept, Points, Value],
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        self.form = form
        self._path = folder / form.name
        self._free = free
        self._file: BinaryIO | None = None
        self._new: BinaryIO | None = None

    def load(self, wall_ms: int) -> Parsed[Key, Kept] | None:
        """What the file has; None: none that can be read. A damaged one is set aside."""
        try:
            with self._path.open("rb") as file:
                is_too_large = os.fstat(file.fileno()).st_size > FILE_BYTES_MAX
                content = b"" if is_too_large else file.read(FILE_BYTES_MAX)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("lag_history_unreadable", path=str(self._path), reason=str(error))
            return None
        found = self.form.parse(content, wall_ms)
        if found.damage is not None:
            self._set_aside("over 1 GiB" if is_too_large else found.damage, len(found.histories))
        elif found.is_torn:
            lost_bytes = len(content) - found.whole_bytes
            log.info("lag_history_torn", path=str(self._path), lost_bytes=lost_bytes)
        return found

    def _set_aside(self, damage: str, histories: int) -> None:
        aside = self._path.with_name(f"{self.form.name}.damaged")
        try:
            self._path.replace(aside)
        except OSError as error:
            damage = f"{damage}; not set aside: {error}"
        log.warning(
            "lag_history_damaged",
            path=str(self._path),
            set_aside_as=str(aside),
            reason=damage,
            histories=histories,
            consequence=self.form.consequence,
        )

    def begin(self) -> None:
        """A new file, which takes the old one's place in :meth:`finish`. Raises OSError."""
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._look_for_room()
        self._new = self._temporary().open("wb", buffering=0)
        self._write(self._new, self.form.magic)

    def add(self, piece: bytes) -> None:
        """To the new file. Raises OSError."""
        assert self._new is not None
        self._look_for_room()
        self._write(self._new, piece)

    def finish(self) -> int:
        """Returns the new file's size. Raises OSError."""
        assert self._new is not None
        os.fsync(self._new.fileno())
        self._temporary().replace(self._path)
        self._file, self._new = self._new, None
        sync_folder(self._path.parent)
        return os.fstat(self._file.fileno()).st_size

    def append(self, piece: bytes) -> None:
        """To the file of the last :meth:`finish`. Raises OSError; then the file is to be written
        anew."""
        if self._file is None:
            raise OSError(errno.EBADF, "the file is to be written anew")
        self._look_for_room()
        self._write(self._file, piece)

    def give_up(self) -> None:
        """After a failure: what was written may be torn."""
        self.close()
        try:
            self._temporary().unlink(missing_ok=True)
        except OSError as error:
            log.debug("lag_history_leftover", path=str(self._temporary()), reason=str(error))

    def close(self) -> None:
        """What fails here is lost either way: each call of the disk before it has told."""
        files = (self._file, self._new)
        self._file = self._new = None
        for file in files:
            try:
                if file is not None:
                    file.close()
            except OSError as error:
                log.debug("lag_history_unclosed", path=str(self._path), reason=str(error))

    def _temporary(self) -> Path:
        return self._path.with_name(f"{self.form.name}.tmp")

    def _look_for_room(self) -> None:
        if self._free(self._path.parent) < FREE_BYTES_MIN:
            mib = FREE_BYTES_MIN // 2**20
            raise OSError(errno.ENOSPC, f"less than {mib} MiB are free, which are for records")

    @staticmethod
    def _write(file: BinaryIO, data: bytes) -> None:
        if file.write(data) != len(data):
            raise OSError(errno.ENOSPC, "written in part only")
