"""Disks that are full or fail: small file systems, and a limit on the size of a process's files."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
from pathlib import Path

_LARGEST_FILE_BYTES = 1


def can_mount() -> bool:
    """Whether there can be a `Disk`: mounting a file system needs root."""
    return os.geteuid() == 0


class Disk:
    """A file system of its own on a folder: it can be full without any other being so."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        """The folder is made. CalledProcessError: it cannot be mounted."""
        self.folder = folder
        self._filler = folder / "filler"
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", folder], check=True
        )

    def grow(self, size_bytes: int) -> None:
        """Somebody makes space."""
        subprocess.run(["mount", "-o", f"remount,size={size_bytes}", self.folder], check=True)

    def fill(self) -> None:
        """Somebody takes all space that is left."""
        with self._filler.open("wb", buffering=0) as output:
            while not self._take_all_space(output.fileno()):
                continue

    def _take_all_space(self, file: int) -> bool:
        """Whether it was there; what the broker takes meanwhile makes another try necessary."""
        try:
            os.posix_fallocate(file, 0, max(shutil.disk_usage(self.folder).free, 1))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return False
        return True

    def empty(self) -> None:
        """What `fill` has taken is free again."""
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        """The file system goes, once nobody uses it any more."""
        subprocess.run(["umount", "--lazy", self.folder], check=True)


def break_writes(pid: int) -> None:
    """No file of the process grows any more: a write fails, which a log directory does not
    survive."""
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (_LARGEST_FILE_BYTES, most))


def with_small_files(size_bytes: int) -> list[str]:
    """What, before a command, lets no file of it be larger: a write fails with EFBIG. Stands in for
    a full disk where nobody may mount one."""
    prlimit = shutil.which("prlimit")
    assert prlimit, "prlimit is part of util-linux"
    return [prlimit, f"--fsize={size_bytes}"]
