"""Disks that are full or fail: small file systems, and a limit on a process's file size."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
from pathlib import Path

_LARGEST_FILE_BYTES = 1


def can_mount() -> bool:
    """Whether a ``Disk`` is possible: mounting a file system needs root."""
    return os.geteuid() == 0


class Disk:
    """A file system of its own on a folder; only this one gets full."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        """Creates the folder. Raises CalledProcessError if it cannot be mounted."""
        self.folder = folder
        self._filler = folder / "filler"
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", folder], check=True
        )

    def grow(self, size_bytes: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size_bytes}", self.folder], check=True)

    def fill(self) -> None:
        with self._filler.open("wb", buffering=0) as output:
            while not self._take_all_space(output.fileno()):
                continue

    def _take_all_space(self, file: int) -> bool:
        """False if the broker took some of it meanwhile: try again."""
        try:
            os.posix_fallocate(file, 0, max(shutil.disk_usage(self.folder).free, 1))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return False
        return True

    def empty(self) -> None:
        """Frees what ``fill`` has taken."""
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmounts the file system; it goes with its last user."""
        subprocess.run(["umount", "--lazy", self.folder], check=True)


def break_writes(pid: int) -> None:
    """The process's files cannot grow: its log directories fail at the next write."""
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (_LARGEST_FILE_BYTES, most))


def with_small_files(size_bytes: int) -> list[str]:
    """A command prefix that limits the size of files: larger writes fail with EFBIG. Stands in for
    a full disk where mounting is impossible."""
    prlimit = shutil.which("prlimit")
    assert prlimit, "prlimit is part of util-linux"
    return [prlimit, f"--fsize={size_bytes}"]
