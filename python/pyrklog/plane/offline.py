"""Access to a broker's shared memory and files while no broker runs."""

from __future__ import annotations

from typing import NamedTuple

from pyrklog import _core


class ArenaRow(NamedTuple):
    """An arena's file in shared memory.

    ``state``: ``in use``, ``kept`` (clean end), ``left over`` (its broker was killed),
    ``abandoned`` (its log directory does not name it), ``stale`` (of an earlier boot), ``damaged``,
    ``set aside`` (a start found it damaged), ``unfinished`` (its broker was killed while creating
    it). ``held_bytes``: of records. ``kept_since_ms``: when it was left, since the epoch.
    ``partitions``: those with records that are not in their files. None = unknown.
    """

    path: str
    log_dir: str
    state: str
    size_bytes: int
    held_bytes: int | None
    kept_since_ms: int | None
    partitions: int | None
    unwritten_bytes: int | None
    reason: str | None


def list_arenas(directory: str) -> list[ArenaRow]:
    """Raises OSError."""
    return [ArenaRow(str(row[0]), *row[1:]) for row in _core.list_arenas(directory)]


drain_arena = _core.drain_arena
"""(log directory) -> (partitions, bytes): writes a killed broker's arena to its files.

(0, 0) where there is none. Raises OSError: the directory is in use, or the two do not fit.
"""

drop_arenas = _core.drop_arenas
"""(directory, log directory or None for all) -> (arenas, bytes of memory): removes arenas of clean
ends. Raises OSError.
"""

remove_arena = _core.remove_arena
"""(path, *, force). Raises ValueError when the arena is in use or still needed."""

dump_file = _core.dump_file
"""(path, *, records, verify): the rows of a log directory's file; see ``rust/log/src/dump.rs``.

Damage is a row with ``kind`` "damage". Raises :class:`OSError` for an unreadable file and
:class:`ValueError` for a foreign one.
"""
