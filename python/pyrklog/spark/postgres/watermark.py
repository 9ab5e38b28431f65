"""A stream of rows by a column that only rises, where the server does not decode its log.

A row is read when its value in that column rises. Not seen are deletions, rows whose value is null,
what a row was between two reads, and what is committed with a value below one that was read
already: option ``lag`` leaves the newest times for later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyrklog.spark.postgres.changes import copy_rows
from pyrklog.spark.postgres.events import Moment, Record
from pyrklog.spark.postgres.options import PostgresOptions, Table
from pyrklog.spark.postgres.positions import START, Json, marks, marks_to_json
from pyrklog.spark.postgres.server import (
    NOW_US,
    Description,
    UnsuitableDatabaseError,
    connect,
    describe,
    value,
    warn_of_heirs,
)

if TYPE_CHECKING:
    from pyrklog.spark.postgres.server import Connection

_TIMES = frozenset({1082, 1114, 1184})


@dataclass(frozen=True)
class MarkTask:
    """Rows above ``start``, if that is not None, up to ``end``."""

    table: Table
    start: str | None
    end: str


class WatermarkEngine:
    """One query's source, on the driver. Offsets are documents as Spark keeps them."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._connection = connect(options)
        self._targets: dict[str, str] | None = None
        """Last values of this run, by table; None if it goes on for ever."""

    def initial(self) -> Json:
        for table in self._described():
            _check_column(self._options, table)
        warn_of_heirs(self._connection, self._options.tables)
        return START

    def prepare_available_now(self) -> None:
        self._targets = self._ends({}, None)

    def latest(self, start: Json) -> Json:
        """Where the next batch ends."""
        known = marks(start)
        found = known | self._ends(known, self._options.changes_most)
        return start if found == known else marks_to_json(found)

    def tasks(self, start: Json, end: Json) -> list[MarkTask]:
        before, after = marks(start), marks(end)
        return [
            MarkTask(table, before.get(str(table)), after[str(table)])
            for table in self._options.tables
            if str(table) in after and after[str(table)] != before.get(str(table))
        ]

    def commit(self, end: Json) -> None:
        """The table does not change by being read."""

    def stop(self) -> None:
        self._connection.close()

    def _ends(self, known: dict[str, str], rows_most: int | None) -> dict[str, str]:
        """By table, the value up to which a batch reads; none of tables without anything new."""
        found = {}
        for table in self._described():
            name = str(table.table)
            if self._targets is not None and name not in self._targets:
                continue
            target = None if self._targets is None else self._targets[name]
            end = self._end(table, known.get(name), target, rows_most)
            if end is not None:
                found[name] = end
        return found

    def _end(
        self, table: Description, start: str | None, target: str | None, rows_most: int | None
    ) -> str | None:
        from psycopg import sql

        column = sql.Identifier(self._options.watermark or "")
        condition = _between(self._options, start, target)
        if self._options.lag_ms:
            condition += sql.SQL(" AND {} <= now() - make_interval(secs => {})").format(
                column, sql.Literal(self._options.lag_ms / 1000)
            )
        limit = sql.SQL("") if rows_most is None else sql.SQL("LIMIT {}").format(rows_most)
        row = self._connection.execute(
            sql.SQL(
                "SELECT max(mark)::text FROM (SELECT {} AS mark FROM {} {} ORDER BY 1 {}) AS read"
            ).format(column, table.own_rows(), condition, limit)
        ).fetchone()
        assert row is not None
        found: str | None = row[0]
        return found

    def _described(self) -> list[Description]:
        return list(describe(self._connection, self._options.tables).values())


def read_marks(options: PostgresOptions, task: MarkTask) -> Iterator[Record]:
    from psycopg import sql

    with closing(connect(options)) as connection:
        table = describe(connection, [task.table])[task.table]
        condition = _between(options, task.start, task.end)
        condition += sql.SQL(" ORDER BY {}").format(sql.Identifier(options.watermark or ""))
        yield from copy_rows(connection, table, Moment(_now_us(connection)), condition)


def _between(options: PostgresOptions, start: str | None, end: str | None) -> Any:
    """A condition; it is true for all values that are not null if there are no borders."""
    from psycopg import sql

    column = sql.Identifier(options.watermark or "")
    found = sql.SQL("WHERE {} IS NOT NULL").format(column)
    # Literals without a type take the column's.
    if start is not None:
        found += sql.SQL(" AND {} > {}").format(column, sql.Literal(start))
    if end is not None:
        found += sql.SQL(" AND {} <= {}").format(column, sql.Literal(end))
    return found


def _check_column(options: PostgresOptions, table: Description) -> None:
    """Raises UnsuitableDatabaseError."""
    name = options.watermark
    found = next((one for one in table.columns if one.name == name), None)
    if found is None:
        raise UnsuitableDatabaseError(f"table {table.table} has no column {name}")
    if options.lag_ms and found.type_oid not in _TIMES:
        raise UnsuitableDatabaseError(f"option lag needs a column of times, which {name} is not")


def _now_us(connection: Connection) -> int:
    return int(value(connection, f"SELECT {NOW_US}"))
