"""The embedded store's file: SQLite in WAL mode. Blocking; called off the Trio thread.

``store.db`` has one row per persistent node, with a CRC over its content, and one row that counts
openings. ``application_id`` and ``user_version`` identify the file and its format. A commit returns
after an fsync of the write-ahead log. Ephemeral nodes are never written: they end with the process,
and the count of openings keeps transaction numbers unique.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import sqlite3
import zlib
from collections.abc import Mapping
from pathlib import Path

from pyrklog.base.durable import sync_folder
from pyrklog.base.problems import Problem
from pyrklog.errors import ConfigError, StartError, TemporaryError
from pyrklog.metastore.interface import Node, Stat
from pyrklog.metastore.tree import ROOT, Entry, Tree, parent_of

APPLICATION_ID = 0x70796B6D  # "pykm"
FORMAT_VERSION = 1
DATABASE_NAME = "store.db"
LOCK_NAME = "lock"

_SCHEMA = """
CREATE TABLE node (
    path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL,
    next_sequence INTEGER NOT NULL, czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL,
    ctime_ms INTEGER NOT NULL, mtime_ms INTEGER NOT NULL, crc INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE opening (id INTEGER PRIMARY KEY CHECK (id = 0), count INTEGER NOT NULL);
INSERT INTO opening VALUES (0, 0);
"""
_UPSERT = "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SELECT = (
    "SELECT path, data, version, next_sequence, czxid, mzxid, ctime_ms, mtime_ms, crc FROM node"
)


_FULL = (errno.ENOSPC, errno.EDQUOT)
_MAY_NOT = (
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_IOERR,
)
"""SQLite's codes for a file that this user may not change; the last one comes when locking."""
_MAKE_WRITABLE = (
    "make it writable for this user, or choose another place with --data or pyrklog.meta.dir"
)


class DiskFullError(Exception):
    """No space: the commit was rolled back and the file is as before."""


class Database:
    """For one thread at a time."""

    def __init__(self, directory: Path) -> None:
        """Opens or creates. Raises :class:`StartError` or a subclass."""
        self._directory = directory
        self._path = directory / DATABASE_NAME
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno in _FULL:
                raise _no_space(directory / DATABASE_NAME) from None
            raise ConfigError(
                Problem.DIRECTORY_UNUSABLE,
                f"Cannot create the metadata directory {directory}: {error.strerror}.",
                fix="choose another place with --data or pyrklog.meta.dir",
            ) from None
        self._lock = _lock(directory)
        try:
            self._connection = self._connect()
            self.opening = self._count_opening()
        except sqlite3.Error as error:
            os.close(self._lock)
            raise self._unusable(error) from None
        except StartError:
            os.close(self._lock)
            raise

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=0, isolation_level=None, check_same_thread=False
        )
        try:
            # Exclusive before WAL: no shared-memory file is needed then.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._check_identity(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            if not _has_schema(connection):
                self._create(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _create(self, connection: sqlite3.Connection) -> None:
        connection.executescript(
            f"BEGIN; PRAGMA application_id = {APPLICATION_ID};"
            f" PRAGMA user_version = {FORMAT_VERSION}; {_SCHEMA} COMMIT;"
        )
        # The new file's directory entries must survive a power loss.
        for path in (self._directory, self._directory.parent):
            sync_folder(path)

    def _check_identity(self, connection: sqlite3.Connection) -> None:
        if not _has_schema(connection):
            return
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION_ID:
            raise ConfigError(
                Problem.FOREIGN_DATA,
                f"{self._path} is a database of another program.",
                fix="choose another place with --data or pyrklog.meta.dir",
            )
        if version > FORMAT_VERSION:
            raise ConfigError(
                Problem.FOREIGN_DATA,
                f"{self._path} was written by a newer pyrklog (format {version}; this one reads "
                f"up to {FORMAT_VERSION}).",
                fix="start it with the newer version",
            )

    def _unusable(self, error: sqlite3.Error) -> StartError:
        # The low byte of an extended code is the main code.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return _no_space(self._path)
        refused = self._refused() if code in _MAY_NOT else None
        if refused is not None:
            return ConfigError(
                Problem.DIRECTORY_UNUSABLE,
                f"Cannot open {refused}: {os.strerror(errno.EACCES)}.",
                fix=_MAKE_WRITABLE,
            )
        return StartError(
            Problem.METADATA_DAMAGED,
            f"The metadata store {self._path} cannot be read: {error}.",
            fix="restore the directory from a copy; the log directories hold the records and were "
            "not touched",
        )

    def _refused(self) -> Path | None:
        """The file or directory that this user may not change, and SQLite must."""
        log = self._path.with_name(f"{self._path.name}-wal")
        for path in (self._path, log, self._directory):
            if path.exists() and not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
                return path
        return None

    def _count_opening(self) -> int:
        self._connection.execute("UPDATE opening SET count = count + 1")
        (count,) = self._connection.execute("SELECT count FROM opening").fetchone()
        assert isinstance(count, int)
        return count

    def load(self) -> Tree:
        """The whole tree; checks every row's CRC and every parent."""
        tree = Tree()
        try:
            rows = self._connection.execute(_SELECT).fetchall()
        except sqlite3.Error as error:
            raise self._unusable(error) from None
        for path, data, version, next_sequence, czxid, mzxid, ctime_ms, mtime_ms, crc in rows:
            if _crc(path, data, version, next_sequence, czxid) != crc:
                raise StartError(
                    Problem.METADATA_DAMAGED,
                    f"The metadata store {self._path} is damaged: the checksum of {path} is wrong.",
                    fix="restore the directory from a copy",
                )
            stat = Stat(version, czxid, mzxid, 0, ctime_ms, mtime_ms)
            tree.load(path, Entry(Node(data, stat), next_sequence))
        for orphan in tree.orphans():
            raise StartError(
                Problem.METADATA_DAMAGED,
                f"The metadata store {self._path} is damaged: {orphan} is missing.",
                fix="restore the directory from a copy",
            )
        return tree

    def commit(self, changes: Mapping[str, Entry | None]) -> None:
        """Writes the changes in one durable transaction.

        Raises :class:`DiskFullError` (nothing happened) or ``sqlite3.Error`` (unknown state).
        """
        rows = [_row(path, entry) for path, entry in changes.items() if entry is not None]
        gone = [(path,) for path, entry in changes.items() if entry is None]
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("DELETE FROM node WHERE path = ?", gone)
            self._connection.executemany(_UPSERT, rows)
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise DiskFullError(f"no space left for {self._path}") from None
            raise

    def close(self) -> None:
        """Checkpoints the write-ahead log and releases the lock."""
        try:
            self._connection.close()
        finally:
            os.close(self._lock)


def _row(path: str, entry: Entry) -> tuple[object, ...]:
    data, stat = entry.node
    crc = _crc(path, data, stat.version, entry.next_sequence, stat.czxid)
    return (
        path,
        data,
        stat.version,
        entry.next_sequence,
        stat.czxid,
        stat.mzxid,
        stat.ctime_ms,
        stat.mtime_ms,
        crc,
    )


def _crc(path: str, data: bytes, version: int, next_sequence: int, czxid: int) -> int:
    numbers = f"{path}\0{version}\0{next_sequence}\0{czxid}".encode()
    return zlib.crc32(data, zlib.crc32(numbers))


def _has_schema(connection: sqlite3.Connection) -> bool:
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return bool(tables)


def _lock(directory: Path) -> int:
    """Holds ``lock`` while the process lives; the file names the holder."""
    path = directory / LOCK_NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno in _FULL:
            raise _no_space(directory / DATABASE_NAME) from None
        raise ConfigError(
            Problem.DIRECTORY_UNUSABLE, f"Cannot open {path}: {error.strerror}.", fix=_MAKE_WRITABLE
        ) from None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = _holder(os.pread(descriptor, 4096, 0))
        os.close(descriptor)
        raise TemporaryError(
            Problem.DIRECTORY_IN_USE,
            f"The directory {directory} is in use by {holder}.",
            fix="stop that broker, or choose another directory with --data",
        ) from None
    text = json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode()
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)
    except OSError as error:
        os.close(descriptor)
        if error.errno in _FULL:
            raise _no_space(directory / DATABASE_NAME) from None
        raise StartError(
            Problem.DISK_FAILED, f"Cannot write {path}: {error.strerror}.", fix="look at the disk"
        ) from None
    return descriptor


def _no_space(path: Path) -> StartError:
    return StartError(
        Problem.METADATA_DISK_FULL,
        f"No space is left for the metadata store {path}.",
        fix="free some space on that volume and start again",
    )


def _holder(content: bytes) -> str:
    try:
        facts = json.loads(content)
        return f"another broker (pid {int(facts['pid'])} on {facts['host']})"
    except (ValueError, KeyError, TypeError):
        return "another broker"


def persistent(changes: Mapping[str, Entry | None], tree: Tree) -> dict[str, Entry | None]:
    """The changes that must reach the disk: all but those of ephemeral nodes.

    A parent with only a new sequence number goes along with a persistent child.
    """
    chosen: dict[str, Entry | None] = {}
    for path, entry in changes.items():
        before = tree.get(path)
        was_kept = before is not None and not before.node.stat.ephemeral_owner
        is_kept = entry is not None and not entry.node.stat.ephemeral_owner
        if was_kept and not is_kept:
            chosen[path] = None
        elif is_kept and not (before and entry and entry.node is before.node):
            chosen[path] = entry
            if not was_kept and path != ROOT:
                chosen.setdefault(parent_of(path), changes[parent_of(path)])
    return chosen
