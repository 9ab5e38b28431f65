"""Rows into a table of PostgreSQL: a batch of a stream, once, in one transaction.

The table ``pyrklog_batches`` keeps the number of the last batch of each application, and is written
in the same transaction: a batch that is repeated finds itself there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyrklog.spark.postgres.server import value

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

logger = logging.getLogger("pyrklog.spark")

BATCHES = "pyrklog_batches"
_STAGED = "pyrklog_staged"


@dataclass(frozen=True)
class Target:
    """A table, and columns of it that are written: ``key`` has a unique index."""

    table: Sequence[str]
    """Its name, or its schema and its name."""
    key: Sequence[str]
    others: Sequence[str]

    @property
    def columns(self) -> list[str]:
        return [*self.key, *self.others]


def upsert(
    connection: psycopg.Connection[Any],
    target: Target,
    rows: Iterable[tuple[bool, Sequence[object]]],
    app_id: str,
    batch: int,
) -> bool:
    """Puts rows in their places, and removes those that are gone, unless this batch, or a later
    one, is there already. Returns whether it wrote.

    A row is whether it stays, and the values of ``target.columns``, of one that goes of the key. Of
    one key the last row counts. One application at a time: another waits. Raises psycopg's errors;
    nothing is written then.
    """
    with connection.transaction():
        if not _is_new(connection, app_id, batch):
            logger.warning("batch %d of %s is in %s already", batch, app_id, BATCHES)
            return False
        _stage(connection, target, rows)
        _merge(connection, target)
        connection.execute(
            f"UPDATE {BATCHES} SET batch = %s WHERE app = %s".encode(), [batch, app_id]
        )
    return True


def _is_new(connection: psycopg.Connection[Any], app_id: str, batch: int) -> bool:
    """Holds the application's row to the end of the transaction."""
    # Spark's checkpoint must not be ahead of the database's disk.
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', true) "
        "WHERE current_setting('synchronous_commit') = 'off'"
    )
    if value(connection, "SELECT to_regclass(%s)::text", BATCHES) is None:
        columns = "app text PRIMARY KEY, batch bigint NOT NULL"
        connection.execute(f"CREATE TABLE IF NOT EXISTS {BATCHES} ({columns})".encode())
    insert = f"INSERT INTO {BATCHES} VALUES (%s, -1) ON CONFLICT DO NOTHING"
    connection.execute(insert.encode(), [app_id])
    query = f"SELECT batch FROM {BATCHES} WHERE app = %s FOR UPDATE"
    return int(value(connection, query, app_id)) < batch


def _stage(
    connection: psycopg.Connection[Any],
    target: Target,
    rows: Iterable[tuple[bool, Sequence[object]]],
) -> None:
    """All rows, numbered, into a table of this transaction."""
    from psycopg import sql

    columns = _names(target.columns)
    connection.execute(
        sql.SQL(
            "CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT 0::bigint AS pyrklog_number, "
            "true AS pyrklog_stays, {} FROM {} WITH NO DATA"
        ).format(sql.Identifier(_STAGED), columns, sql.Identifier(*target.table))
    )
    copy = sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(_STAGED))
    with connection.cursor() as cursor, cursor.copy(copy) as staged:
        for number, (stays, values) in enumerate(rows):
            staged.write_row((number, stays, *values))


def _merge(connection: psycopg.Connection[Any], target: Target) -> None:
    from psycopg import sql

    parts = {
        "table": sql.Identifier(*target.table),
        "own": _own_rows(connection, target),
        "staged": sql.Identifier(_STAGED),
        "columns": _names(target.columns),
        "key": _names(target.key),
        "same": sql.SQL(" AND ").join(
            sql.SQL("{} = {}").format(sql.Identifier("there", one), sql.Identifier("last", one))
            for one in target.key
        ),
    }
    last = sql.SQL(
        "(SELECT DISTINCT ON ({key}) * FROM {staged} ORDER BY {key}, pyrklog_number DESC) AS last"
    ).format(**parts)
    connection.execute(
        sql.SQL(
            "DELETE FROM {own} AS there USING {last} WHERE NOT last.pyrklog_stays AND {same}"
        ).format(last=last, **parts)
    )
    changes = sql.SQL(", ").join(
        sql.SQL("{} = {}").format(sql.Identifier(one), sql.Identifier("excluded", one))
        for one in target.others
    )
    action = sql.SQL("UPDATE SET {}").format(changes) if target.others else sql.SQL("NOTHING")
    connection.execute(
        sql.SQL(
            "INSERT INTO {table} ({columns}) SELECT {columns} FROM {last} WHERE pyrklog_stays "
            "ON CONFLICT ({key}) DO {action}"
        ).format(last=last, action=action, **parts)
    )


def _own_rows(connection: psycopg.Connection[Any], target: Target) -> sql.Composed:
    """The table as DELETE names it: what was never put into a table that inherits from it is not
    removed there. The rows of a partitioned table are in its partitions."""
    from psycopg import sql

    name = sql.Identifier(*target.table)
    query = "SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass(%s)"
    is_partitioned = value(connection, query, name.as_string(connection))
    return sql.Composed([name] if is_partitioned else [sql.SQL("ONLY "), name])


def _names(columns: Sequence[str]) -> sql.Composed:
    from psycopg import sql

    return sql.SQL(", ").join(map(sql.Identifier, columns))
