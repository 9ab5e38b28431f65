"""A disk that hangs or fails: bindfs, a file system whose files are those of another folder.

Its process is the disk. While that is stopped, everything that is asked of the file system waits:
reads, writes, and for its free space. When it is killed, everything fails.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from ci.debian_tools import library_path, program
from tests.support.waiting import wait_until


class FailingDisk:
    def __init__(self, tools: Path, folder: Path, files: Path) -> None:
        """Mounts it on ``folder``, which it makes, with its files in ``files``. Needs root."""
        self.folder = folder
        self.files = files
        self._tools = tools
        folder.mkdir(parents=True)
        self._process: subprocess.Popen[bytes] | None = None
        self.mount()

    def mount(self) -> None:
        outside = os.stat(self.folder.parent).st_dev
        self._process = subprocess.Popen(
            [str(program(self._tools, "bindfs")), "-f", str(self.files), str(self.folder)],
            env={**os.environ, "LD_LIBRARY_PATH": library_path(self._tools)},
            stdin=subprocess.DEVNULL,
        )
        wait_until(lambda: os.stat(self.folder).st_dev != outside, "bindfs does not mount")

    def hang(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def fail(self) -> None:
        """For good; ``replace`` mounts it anew."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def replace(self) -> None:
        """Its users must have ended, or lose their files."""
        self._unmount()
        self.mount()

    def close(self) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                self.go_on()
            self._unmount()

    def evict(self) -> None:
        """What was read or written is no longer in memory: reads need the disk."""
        for path in self.folder.glob("*/*.log"):
            file = os.open(path, os.O_RDONLY)
            try:
                os.fsync(file)  # only what is on the disk can be forgotten
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)

    def _unmount(self) -> None:
        subprocess.run(["umount", "--lazy", self.folder], check=True)
        if self._process is not None:
            if self._process.poll() is None:
                self._process.terminate()
            self._process.wait()
            self._process = None

    def _signal(self, number: int) -> None:
        assert self._process is not None, "it is not mounted"
        self._process.send_signal(number)
