"""Connections to PostgreSQL, and what is asked of its catalog."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyrklog.spark.postgres.options import PostgresOptions, Table
from pyrklog.spark.postgres.pgoutput import Column

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

    Connection = psycopg.Connection[tuple[Any, ...]]

logger = logging.getLogger("pyrklog.spark")

RELEASE_LEAST = 130_000
# Values as text are the same in every session, and a stream may pause for long.
_SETTINGS = {
    "DateStyle": "ISO",
    "IntervalStyle": "iso_8601",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "client_encoding": "UTF8",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}


NOW_US = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""In a query: the server's time, in microseconds since the epoch."""


class UnsuitableDatabaseError(Exception):
    """The database does not have what a stream of its changes needs. A sentence."""


@dataclass(frozen=True)
class Description:
    """Of a table: ``columns`` are those that are stored, in their order."""

    table: Table
    key: tuple[str, ...]
    """Of the primary key, in its order."""
    columns: tuple[Column, ...]
    is_partitioned: bool = False
    """Its rows are all in its partitions."""

    def own_rows(self) -> sql.Composed:
        """The table as FROM names it: without the rows of tables that inherit from it, which
        publications tell as these tables'."""
        from psycopg import sql

        name = sql.Identifier(*self.table)
        return sql.Composed([name] if self.is_partitioned else [sql.SQL("ONLY "), name])


def connect(options: PostgresOptions) -> Connection:
    """Each statement is a transaction of its own. Raises UnsuitableDatabaseError and psycopg's
    errors."""
    psycopg = _psycopg()
    password = {} if options.password is None else {"password": options.password}
    try:
        psycopg.conninfo.conninfo_to_dict(options.conninfo)
    except psycopg.ProgrammingError:
        # Its message has a part of the text, which may be a password.
        raise UnsuitableDatabaseError(
            "option conninfo is no connection string or URL of libpq's"
        ) from None
    connection: Connection = psycopg.connect(options.conninfo, autocommit=True, **password)
    try:
        if connection.info.server_version < RELEASE_LEAST:
            raise UnsuitableDatabaseError("PostgreSQL 13 or later is needed")
        for name, value in _SETTINGS.items():
            connection.execute("SELECT set_config(%s, %s, false)", [name, value])
    except BaseException:
        connection.close()
        raise
    return connection


def describe(connection: Connection, tables: Iterable[Table]) -> dict[Table, Description]:
    """Raises UnsuitableDatabaseError for a table that does not exist or has no primary key."""
    return {table: _describe(connection, table) for table in tables}


def _describe(connection: Connection, table: Table) -> Description:
    found = connection.execute(
        "SELECT c.oid, c.relkind = 'p' FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')",
        table,
    ).fetchone()
    if found is None:
        raise UnsuitableDatabaseError(f"there is no table {table}")
    oid, is_partitioned = found
    # Of an index its own order of columns counts.
    key = connection.execute(
        "SELECT a.attname FROM pg_index i "
        "CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, place) "
        "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum "
        "WHERE i.indrelid = %s AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place",
        [oid],
    ).fetchall()
    if not key:
        raise UnsuitableDatabaseError(
            f"table {table} has no primary key, which records need for theirs"
        )
    columns = connection.execute(
        "SELECT attname, atttypid::bigint FROM pg_attribute "
        "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' "
        "ORDER BY attnum",
        [oid],
    ).fetchall()
    return Description(
        table,
        tuple(name for (name,) in key),
        tuple(Column(name, type_oid, True) for name, type_oid in columns),
        is_partitioned,
    )


def warn_of_heirs(connection: Connection, tables: Collection[Table]) -> None:
    """Names the tables that inherit from one of ``tables`` and are not among them: who selects from
    that one sees their rows, and a stream of it does not."""
    for table in tables:
        rows = connection.execute(
            "SELECT n.nspname, c.relname FROM pg_inherits i "
            "JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
            "JOIN pg_class p ON p.oid = i.inhparent JOIN pg_namespace o ON o.oid = p.relnamespace "
            "WHERE p.relkind = 'r' AND o.nspname = %s AND p.relname = %s ORDER BY 1, 2",
            table,
        ).fetchall()
        heirs = [heir for heir in (Table(*row) for row in rows) if heir not in tables]
        if heirs:
            names = ", ".join(map(str, heirs))
            logger.warning(
                "rows of %s are not read with table %s, from which it inherits: option tables can "
                "name it",
                names,
                table,
            )


def database(connection: Connection) -> str:
    return str(value(connection, "SELECT current_database()"))


def value(connection: Connection, query: str, *arguments: object) -> Any:
    """The only column of the first row; None if there is none."""
    row = connection.execute(query.encode(), arguments or None).fetchone()
    return None if row is None else row[0]


def _psycopg() -> Any:
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError as error:
        raise ImportError('psycopg is not installed: pip install "pyrklog[postgres]"') from error
    return psycopg
