"""The history file on its disk. Every call may block; only the saver's thread makes them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from pyrklog.base.durable import sync_folder
from pyrklog.base.logs import get_logger
from pyrklog.lag.history_format import FILE_BYTES_MAX, MAGIC, Parsed, parse

FILE_NAME = "lag-history"
FREE_BYTES_MIN = 256 * 2**20
"""Less than this is left to the records."""

log = get_logger("lag")


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


class HistoryFile:
    def __init__(self, folder: Path, free: Callable[[Path], int] = free_bytes) -> None:
        self._path = folder / FILE_NAME
        self._free = free
        self._file: BinaryIO | None = None
        self._new: BinaryIO | None = None

    def load(self, wall_ms: int) -> Parsed | None:
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
        found = parse(content, wall_ms)
        if found.damage is not None:
            self._set_aside("over 1 GiB" if is_too_large else found.damage, len(found.histories))
        elif found.is_torn:
            lost_bytes = len(content) - found.whole_bytes
            log.info("lag_history_torn", path=str(self._path), lost_bytes=lost_bytes)
        return found

    def _set_aside(self, damage: str, histories: int) -> None:
        aside = self._path.with_name(f"{FILE_NAME}.damaged")
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
            consequence="ages of unread records may be told as least ones",
        )

    def begin(self) -> None:
        """A new file, which takes the old one's place in :meth:`finish`. Raises OSError."""
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._look_for_room()
        self._new = self._temporary().open("wb", buffering=0)
        self._write(self._new, MAGIC)

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
        return self._path.with_name(f"{FILE_NAME}.tmp")

    def _look_for_room(self) -> None:
        if self._free(self._path.parent) < FREE_BYTES_MIN:
            mib = FREE_BYTES_MIN // 2**20
            raise OSError(errno.ENOSPC, f"less than {mib} MiB are free, which are for records")

    @staticmethod
    def _write(file: BinaryIO, data: bytes) -> None:
        if file.write(data) != len(data):
            raise OSError(errno.ENOSPC, "written in part only")
