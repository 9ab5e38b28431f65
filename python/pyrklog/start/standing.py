"""Whether log directories belong to a single broker or to one in a cluster.

A member that starts alone acknowledges records that it loses when it follows again; a cluster does
not know a single broker's topics. So directories of one kind are refused for the other.

Each log directory has a file ``.pyrklog-metadata``: ``{"version": 1, "kept": "zookeeper",
"zookeeper.connect": …}`` or ``{"version": 1, "kept": "embedded"}``. It is written before the broker
registers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from pyrklog.base.durable import replace_file
from pyrklog.base.logs import get_logger
from pyrklog.base.problems import Problem
from pyrklog.errors import ConfigError
from pyrklog.metastore.database import DATABASE_NAME

NOTE = ".pyrklog-metadata"
UNSEEN = ".pyrklog-unseen"
"""Which logs were not opened since another broker left them; kept by the data plane."""
_VERSION = 1
_KEPT = "kept"
_ADDRESS = "zookeeper.connect"
_UNKNOWN = "HOST:PORT"

log = get_logger("standing")


def check_standing(log_dirs: Iterable[Path], meta_dir: Path, zookeeper: str | None) -> None:
    """Raises :class:`ConfigError` where a directory is of the other kind. Writes nothing.

    ``zookeeper`` is the broker's ZooKeeper, ``None`` for the embedded store in ``meta_dir``.
    Unreadable directories are reported where they are opened.
    """
    notes = read_notes(log_dirs)
    if zookeeper is None:
        _refuse_members([(file, address) for file, address in notes if address is not None])
        return
    alone = [file.parent for file, address in notes if address is None]
    if alone:
        _refuse_lone(alone[0], zookeeper)
    if not notes and _has_store(meta_dir):
        store = meta_dir / DATABASE_NAME
        _refuse_lone(meta_dir, zookeeper, f"; if it has been in a cluster since, move {store} away")


def is_member(log_dirs: Iterable[Path]) -> bool:
    """Whether a directory belongs to a broker in a cluster."""
    return any(address is not None for _, address in read_notes(log_dirs))


def _refuse_lone(path: Path, zookeeper: str, otherwise: str = "") -> NoReturn:
    raise ConfigError(
        Problem.ALONE_OR_IN_A_CLUSTER,
        f"{path} is that of a broker that is alone.",
        why=f"ZooKeeper ({zookeeper}) knows nothing of its topics",
        fix="start it without zookeeper.connect, or choose another directory with --data"
        + otherwise,
    )


def _refuse_members(notes: list[tuple[Path, str]]) -> None:
    if not notes:
        return
    file, address = notes[0]
    files = " and ".join(str(file) for file, _ in notes)
    raise ConfigError(
        Problem.ALONE_OR_IN_A_CLUSTER,
        f"{file.parent} is that of a broker in a cluster ({address}).",
        why="what it would acknowledge alone is lost when it follows there again",
        fix=f"start it with --zookeeper {address}; to take this copy of the data out of the "
        f"cluster for good, remove {files}",
    )


def read_notes(log_dirs: Iterable[Path]) -> list[tuple[Path, str | None]]:
    files = [path / NOTE for path in log_dirs]
    return [(file, address) for file in files for address in _addresses(file)]


def _addresses(file: Path) -> list[str | None]:
    """The ZooKeeper of a note, ``None`` for the embedded store; empty without a note."""
    try:
        content = json.loads(file.read_bytes())
        return [None if content[_KEPT] == "embedded" else str(content[_ADDRESS])]
    except OSError:
        return []
    except (ValueError, KeyError, TypeError):
        # A changed note. A member that starts alone does the greater harm.
        return [_UNKNOWN]


def _has_store(meta_dir: Path) -> bool:
    try:
        return (meta_dir / DATABASE_NAME).exists()
    except OSError:
        return False


def note_standing(log_dirs: Iterable[Path], zookeeper: str | None) -> None:
    """Writes the note into each directory, which the caller has locked.

    A failure is only logged: a full disk must not stop the broker.
    """
    if zookeeper is None:
        kept = {"version": _VERSION, _KEPT: "embedded"}
    else:
        kept = {"version": _VERSION, _KEPT: "zookeeper", _ADDRESS: zookeeper}
    content = json.dumps(kept).encode()
    for file in (path / NOTE for path in log_dirs):
        try:
            if file.exists() and file.read_bytes() == content:
                continue
            replace_file(file, content)
        except OSError as error:
            log.warning("metadata_not_noted", file=str(file), reason=error.strerror)


def forget_standing(log_dirs: Iterable[Path]) -> None:
    """The directories belong to another broker from now on. Raises OSError."""
    for path in log_dirs:
        (path / NOTE).unlink(missing_ok=True)
        # What that broker leaves is looked through again when it comes back.
        (path / UNSEEN).unlink(missing_ok=True)
