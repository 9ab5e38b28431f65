"""Finds the process at the other end of a local TCP connection (Linux, own processes)."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

Key = TypeVar("Key")
Address = tuple[str, int]


def find_origin(
    own: Address, other: Address, pids: Mapping[Key, int], proc: Path = Path("/proc")
) -> Key | None:
    """The key of the process with the end ``other`` of an IPv4 connection to ``own``."""
    inode = _inode(other, own, proc)
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    for key, pid in pids.items():
        if _has(proc / str(pid) / "fd", wanted):
            return key
    return None


def _inode(local: Address, remote: Address, proc: Path) -> str | None:
    wanted = [_shown(local), _shown(remote)]
    with (proc / "net" / "tcp").open() as table:
        for line in table:
            fields = line.split()
            if fields[1:3] == wanted:
                return fields[9]
    return None


def _shown(address: Address) -> str:
    """The kernel's format: the address's bytes in machine order, then the port."""
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"


def _has(folder: Path, link: str) -> bool:
    try:
        names = os.listdir(folder)
    except OSError:
        return False  # it has ended
    for name in names:
        try:
            if os.readlink(folder / name) == link:
                return True
        except OSError:
            continue  # closed meanwhile
    return False
