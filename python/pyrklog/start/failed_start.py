"""Undoes a failed start: nothing that it made stays behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pyrklog.errors import StartError
from pyrklog.plane.core_plane import Plane

if TYPE_CHECKING:
    from pyrklog.config.broker import BrokerConfig
    from pyrklog.plane.seam import PlaneSettings


class StartAttempt:
    """One start, and the directories that it creates."""

    def __init__(
        self, config: BrokerConfig, make_plane: Callable[[PlaneSettings], Plane] = Plane
    ) -> None:
        self._make = make_plane
        self._log_dirs = config.log_dirs
        self._meta_dir = config.meta_dir
        self._new_folders = _missing([self._meta_dir, *self._log_dirs])
        self._has_new_meta = not self._meta_dir.exists()
        self._has_new_logs = False
        self._plane: Plane | None = None

    def make_plane(self, settings: PlaneSettings) -> Plane:
        """Makes the plane. From here on nobody else uses the log directories."""
        self._has_new_logs = not any(path.exists() for path in self._log_dirs)
        self._plane = self._make(settings)
        return self._plane

    def take_back(self) -> None:
        """Ends the data plane and removes new directories, unless one holds a partition. Older
        directories are marked again as they had been left.
        """
        if self._plane is None:
            self._remove_new_folders()
            return
        self._plane.abandon()
        if not self._has_new_logs or not self._has_new_meta:
            return
        if any(item.is_dir() for path in self._log_dirs for item in _listed(path)):
            return
        for path in (*self._log_dirs, self._meta_dir):
            shutil.rmtree(path, ignore_errors=True)
        self._remove_new_folders()

    def _remove_new_folders(self) -> None:
        """Removes only empty ones."""
        for path in sorted(self._new_folders, key=lambda path: len(path.parts), reverse=True):
            try:
                path.rmdir()
            except OSError:
                continue  # gone, or not empty


def _missing(paths: Iterable[Path]) -> set[Path]:
    return {one for path in paths for one in (path, *path.parents) if not one.exists()}


def _listed(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError:
        return []


def start_error_in(error: BaseException) -> StartError | None:
    if isinstance(error, StartError):
        return error
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            found = start_error_in(inner)
            if found is not None:
                return found
    return None
