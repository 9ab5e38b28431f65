"""The block cache's directory: in shared memory that outlives the process, or none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from pyrklog.config.places import check_cache_dir, wrong_with_directory

SHARED_MEMORY = Path("/dev/shm")

# The inode of the machine's first process namespace, the same on every Linux (proc_ns.h).
_FIRST_PID_NAMESPACE = "pid:[4026531836]"


class CachePlace(NamedTuple):
    """The directory for the arenas, or None and the reason."""

    directory: Path | None
    reason: str | None


def cache_place(configured: str | None, max_bytes: int) -> CachePlace:
    """Resolves `pyrklog.cache.dir` and `pyrklog.cache.max.bytes`.

    Raises :class:`ConfigError` for a named directory that cannot be used.

    A container has a cache only in an explicit directory: its shared memory is small and ends with
    it, while its log directories may stay.
    """
    if max_bytes == 0:
        return CachePlace(None, None)
    if configured:
        check_cache_dir(configured)
        return CachePlace(Path(configured), None)
    if in_container():
        return CachePlace(
            None,
            "shared memory of a container goes away with it; set pyrklog.cache.dir to a place in "
            "memory that outlives the container to have one",
        )
    return _usable(SHARED_MEMORY)


def _usable(directory: Path) -> CachePlace:
    wrong = wrong_with_directory(directory)
    return CachePlace(directory if wrong is None else None, wrong)


def in_container(namespace: Path = Path("/proc/self/ns/pid")) -> bool:
    """Whether this process has its own process namespace, as in every container."""
    try:
        return os.readlink(namespace) != _FIRST_PID_NAMESPACE
    except OSError:
        return False
