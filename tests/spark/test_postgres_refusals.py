"""What a PostgreSQL server cannot give is refused with a sentence, by streams of its changes."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pyrklog.spark.postgres.changes import ChangesEngine, ChangesLostError
from pyrklog.spark.postgres.positions import Json, Position, lsn_of
from pyrklog.spark.postgres.server import UnsuitableDatabaseError
from tests.support.postgres import PostgresServer
from tests.support.postgres_reading import Database, batch, read, rest, running, snapshot

pytestmark = [pytest.mark.timeout(120)]


def refused(database: Database, start: Json | None = None, **options: str) -> str:
    """What is said at a start, or by a stream that goes on."""
    given = database.options(**options)
    with pytest.raises((UnsuitableDatabaseError, ChangesLostError)) as said:
        snapshot(given) if start is None else rest(given, start)
    return str(said.value)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SELECT 1", "there is no table public.things"),
        ("CREATE VIEW things AS SELECT 1", "there is no table public.things"),
        ("CREATE TABLE things (id integer)", "table public.things has no primary key"),
        (
            "CREATE TABLE things (id integer PRIMARY KEY); "
            "ALTER TABLE things REPLICA IDENTITY NOTHING",
            "ALTER TABLE public.things REPLICA IDENTITY DEFAULT",
        ),
        (
            "CREATE TABLE things (id integer PRIMARY KEY); CREATE PUBLICATION few FOR ALL TABLES "
            "WITH (publish = 'insert')",
            "publication few is gone, or does not publish all changes",
        ),
        (
            "CREATE TABLE things (id integer PRIMARY KEY); "
            "CREATE TABLE others (id integer PRIMARY KEY); CREATE PUBLICATION few FOR TABLE others",
            "publication few does not have all of table public.things",
        ),
        (
            "CREATE TABLE things (id integer PRIMARY KEY); "
            "CREATE PUBLICATION few FOR TABLE things WHERE (id > 3)",
            "publication few does not have all of table public.things",
        ),
        (
            "CREATE TABLE things (id integer PRIMARY KEY, size integer, name text); "
            "CREATE PUBLICATION few FOR TABLE things (id, name)",
            "publication few does not publish column size of table public.things",
        ),
    ],
)
def test_tables_that_cannot_be_followed(database: Database, statement: str, said: str) -> None:
    database.run(statement)
    assert said in refused(database, tables="things", publication="few")
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    assert database.value(slots) == 0


def test_a_publication_of_more_tables_will_do(planes: Database) -> None:
    planes.run(
        "CREATE TABLE others (id integer PRIMARY KEY)", "CREATE PUBLICATION whole FOR ALL TABLES"
    )
    options = planes.options(publication="whole")
    start = snapshot(options)
    planes.run("INSERT INTO others VALUES (1)", "DELETE FROM planes WHERE tailnum = 'N1'")
    assert [record.table for record in rest(options, start)] == ["public.planes"] * 2


def test_a_slot_that_is_gone(planes: Database) -> None:
    options = planes.options()
    start = snapshot(options)
    planes.run("DELETE FROM planes WHERE tailnum = 'N1'")
    planes.run(f"SELECT pg_drop_replication_slot('{options.slot}')")
    assert f"the replication slot {options.slot} is gone" in refused(planes, start)


def test_a_slot_that_something_else_has_moved(planes: Database) -> None:
    options = planes.options()
    start = snapshot(options)
    planes.run("DELETE FROM planes WHERE tailnum = 'N1'")
    slot = f"'{options.slot}'"
    planes.run(f"SELECT pg_replication_slot_advance({slot}, pg_current_wal_flush_lsn())")
    assert "something else has moved it" in refused(planes, start)


def test_a_slot_that_the_server_gave_up(planes: Database) -> None:
    options = planes.options()
    start = snapshot(options)
    planes.run(
        "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'",
        "SELECT pg_reload_conf()",
        "SELECT pg_switch_wal()",
        "DELETE FROM planes WHERE tailnum = 'N1'",
        "SELECT pg_switch_wal()",
        "DELETE FROM planes WHERE tailnum = 'N2'",
        "SELECT pg_switch_wal()",
        "CHECKPOINT",
        "ALTER SYSTEM RESET max_slot_wal_keep_size",
        "SELECT pg_reload_conf()",
    )
    assert "was invalidated, and changes are lost" in refused(planes, start)


def test_a_slot_of_another_plug_in(planes: Database) -> None:
    slot = planes.options().slot
    planes.run(f"SELECT pg_create_logical_replication_slot('{slot}', 'test_decoding')")
    assert "is of another database or plug-in" in refused(planes)


def test_a_publication_that_is_gone(planes: Database) -> None:
    options = planes.options()
    start = snapshot(options)
    planes.run(
        "UPDATE planes SET seats = 1 WHERE tailnum = 'N1'",
        f"DROP PUBLICATION {options.publication}",
    )
    assert "is gone, or does not publish all changes" in refused(planes, start)


def test_a_publication_that_lost_a_column_under_way(planes: Database) -> None:
    """Its changes would be told without it."""
    options = planes.options()
    start = snapshot(options)
    with running(options) as engine:
        planes.run("UPDATE planes SET seats = 1 WHERE tailnum = 'N1'")
        start, _ = batch(options, engine, start)
        planes.run(
            f"ALTER PUBLICATION {options.publication} SET TABLE ONLY planes (tailnum, seats)",
            "UPDATE planes SET seats = 2 WHERE tailnum = 'N1'",
        )
        end = engine.latest(start)
        with pytest.raises(UnsuitableDatabaseError, match="does not publish column manufacturer"):
            read(options, engine, start, end)


def test_a_server_whose_log_ends_before(planes: Database) -> None:
    options = planes.options()
    start = snapshot(options)
    ahead = Position(lsn_of(start["lsn"]) + 2**40).to_json()
    assert "another server, or one from a backup" in refused(planes, ahead)


def test_a_connection_string_that_is_none_is_not_shown(database: Database) -> None:
    with pytest.raises(UnsuitableDatabaseError) as said:
        ChangesEngine(database.options(conninfo="host=db secret"))
    assert "secret" not in str(said.value)


def test_a_wrong_password_is_not_shown(database: Database) -> None:
    with pytest.raises(psycopg.OperationalError) as said:
        ChangesEngine(
            database.options(conninfo="host=127.0.0.1 port=1 connect_timeout=5", password="secret")
        )
    assert "secret" not in str(said.value)


def test_a_server_without_logical_decoding() -> None:
    with PostgresServer(wal_level="replica") as server:
        database = Database(server)
        database.run("CREATE TABLE planes (tailnum text PRIMARY KEY)")
        said = refused(database)
        database.connection.close()
    assert said.startswith("wal_level is replica: logical decoding needs logical")
    assert "option watermark" in said


def test_a_batch_of_a_stream_is_read_by_its_own_mode(planes: Database) -> None:
    document: Any = {"version": 1, "watermarks": {"public.planes": "5"}}
    with running(planes.options()) as engine, pytest.raises(ValueError, match="is no position"):
        read(planes.options(), engine, document, document)
