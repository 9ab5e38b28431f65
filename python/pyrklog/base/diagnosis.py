"""Finds the process in the way, for an error's text."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from pathlib import Path

_LISTEN = "0A"
_FLOCK = "hhqqi4x"
"""``struct flock`` of 64-bit Linux: type, whence, start, length, pid."""


def port_holder(port: int, proc: Path = Path("/proc")) -> str | None:
    """The listening process of a TCP port, such as "java pid 4121"; None if unknown.

    Linux only; only processes that this user may inspect.
    """
    inodes = _listening_inodes(port, proc)
    if not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for process in sorted(proc.iterdir()):
        if process.name.isdecimal() and wanted & _links(process / "fd"):
            try:
                name = (process / "comm").read_text().strip()
            except OSError:
                continue  # ended meanwhile
            return f"{name} pid {process.name}"
    return None


def lock_holder(path: Path) -> str | None:
    """The process with a POSIX lock on the file, such as "pid 4121"; None if unknown.

    Linux only. Not for a file that this process has locked: closing it would release that lock.
    """
    wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with path.open("rb") as file:
            found = fcntl.fcntl(file, fcntl.F_GETLK, wanted)
    except OSError:
        return None
    kind, _, _, _, pid = struct.unpack(_FLOCK, found)
    return f"pid {pid}" if kind != fcntl.F_UNLCK and pid > 0 else None


def _listening_inodes(port: int, proc: Path) -> set[str]:
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            # local address, state and inode; the address ends with the port in hexadecimal
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found


def _links(folder: Path) -> set[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return set()  # another user's process, or one that has ended
    found = set()
    for name in names:
        # Skips closed descriptors, such as that of the listing itself.
        with contextlib.suppress(OSError):
            found.add(os.readlink(folder / name))
    return found
