"""A stream of changes by logical decoding: the rows of a snapshot, then each transaction.

Nothing that matters is kept here but the snapshot that tasks are reading: an engine goes on from
offsets alone. Steps, and what a crash at each does: ``docs/understanding/spark-postgres.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyrklog.spark.postgres import pgoutput
from pyrklog.spark.postgres.events import Moment, Record, Source, read, records_of
from pyrklog.spark.postgres.options import PostgresOptions, Table
from pyrklog.spark.postgres.pgoutput import Begin, Delete, Insert, Relation, Truncate, Update
from pyrklog.spark.postgres.positions import START, Json, Position, Snapshot, position, shown
from pyrklog.spark.postgres.server import (
    Description,
    connect,
    database,
    describe,
)
from pyrklog.spark.postgres.slot import OpenSnapshot, Slot, peek

if TYPE_CHECKING:
    from pyrklog.spark.postgres.server import Connection

logger = logging.getLogger("pyrklog.spark")


class ChangesLostError(Exception):
    """The slot does not show any more what a batch needs."""


class TruncatedError(Exception):
    """A table was truncated, which no record of a row tells."""


@dataclass(frozen=True)
class SnapshotTask:
    """All rows of a table, in a snapshot that the driver holds."""

    table: Table
    name: str
    lsn: int
    time_us: int


@dataclass(frozen=True)
class ChangesTask:
    """The transactions whose commits begin from ``start`` on and before ``end``, without those that
    the snapshot sees."""

    start: int
    end: int
    snapshot: Snapshot | None


class ChangesEngine:
    """One query's source, on the driver. Offsets are documents as Spark keeps them."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._slot = Slot(options)
        self._snapshot: OpenSnapshot | None = None
        self._target: int | None = None

    def initial(self) -> Json:
        self._slot.prepare()
        return START

    def prepare_available_now(self) -> None:
        self._target = self._slot.flushed()

    def latest(self, start: Json) -> Json:
        """Where the next batch ends."""
        at = position(start)
        if at is None:
            found = self._open_snapshot()
            return Position(self._slot.confirmed(), found.snapshot, found.lsn).to_json()
        end = self._slot.flushed()
        if end < at.lsn:
            raise ChangesLostError(
                f"the server's log ends at {shown(end)}, before what was read: this is another "
                "server, or one from a backup. Start anew, with a new checkpoint and another slot"
            )
        # Spark plans a batch when the one before is in its log of finished batches.
        self.commit(start)
        if self._target is not None:
            end = min(end, self._target)
        if end <= at.lsn:
            return start
        if self._options.changes_most is not None:
            end = self._slot.end_of(self._options.changes_most, end)
        return at.moved(end).to_json()

    def tasks(self, start: Json, end: Json) -> list[SnapshotTask | ChangesTask]:
        at, until = position(start), position(end)
        if until is None:
            return []
        if at is None:
            held = self._snapshot
            if held is None or held.snapshot != until.snapshot:
                # Of a batch that died. Changes between that snapshot and this one come again.
                logger.warning("the snapshot begins anew: later changes may be told once more")
                held = self._open_snapshot()
            return [
                SnapshotTask(table, held.name, held.lsn, held.time_us)
                for table in self._options.tables
            ]
        # Each batch: a publication may be altered while a stream runs.
        self._slot.check()
        confirmed = self._slot.confirmed()
        if confirmed > at.lsn:
            raise ChangesLostError(
                f"the replication slot {self._options.slot} stands at {shown(confirmed)}, behind "
                f"what was to be read from {shown(at.lsn)} on: something else has moved it. Start "
                "anew, with a new checkpoint and another slot"
            )
        return [ChangesTask(at.lsn, until.lsn, at.snapshot)]

    def commit(self, end: Json) -> None:
        """Everything before is written elsewhere."""
        at = position(end)
        if at is not None:
            self._close_snapshot()
            self._slot.advance(at.lsn)

    def stop(self) -> None:
        self._close_snapshot()
        self._slot.close()

    def _open_snapshot(self) -> OpenSnapshot:
        self._close_snapshot()
        self._snapshot = self._slot.snapshot()
        return self._snapshot

    def _close_snapshot(self) -> None:
        if self._snapshot is not None:
            self._snapshot.connection.close()
            self._snapshot = None


def read_snapshot(options: PostgresOptions, task: SnapshotTask) -> Iterator[Record]:
    from psycopg import sql

    with closing(connect(options)) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(task.name)))
        table = describe(connection, [task.table])[task.table]
        moment = Moment(task.time_us, task.lsn, task.lsn, is_snapshot=True)
        yield from copy_rows(connection, table, moment)


def copy_rows(
    connection: Connection, table: Description, moment: Moment, condition: Any = None
) -> Iterator[Record]:
    """The rows of a table, of those that fit into ``condition``, psycopg's SQL behind FROM."""
    from psycopg import sql

    source = Source(database(connection), table.table, table.key, table.columns)
    query = sql.SQL("COPY (SELECT {} FROM {} {}) TO STDOUT").format(
        sql.SQL(", ").join(sql.Identifier(column.name) for column in table.columns),
        table.own_rows(),
        condition or sql.SQL(""),
    )
    with connection.cursor() as cursor, cursor.copy(query) as rows:
        for row in rows.rows():
            yield read(source, moment, row)


def read_changes(options: PostgresOptions, task: ChangesTask) -> Iterator[Record]:
    with closing(connect(options)) as connection:
        reading = _Reading(
            options, task, database(connection), describe(connection, options.tables)
        )
        for lsn, data in peek(connection, options, task.end):
            message = pgoutput.parse(data)
            if message is not None:
                yield from reading.records(lsn, message)


class _Reading:
    """The records of one task's messages."""

    def __init__(
        self,
        options: PostgresOptions,
        task: ChangesTask,
        database: str,
        tables: dict[Table, Description],
    ) -> None:
        self._options = options
        self._task = task
        self._database = database
        self._tables = tables
        self._sources: dict[int, Source] = {}
        self._begin: Begin | None = None
        """Of a transaction that is told."""

    def records(self, lsn: int, message: pgoutput.Message) -> Iterator[Record]:
        match message:
            case Begin():
                self._begin = message if self._is_told(message) else None
            case Relation():
                self._relation(message)
            case Insert() | Update() | Delete():
                source = self._sources.get(message.relation)
                if self._begin is not None and source is not None:
                    yield from records_of(source, self._moment(lsn, self._begin), message)
            case Truncate():
                self._truncated(lsn, message)

    def _is_told(self, begin: Begin) -> bool:
        task = self._task
        if not task.start <= begin.commit_lsn < task.end:
            return False
        return task.snapshot is None or not task.snapshot.sees(begin.xid)

    def _relation(self, message: Relation) -> None:
        """A publication may have more tables."""
        table = self._tables.get(Table(message.schema, message.name))
        if table is not None:
            self._sources[message.oid] = Source(
                self._database, table.table, table.key, message.columns
            )

    def _moment(self, lsn: int, begin: Begin) -> Moment:
        return Moment(begin.time_us, lsn, begin.commit_lsn, begin.xid)

    def _truncated(self, lsn: int, message: Truncate) -> None:
        found = [self._sources[oid].table for oid in message.relations if oid in self._sources]
        if self._begin is None or not found:
            return
        told = f"table {found[0]} was truncated at {shown(lsn)}"
        if self._options.fails_on_truncate:
            raise TruncatedError(
                f"{told}, which no record tells: onTruncate=skip goes on, and leaves its rows"
            )
        logger.warning("%s: its rows stay in the topic", told)
