"""Access to a broker's shared memory and files while no broker runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple


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
    from pyrklog import _core

    return [ArenaRow(str(row[0]), *row[1:]) for row in _core.list_arenas(directory)]


def drain_arena(log_dir: str) -> tuple[int, int]:
    """Writes a killed broker's arena to its files; returns (partitions, bytes).

    Raises OSError: the directory is in use or has no arena, or the two do not fit.
    """
    from pyrklog import _core

    return _core.drain_arena(log_dir)


def drop_arenas(directory: str, log_dir: str | None) -> tuple[int, int]:
    """Removes arenas of clean ends in ``directory``, of all or one log directory; returns (arenas,
    bytes of memory). Raises OSError.
    """
    from pyrklog import _core

    return _core.drop_arenas(directory, log_dir)


def remove_arena(path: str, *, force: bool) -> None:
    """Raises ValueError when the arena is in use or still needed."""
    from pyrklog import _core

    _core.remove_arena(path, force=force)


def dump_file(path: str, *, records: bool, verify: bool) -> Iterator[Mapping[str, object]]:
    """The rows of a log directory's file; see ``rust/log/src/dump.rs``.

    Damage is a row with ``kind`` "damage". Raises :class:`OSError` for an unreadable file and
    :class:`ValueError` for a foreign one.
    """
    from pyrklog import _core

    return _core.dump_file(path, records=records, verify=verify)
