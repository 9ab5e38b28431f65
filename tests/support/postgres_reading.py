"""Reading changes of a real PostgreSQL as Spark's driver and tasks do, without Spark."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from pyrklog.spark.postgres.changes import (
    ChangesEngine,
    ChangesTask,
    SnapshotTask,
    read_changes,
    read_snapshot,
)
from pyrklog.spark.postgres.events import Record
from pyrklog.spark.postgres.options import PostgresOptions, parse
from pyrklog.spark.postgres.positions import Json
from tests.support.changing_table import Row, Step, steps_told
from tests.support.postgres import PostgresServer

PLANES: list[Row] = [
    {"tailnum": f"N{number}", "manufacturer": "AIRBUS", "seats": number} for number in range(40)
]
_numbers = itertools.count()


class Database:
    """One of a test's own."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.name = f"test{next(_numbers)}"
        self.conninfo = server.new_database(self.name)
        self.connection = self.connect()

    def connect(self) -> psycopg.Connection[Any]:
        return self.server.connect(self.name)

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement.encode())

    def value(self, query: str) -> Any:
        row = self.connection.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]

    def options(self, **given: str) -> PostgresOptions:
        known = {"conninfo": self.conninfo, "tables": "planes"}
        if "watermark" not in given:
            # Slots are the server's.
            known["slot"] = f"slot_{self.name}"
        return parse(known | given)

    @contextmanager
    def using_slot(self, options: PostgresOptions) -> Iterator[None]:
        """As a server does that follows this one."""
        with psycopg.connect(self.conninfo, replication="database") as connection:
            found = connection.pgconn.exec_(
                f"START_REPLICATION SLOT {options.slot} LOGICAL 0/0 "
                f"(proto_version '1', publication_names '{options.publication}')".encode()
            )
            assert found.status == psycopg.pq.ExecStatus.COPY_BOTH, found.error_message
            try:
                yield
            finally:
                connection.pgconn.finish()


@contextmanager
def running(options: PostgresOptions) -> Iterator[ChangesEngine]:
    """An engine, until the block ends."""
    engine = ChangesEngine(options)
    try:
        yield engine
    finally:
        engine.stop()


def read(options: PostgresOptions, engine: ChangesEngine, start: Json, end: Json) -> list[Record]:
    found: list[Record] = []
    for task in engine.tasks(start, end):
        match task:
            case SnapshotTask():
                found += read_snapshot(options, task)
            case ChangesTask():
                found += read_changes(options, task)
    return found


def batch(
    options: PostgresOptions, engine: ChangesEngine, start: Json
) -> tuple[Json, list[Record]]:
    end = engine.latest(start)
    return end, read(options, engine, start, end)


def snapshot(options: PostgresOptions) -> Json:
    """Where the changes begin."""
    with running(options) as engine:
        return batch(options, engine, engine.initial())[0]


def rest(options: PostgresOptions, start: Json) -> list[Record]:
    """Until there is no more."""
    found: list[Record] = []
    with running(options) as engine:
        engine.prepare_available_now()
        while (end := engine.latest(start)) != start:
            found += read(options, engine, start, end)
            start = end
        engine.commit(start)
    return found


def told(records: list[Record]) -> dict[str, list[Step]]:
    return steps_told((record.key, record.value) for record in records)
