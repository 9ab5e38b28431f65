"""A slot of logical decoding, the publication that it is read through, and snapshots beside it.

A slot keeps the write-ahead log from where it stands, and stands still until it is told to move:
changes are peeked at, as often as needed, and it moves when they are written elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pyrklog.spark.postgres.options import PostgresOptions, Table
from pyrklog.spark.postgres.positions import Snapshot, lsn_of, shown
from pyrklog.spark.postgres.server import (
    NOW_US,
    UnsuitableDatabaseError,
    connect,
    describe,
    value,
    warn_of_heirs,
)

if TYPE_CHECKING:
    from pyrklog.spark.postgres.server import Connection

BUSY_MOST_S = 60.0
"""How long the slot may be in use: the session of a killed reader ends when it notices."""
_BUSY_PAUSE_S = 0.2
_FETCHED_ROWS = 2000

Result = TypeVar("Result")


@dataclass
class OpenSnapshot:
    """The database as it was, for any session that asks for ``name``, while ``connection`` is
    open."""

    connection: Connection
    name: str
    snapshot: Snapshot
    lsn: int
    """What begins here or later is not seen."""
    time_us: int


class Slot:
    """The driver's view. Not for several threads."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._connection = connect(options)

    def prepare(self) -> None:
        """Makes publication and slot, if they are not there. Waits for transactions that run at
        that time. Raises UnsuitableDatabaseError."""
        self._check_server()
        warn_of_heirs(self._connection, self._options.tables)
        # Before the slot: the plug-in looks at the catalog as it was at each change.
        self._publish()
        if self._place() is None:
            self._connection.execute(
                "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self._options.slot]
            )

    def check(self) -> None:
        """Raises UnsuitableDatabaseError if there is no slot, no publication, or something was
        lost."""
        self.confirmed()
        self._check_publication()

    def confirmed(self) -> int:
        """Transactions whose commits begin before this are not shown any more."""
        place = self._place()
        if place is None:
            raise UnsuitableDatabaseError(
                f"the replication slot {self._options.slot} is gone, and changes with it: "
                "start anew, with a new checkpoint and another slot"
            )
        return place

    def flushed(self) -> int:
        """To where the log is on the server's disk."""
        return lsn_of(value(self._connection, "SELECT pg_current_wal_flush_lsn()::text"))

    def end_of(self, changes: int, end: int) -> int:
        """Where about so many changes end from the slot's place on, with a whole transaction: at
        ``end`` or before."""
        counted, last = when_free(lambda: self._count(changes, end))
        # The server stops with the transaction that reaches the number, also when it ends there.
        return min(end, lsn_of(last)) if counted >= changes else end

    def _count(self, changes: int, end: int) -> tuple[int, str]:
        row = self._connection.execute(
            f"SELECT count(*), max(lsn)::text FROM {_PEEK}".encode(),
            [self._options.slot, shown(end), changes, quoted(self._options.publication)],
        ).fetchone()
        assert row is not None
        return row[0], row[1]

    def advance(self, lsn: int) -> None:
        """Lets go what is before ``lsn``. A slot that is further ahead stays where it is."""
        if lsn > self.confirmed():
            slot = self._options.slot
            query = "SELECT 1 FROM pg_replication_slot_advance(%s, %s)"
            when_free(lambda: value(self._connection, query, slot, shown(lsn)))

    def snapshot(self) -> OpenSnapshot:
        """The caller closes its connection."""
        connection = connect(self._options)
        try:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            row = connection.execute(
                f"SELECT pg_export_snapshot(), pg_current_snapshot()::text, {NOW_US}".encode()
            ).fetchone()
            assert row is not None
            name, seen, time_us = row
            # After the snapshot: what it sees has its commit before this.
            lsn = lsn_of(value(connection, "SELECT pg_current_wal_insert_lsn()::text"))
        except BaseException:
            connection.close()
            raise
        return OpenSnapshot(connection, name, Snapshot.parse(seen), lsn, time_us)

    def close(self) -> None:
        self._connection.close()

    def _place(self) -> int | None:
        row = self._connection.execute(
            "SELECT confirmed_flush_lsn::text, wal_status, plugin, database = current_database() "
            "FROM pg_replication_slots WHERE slot_name = %s",
            [self._options.slot],
        ).fetchone()
        if row is None:
            return None
        place, status, plugin, is_here = row
        if plugin != "pgoutput" or not is_here:
            raise UnsuitableDatabaseError(
                f"the replication slot {self._options.slot} is of another database or plug-in"
            )
        if status == "lost" or place is None:
            raise UnsuitableDatabaseError(
                f"the replication slot {self._options.slot} was invalidated, and changes are lost: "
                "start anew, with a new checkpoint and another slot (max_slot_wal_keep_size says "
                "how much the server keeps)"
            )
        return lsn_of(place)

    def _check_server(self) -> None:
        level = value(self._connection, "SHOW wal_level")
        if level != "logical":
            raise UnsuitableDatabaseError(
                f"wal_level is {level}: logical decoding needs logical, and a restart of the "
                "server; option watermark does without, but sees no deletions"
            )
        for table in describe(self._connection, self._options.tables):
            identity = value(
                self._connection,
                "SELECT relreplident FROM pg_class c JOIN pg_namespace n "
                "ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s",
                *table,
            )
            if identity not in ("d", "f"):
                raise UnsuitableDatabaseError(
                    f"table {table} has another replica identity than its primary key: "
                    f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT"
                )

    def _publish(self) -> None:
        from psycopg import sql

        name = self._options.publication
        query = "SELECT 1 FROM pg_publication WHERE pubname = %s"
        if value(self._connection, query, name) is None:
            described = describe(self._connection, self._options.tables)
            tables = [table.own_rows() for table in described.values()]
            self._connection.execute(
                sql.SQL(
                    "CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)"
                ).format(sql.Identifier(name), sql.SQL(", ").join(tables))
            )
        self._check_publication()

    def _check_publication(self) -> None:
        name = self._options.publication
        kinds = value(
            self._connection,
            "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication "
            "WHERE pubname = %s",
            name,
        )
        if not kinds:
            raise UnsuitableDatabaseError(
                f"publication {name} is gone, or does not publish all changes"
            )
        # Filters and lists of columns are newer than some servers.
        rows = self._connection.execute(
            "SELECT schemaname, tablename, to_jsonb(p) -> 'attnames' FROM pg_publication_tables p "
            "WHERE pubname = %s AND to_jsonb(p) ->> 'rowfilter' IS NULL",
            [name],
        ).fetchall()
        published = {Table(schema, table): columns for schema, table, columns in rows}
        missing = sorted(set(self._options.tables) - set(published))
        if missing:
            raise UnsuitableDatabaseError(
                f"publication {name} does not have all of table {missing[0]}: for other tables "
                "start anew, with a new checkpoint and another slot"
            )
        self._check_columns(published)

    def _check_columns(self, published: Mapping[Table, list[str] | None]) -> None:
        """Raises UnsuitableDatabaseError for a publication with a list of columns: changes would
        not have the others, and a table that is written from them would get nulls."""
        for table in describe(self._connection, self._options.tables).values():
            names = published[table.table]
            left_out = [one.name for one in table.columns if one.name not in (names or [one.name])]
            if left_out:
                raise UnsuitableDatabaseError(
                    f"publication {self._options.publication} does not publish column "
                    f"{', '.join(left_out)} of table {table.table}: changes would not have what "
                    "the table's rows have. Publish the table without a list of columns"
                )


_PEEK = (
    "pg_logical_slot_peek_binary_changes(%s, %s, %s, 'proto_version', '1', 'publication_names', %s)"
)


def peek(connection: Connection, options: PostgresOptions, end: int) -> Iterator[tuple[int, bytes]]:
    """Messages of the plug-in with their places in the log, from the slot's on: of all transactions
    whose commits begin before ``end``, and maybe of some more. The server holds them meanwhile,
    this side few of them."""
    query = f"SELECT (lsn - '0/0')::bigint, data FROM {_PEEK}".encode()
    arguments = [options.slot, shown(end), None, quoted(options.publication)]

    def first() -> Sequence[Any]:
        connection.rollback()
        cursor.execute(query, arguments, binary=True)
        # The server decodes now.
        return cursor.fetchmany(_FETCHED_ROWS)

    connection.autocommit = False
    with connection.cursor(name="changes", scrollable=False) as cursor:
        rows = when_free(first)
        while rows:
            yield from rows
            rows = cursor.fetchmany(_FETCHED_ROWS)
    connection.rollback()


def when_free(ask: Callable[[], Result]) -> Result:
    """Asks again while another session uses the slot; psycopg's ObjectInUse at last."""
    from psycopg.errors import ObjectInUse

    deadline = time.monotonic() + BUSY_MOST_S
    while True:
        try:
            return ask()
        except ObjectInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(_BUSY_PAUSE_S)


def quoted(name: str) -> str:
    """As an element of a list of names."""
    return '"' + name.replace('"', '""') + '"'
