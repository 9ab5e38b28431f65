"""A file system of our own that hangs when it is told to: ext4 in a file, on a loop device.

FIFREEZE (what fsfreeze(8) does) lets every write to it wait in the kernel, uninterruptibly, until
it is thawed: as a disk that no longer answers does to whoever writes. It needs root and a free loop
device; it is mounted in a mount namespace of this process, so nobody else sees it and nothing of it
stays when this process and its broker are gone.
"""

import ctypes
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benches.brokers import Unavailable

_CLONE_NEWNS = 0x0002_0000
# _IOWR('X', 119, int) and the next, from <linux/fs.h>.
FIFREEZE, FITHAW = 0xC004_5877, 0xC004_5878
# Sparse: it takes what is written to it.
_IMAGE_BYTES = 24_000_000_000
_FILES = 20_000
# What thaws when the process that froze is gone, however it ended: it waits for its input's end.
_GUARD = """
import fcntl, os, sys
disk = os.open(sys.argv[1], os.O_RDONLY)
print("ready", flush=True)
sys.stdin.read()
try:
    fcntl.ioctl(disk, int(sys.argv[2]), 0)
except OSError:
    pass  # it was thawed already
"""


class FrozenDisk:
    """A mounted file system at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Its writers wait for the end of the block."""
        guard = subprocess.Popen(
            [sys.executable, "-c", _GUARD, str(self.path), str(FITHAW)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        disk = os.open(self.path, os.O_RDONLY)
        try:
            assert guard.stdout is not None
            guard.stdout.readline()
            fcntl.ioctl(disk, FIFREEZE, 0)
            try:
                yield
            finally:
                fcntl.ioctl(disk, FITHAW, 0)
        finally:
            os.close(disk)
            guard.communicate()

    def sync(self) -> None:
        """Writes what is dirty, as freezing does first."""
        disk = os.open(self.path, os.O_RDONLY)
        try:
            _libc().syncfs(disk)
        finally:
            os.close(disk)


@contextmanager
def mounted(folder: Path) -> Iterator[FrozenDisk]:
    """A new file system at `folder`/disk. Unavailable where this machine cannot make one."""
    if os.geteuid() != 0:
        raise Unavailable("a disk that hangs needs root, for a loop device and its freezing")
    for program in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(program) is None:
            raise Unavailable(f"{program} is not on the PATH")
    _enter_own_namespace()
    image, path = folder / "disk.img", folder / "disk"
    with image.open("wb") as file:
        file.truncate(_IMAGE_BYTES)
    path.mkdir()
    at_once = "lazy_itable_init=0,lazy_journal_init=0"
    _run("mkfs.ext4", "-q", "-F", "-N", str(_FILES), "-E", at_once, str(image))
    _run("mount", "-o", "loop", str(image), str(path))
    try:
        yield FrozenDisk(path)
    finally:
        _run("umount", "--lazy", str(path))
        image.unlink()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"{' '.join(command)}: {done.stderr.strip()}")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


_namespaces: list[int] = []


def _enter_own_namespace() -> None:
    """Once a process: mounts from here on are this process's and its children's alone."""
    if os.getpid() in _namespaces:
        return
    if _libc().unshare(_CLONE_NEWNS) != 0:
        error = os.strerror(ctypes.get_errno())
        raise Unavailable(f"a mount namespace cannot be made: {error}")
    _run("mount", "--make-rprivate", "/")
    _namespaces.append(os.getpid())
