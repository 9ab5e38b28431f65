"""Messages of PostgreSQL's output plug-in ``pgoutput``, protocol version 1, as values.

A transaction is ``Begin``, its changes in the order in which they were made, and ``Commit``; a
table is told by a ``Relation`` before its first change of each reading. PostgreSQL's documentation
calls them "Logical Replication Message Formats". Bytes in, values out: MessageError for others.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

# Of PostgreSQL's times, 2000-01-01, after 1970-01-01.
_EPOCH_US = 946_684_800_000_000


class MessageError(ValueError):
    """These bytes are no message of pgoutput's protocol version 1."""


class Unchanged(Enum):
    """A large value that an update did not touch is not in the log."""

    VALUE = "unchanged"


Value = str | Unchanged | None
"""As PostgreSQL writes it in text."""
Row = tuple[Value, ...]


class Column(NamedTuple):
    name: str
    type_oid: int
    is_identity: bool
    """Whether old rows have it."""


@dataclass(frozen=True)
class Begin:
    commit_lsn: int
    """Where the record of the commit begins."""
    time_us: int
    """Of the commit, since 1970."""
    xid: int
    """Its lower 32 bits."""


@dataclass(frozen=True)
class Commit:
    end_lsn: int


@dataclass(frozen=True)
class Relation:
    oid: int
    schema: str
    name: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Insert:
    relation: int
    new: Row


@dataclass(frozen=True)
class Update:
    """``old`` is there when the key was changed, or with REPLICA IDENTITY FULL."""

    relation: int
    old: Row | None
    is_old_whole: bool
    """Else it has the values of the identity's columns alone; the others are None."""
    new: Row


@dataclass(frozen=True)
class Delete:
    relation: int
    old: Row
    is_old_whole: bool


@dataclass(frozen=True)
class Truncate:
    relations: tuple[int, ...]


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate


def parse(data: bytes) -> Message | None:
    """None for what changes no row: origins, types, messages of applications."""
    try:
        return _parse(_Cursor(data))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MessageError(f"a message of {len(data)} bytes is cut or damaged") from error


def _parse(cursor: _Cursor) -> Message | None:
    match cursor.letter():
        case "B":
            commit_lsn, time_us, xid = cursor.take(">QqI")
            return Begin(commit_lsn, time_us + _EPOCH_US, xid)
        case "C":
            _, _, end_lsn, _ = cursor.take(">BQQq")
            return Commit(end_lsn)
        case "R":
            return _relation(cursor)
        case "I":
            (relation,) = cursor.take(">I")
            cursor.expect("N")
            return Insert(relation, _row(cursor))
        case "U":
            return _update(cursor)
        case "D":
            (relation,) = cursor.take(">I")
            kind = cursor.expect("KO")
            return Delete(relation, _row(cursor), kind == "O")
        case "T":
            count, _ = cursor.take(">IB")
            return Truncate(cursor.take(f">{count}I") if count else ())
        case "O" | "Y" | "M":
            return None
        case letter:
            raise MessageError(f"a message of the unknown kind {letter!r}")


def _relation(cursor: _Cursor) -> Relation:
    (oid,) = cursor.take(">I")
    # Of the system's own tables the schema is sent empty.
    schema, name = cursor.name() or "pg_catalog", cursor.name()
    cursor.letter()
    (count,) = cursor.take(">H")
    columns = []
    for _ in range(count):
        (flags,) = cursor.take(">B")
        column = cursor.name()
        type_oid, _ = cursor.take(">Ii")
        columns.append(Column(column, type_oid, bool(flags & 1)))
    return Relation(oid, schema, name, tuple(columns))


def _update(cursor: _Cursor) -> Update:
    (relation,) = cursor.take(">I")
    kind = cursor.expect("KON")
    old = None
    if kind != "N":
        old = _row(cursor)
        cursor.expect("N")
    return Update(relation, old, kind == "O", _row(cursor))


def _row(cursor: _Cursor) -> Row:
    (count,) = cursor.take(">H")
    return tuple(_value(cursor) for _ in range(count))


def _value(cursor: _Cursor) -> Value:
    kind = cursor.expect("nut")
    if kind == "n":
        return None
    if kind == "u":
        return Unchanged.VALUE
    (size,) = cursor.take(">I")
    return cursor.bytes(size).decode()


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, layout: str) -> tuple[int, ...]:
        found = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return found

    def bytes(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise IndexError
        self._at += size
        return found

    def letter(self) -> str:
        return chr(self.take(">B")[0])

    def expect(self, letters: str) -> str:
        found = self.letter()
        if found not in letters:
            raise MessageError(f"{found!r} stands where one of {letters!r} must")
        return found

    def name(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise IndexError
        found = self.bytes(end - self._at).decode()
        self._at = end + 1
        return found
