"""Where the block cache lies: in shared memory that outlives the broker's process, or nowhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

SHARED_MEMORY = Path("/dev/shm")

# The inode of the machine's own process namespace, the same on every Linux (proc_ns.h).
_FIRST_PID_NAMESPACE = "pid:[4026531836]"


class CachePlace(NamedTuple):
    """The directory for the arenas, or None and why there is none."""

    directory: Path | None
    reason: str | None


def cache_place(configured: str | None, max_bytes: int) -> CachePlace:
    """Resolves `pyrklog.cache.dir` and `pyrklog.cache.max.bytes`.

    Without an explicit directory there is no cache in a container: its shared memory is small, and
    goes away when the container does, whereas its log directories may stay.
    """
    if max_bytes == 0:
        return CachePlace(None, None)
    if configured:
        return _usable(Path(configured))
    if in_container():
        return CachePlace(
            None,
            "shared memory of a container goes away with it; set pyrklog.cache.dir to a place in "
            "memory that outlives the container to have one",
        )
    return _usable(SHARED_MEMORY)


def _usable(directory: Path) -> CachePlace:
    if not directory.is_dir():
        return CachePlace(None, f"{directory} is not a directory")
    if not os.access(directory, os.W_OK | os.X_OK):
        return CachePlace(None, f"{directory} cannot be written to")
    return CachePlace(directory, None)


def in_container(namespace: Path = Path("/proc/self/ns/pid")) -> bool:
    """Whether this process has a process namespace of its own, as in every kind of container."""
    try:
        return os.readlink(namespace) != _FIRST_PID_NAMESPACE
    except OSError:
        return False
