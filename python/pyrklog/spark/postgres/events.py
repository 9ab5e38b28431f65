"""Changes of rows as records: keys and values in JSON, in the form that Debezium's users know.

A key has the columns of the primary key. A value says what the row was ``before`` and is ``after``
the change, its kind in ``op`` (``r`` read, ``c`` created, ``u`` updated, ``d`` deleted), when its
transaction was committed in ``ts_ms``, and where it comes from in ``source``. A deletion is
followed by a tombstone, so that a compacted topic is the table. An update of the key is a deletion
of the old one and a creation of the new one. How values are written:
``docs/understanding/spark-postgres.md``.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from pyrklog.spark.postgres.options import Table
from pyrklog.spark.postgres.pgoutput import Column, Delete, Insert, Row, Unchanged, Update, Value

UNAVAILABLE = "__debezium_unavailable_value"
"""Of a large column that an update left as it was: it is not in the log."""

_BOOL, _BYTES = 16, 17
_INTEGERS = frozenset({20, 21, 23, 26})
_FLOATS = frozenset({700, 701})
_TIME, _TIME_WITH_ZONE = 1114, 1184

_encode = msgspec.json.Encoder().encode


class KeyColumnError(Exception):
    """A change does not have the columns of its table's primary key."""


class Record(NamedTuple):
    """A row of the stream."""

    key: bytes
    value: bytes | None
    table: str
    lsn: int | None


@dataclass(frozen=True)
class Source:
    """Where a change comes from."""

    database: str
    table: Table
    key: Sequence[str]
    """Columns of the primary key."""
    columns: Sequence[Column]


@dataclass(frozen=True)
class Moment:
    """Of the transaction or snapshot that a change is from. ``lsn``: of the change, ``commit_lsn``
    of the transaction; both None with a watermark. ``is_snapshot``: of the rows at the start."""

    time_us: int
    lsn: int | None = None
    commit_lsn: int | None = None
    xid: int | None = None
    is_snapshot: bool = False


def read(source: Source, moment: Moment, row: Row) -> Record:
    """A row that was found in the table."""
    after = _document(source, row)
    return _record(source, moment, "r", None, after, after)


def records_of(
    source: Source, moment: Moment, change: Insert | Update | Delete
) -> Iterator[Record]:
    match change:
        case Insert():
            after = _document(source, change.new)
            yield _record(source, moment, "c", None, after, after)
        case Delete():
            before = _document(source, change.old, only_identity=not change.is_old_whole)
            yield from _deleted(source, moment, before)
        case Update():
            yield from _updated(source, moment, change)


def _updated(source: Source, moment: Moment, change: Update) -> Iterator[Record]:
    before = None
    new = change.new
    if change.old is not None:
        before = _document(source, change.old, only_identity=not change.is_old_whole)
        # What is not in the new row because it was not touched.
        new = tuple(
            old
            if value is Unchanged.VALUE and (change.is_old_whole or column.is_identity)
            else value
            for value, old, column in zip(new, change.old, source.columns, strict=True)
        )
    after = _document(source, new)
    if before is not None and _key(source, before) != _key(source, after):
        yield from _deleted(source, moment, before)
        yield _record(source, moment, "c", None, after, after)
    else:
        yield _record(source, moment, "u", before if change.is_old_whole else None, after, after)


def _deleted(source: Source, moment: Moment, before: Mapping[str, Any]) -> Iterator[Record]:
    deleted = _record(source, moment, "d", before, None, before)
    yield deleted
    yield deleted._replace(value=None)


def _record(
    source: Source,
    moment: Moment,
    op: str,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    row: Mapping[str, Any],
) -> Record:
    told = {
        "connector": "postgresql",
        "db": source.database,
        "schema": source.table.schema,
        "table": source.table.name,
        "ts_ms": moment.time_us // 1000,
        "ts_us": moment.time_us,
        "snapshot": "true" if moment.is_snapshot else "false",
        "lsn": moment.lsn,
        "commitLsn": moment.commit_lsn,
        "txId": moment.xid,
    }
    value = {"before": before, "after": after, "source": told, "op": op, "ts_ms": told["ts_ms"]}
    lsn = moment.commit_lsn
    return Record(_encode(_key(source, row)), _encode(value), str(source.table), lsn)


def _key(source: Source, row: Mapping[str, Any]) -> dict[str, Any]:
    missing = [name for name in source.key if row.get(name) in (None, UNAVAILABLE)]
    if missing:
        raise KeyColumnError(
            f"a change of {source.table} does not have {', '.join(missing)} of its primary key: "
            "was the key changed meanwhile?"
        )
    return {name: row[name] for name in source.key}


def _document(source: Source, row: Row, *, only_identity: bool = False) -> dict[str, Any]:
    return {
        column.name: _plain(column.type_oid, value)
        for column, value in zip(source.columns, row, strict=True)
        if column.is_identity or not only_identity
    }


def _plain(type_oid: int, value: Value) -> Any:
    """Text as a value for JSON. The session's times are ISO's, in UTC."""
    if value is None:
        return None
    if isinstance(value, Unchanged):
        return UNAVAILABLE
    if type_oid == _BOOL:
        return value == "t"
    if type_oid in _INTEGERS:
        return int(value)
    if type_oid in _FLOATS:
        number = float(value)
        # JSON has no others.
        return number if math.isfinite(number) else value
    if type_oid == _BYTES:
        return base64.b64encode(bytes.fromhex(value.removeprefix("\\x"))).decode()
    if type_oid == _TIME:
        return value.replace(" ", "T", 1)
    if type_oid == _TIME_WITH_ZONE:
        moved = value.replace(" ", "T", 1)
        return f"{moved.removesuffix('+00')}Z" if moved.endswith("+00") else moved
    return value
