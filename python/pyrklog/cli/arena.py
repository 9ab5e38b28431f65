"""``pyrklog arena``: brokers' shared memory."""

import errno
import os
from datetime import datetime
from pathlib import Path
from typing import Annotated

from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import show
from pyrklog.cli.deeds import tell_done, telling
from pyrklog.cli.failures import CliError, counted, guarded
from pyrklog.cli.options import (
    Output,
    OutputFormat,
    Settings,
    argument,
    command,
    command_group,
    option,
)

Directory = Annotated[Path | None, option("--dir DIR", "As pyrklog.cache.dir; default /dev/shm.")]
DryRun = Annotated[bool, option("--dry-run", "Only say what would be done.")]
_DROPPED = ("kept", "unfinished", "set aside")
"""States of arenas in which nothing is lost with them."""
_MARKER = ".pyrklog-arena"
"""In a log directory: the path of its arena."""
app = command_group("Look after block caches that brokers left in shared memory.")


@app.callback()
def arena() -> None:
    """Look after block caches that brokers left in shared memory."""


@app.command("list")
@guarded
def list_all(
    directory: Directory = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List arenas: their owners, what they hold, and how much of that is not in files.

    An orderly end keeps an arena for the next start; all of it is in files, too. The next start
    removes arenas that are unfinished or set aside.
    """
    from pyrklog.cli.output import Listing, columns
    from pyrklog.plane.cache_place import SHARED_MEMORY
    from pyrklog.plane.offline import list_arenas

    place = directory or SHARED_MEMORY
    try:
        items = [
            {**row._asdict(), "kept_since": _time(row.kept_since_ms)}
            for row in list_arenas(str(place))
        ]
    except OSError as error:
        raise CliError(Problem.FILE_NOT_FOUND, f"{place}: {error.strerror or error}") from error
    shown = columns(
        "path ARENA, log_dir LOG DIRECTORY, state, kept_since KEPT SINCE, size_bytes> BYTES, "
        "held_bytes> RECORDS, partitions> UNWRITTEN PARTITIONS, unwritten_bytes> UNWRITTEN BYTES, "
        "reason* DAMAGE"
    )
    show(Listing("pyrklog.arenas/1", shown, items), output)


def _time(ms: int | None) -> str | None:
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(" ", "seconds")


@command(app, "drop", "quiet")
@telling
def drop(
    options: Settings,
    log_dir: Path | None = argument("LOG_DIR", "Only that of LOG_DIR.", None),
    directory: Directory = None,
    dry_run: DryRun = False,
) -> None:
    """Free the memory that orderly ends left for the next start. Nothing is lost.

    Arenas that a kill left unfinished, or that a start set aside, go as well.
    """
    from pyrklog.plane.cache_place import SHARED_MEMORY
    from pyrklog.plane.offline import drop_arenas

    place = directory or SHARED_MEMORY
    try:
        if dry_run:
            count, size = _to_drop(place, log_dir)
        else:
            count, size = drop_arenas(str(place), None if log_dir is None else str(log_dir))
    except OSError as error:
        raise CliError(Problem.FILE_NOT_FOUND, f"{place}: {error.strerror or error}") from error
    if log_dir is not None and not count:
        _refuse_undropped(place, log_dir)
    told = f"{counted(count, 'arena')} dropped, {counted(size, 'byte')} freed"
    _tell(options, str(place), told, dry_run)


def _tell(options: Settings, name: str, told: str, dry_run: bool) -> None:
    would = " (not done)" if dry_run else ""
    tell_done(options, f"{told}{would}", kind="arena", name=name, result=told)


def _to_drop(place: Path, log_dir: Path | None) -> tuple[int, int]:
    """Arenas that `drop` would free, and their memory. Raises OSError."""
    from pyrklog.plane.offline import list_arenas

    found = [
        row
        for row in list_arenas(str(place))
        if row.state in _DROPPED and (log_dir is None or _is_same(Path(row.log_dir), log_dir))
    ]
    return len(found), sum(row.size_bytes for row in found)


def _refuse_undropped(place: Path, log_dir: Path) -> None:
    """Explains why nothing was freed, unless there was nothing."""
    from pyrklog.plane.offline import list_arenas

    # An arena may outlive its directory.
    found = [row for row in list_arenas(str(place)) if _is_same(Path(row.log_dir), log_dir)]
    if not found and not os.path.isdir(log_dir):
        raise CliError(
            Problem.NO_DATA, f"there is no directory {log_dir}", "see `pyrklog arena list`"
        )
    if not found and not (log_dir / "meta.properties").exists():
        inside = log_dir / "logs"
        fix = f"`pyrklog arena drop {inside}`" if inside.is_dir() else "see `pyrklog arena list`"
        raise CliError(Problem.NO_DATA, f"{log_dir} is no log directory", fix)
    for row in found:
        what = f"{row.path}, the arena of {log_dir}, is {row.state}, and not dropped"
        if row.state == "left over":
            fix = (
                f"start its broker, or `pyrklog arena drain {log_dir}`; where it holds nothing "
                f"that the files lack, `pyrklog arena remove {row.path}` frees it"
            )
            raise CliError(Problem.CACHE_KEPT, what, fix)
        if row.state == "in use":
            raise CliError(Problem.DATA_IN_USE, what, "stop its broker first")
        if row.state in ("abandoned", "stale", "damaged"):
            raise CliError(Problem.CACHE_KEPT, what, f"`pyrklog arena remove {row.path}`")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return one == other.absolute()


@command(app, "drain", "quiet")
@telling
def drain(
    options: Settings,
    log_dir: Path = argument("LOG_DIR"),
    dry_run: DryRun = False,
) -> None:
    """Write what a killed broker left to the files of LOG_DIR, and remove its arena.

    A broker that starts on the directory does the same; use this before Kafka takes it over.
    """
    from pyrklog.plane.offline import drain_arena

    if not (log_dir / "meta.properties").exists():
        is_there = log_dir.is_dir()
        what = f"{log_dir} is no log directory" if is_there else f"there is no directory {log_dir}"
        raise CliError(Problem.NO_DATA, what, "see `pyrklog arena list`")
    try:
        partitions, count = _to_drain(log_dir) if dry_run else drain_arena(str(log_dir))
    except OSError as error:
        raise _undrained(log_dir, error) from error
    told = f"{counted(partitions, 'partition')}, {counted(count, 'byte')} written"
    _tell(options, str(log_dir), told, dry_run)


def _to_drain(log_dir: Path) -> tuple[int, int]:
    """Partitions and bytes that `drain` would write. Raises OSError."""
    from pyrklog.base.diagnosis import lock_holder
    from pyrklog.plane.cache_place import SHARED_MEMORY
    from pyrklog.plane.offline import list_arenas

    if lock_holder(log_dir / ".lock") is not None:
        raise OSError(errno.EBUSY, "in use")
    marker = log_dir / _MARKER
    lines = marker.read_text().splitlines() if marker.exists() else []
    paths = [Path(line.removeprefix("path=")) for line in lines if line.startswith("path=")]
    place = paths[0].parent if paths else SHARED_MEMORY
    for row in list_arenas(str(place)):
        if row.state == "left over" and _is_same(Path(row.log_dir), log_dir):
            return row.partitions or 0, row.unwritten_bytes or 0
    return 0, 0


def _undrained(log_dir: Path, error: OSError) -> CliError:
    from pyrklog.base.diagnosis import lock_holder

    holder = lock_holder(log_dir / ".lock")
    if holder is None:
        return CliError(Problem.CACHE_KEPT, str(error))
    what = f"{log_dir} is in use by a running broker ({holder})"
    return CliError(Problem.DATA_IN_USE, what, "stop its broker first")


@command(app, "remove", "quiet")
@telling
def remove(
    options: Settings,
    path: Path = argument("ARENA"),
    force: bool = option("--force", "Also with records in it that are nowhere else.", False),
    dry_run: DryRun = False,
) -> None:
    """Remove an arena that no broker uses."""
    from pyrklog.plane.offline import list_arenas, remove_arena

    if not path.exists():
        raise CliError(Problem.FILE_NOT_FOUND, f"{path} does not exist")
    try:
        if dry_run:
            _check_remove(path, force)
        else:
            remove_arena(str(path), force=force)
    except ValueError as error:
        rows = list_arenas(str(path.parent))
        row = next((row for row in rows if Path(row.path).name == path.name), None)
        fix = None if row is None else _fix_of_kept(row.state, row.log_dir)
        raise CliError(Problem.DATA_IN_USE, str(error), fix) from error
    _tell(options, str(path), f"{path} removed", dry_run)


def _check_remove(path: Path, force: bool) -> None:
    """Raises ValueError where `remove` would refuse."""
    from pyrklog.plane.offline import list_arenas

    rows = list_arenas(str(path.parent))
    row = next((row for row in rows if Path(row.path).name == path.name), None)
    if row is None:
        raise ValueError(f"{path} is no arena")
    if row.state == "in use":
        raise ValueError(f"{path} is in use by a broker")
    if row.state != "stale" and row.unwritten_bytes != 0 and not force:
        of = f" of {row.log_dir}" if row.log_dir else ""
        raise ValueError(f"{path} may hold acknowledged records{of} that are nowhere else")


def _fix_of_kept(state: str, log_dir: str) -> str:
    if state == "in use":
        return "stop its broker first"
    if state == "left over":
        return f"start its broker, or `pyrklog arena drain {log_dir}`; --force loses them"
    return "--force, if nobody needs them"
