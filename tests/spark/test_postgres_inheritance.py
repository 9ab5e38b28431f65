"""Tables of a real PostgreSQL that others inherit from, without Spark: each row is told once, as
what publications say it is."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

from pyrklog.spark.postgres.events import Record
from pyrklog.spark.postgres.upsert import Target, upsert
from pyrklog.spark.postgres.watermark import WatermarkEngine, read_marks
from tests.support.postgres_reading import Database, batch, rest, running

pytestmark = [pytest.mark.timeout(120)]

WARNING = (
    "rows of public.jets are not read with table public.crafts, from which it inherits: "
    "option tables can name it"
)


@pytest.fixture
def crafts(database: Database) -> Database:
    """With the tables ``crafts``, and ``jets``, which inherits from it."""
    database.run(
        "CREATE TABLE crafts (id integer PRIMARY KEY, seats integer)",
        "CREATE TABLE jets (PRIMARY KEY (id), engines integer) INHERITS (crafts)",
        "INSERT INTO crafts VALUES (1, 10), (2, 20)",
        "INSERT INTO jets VALUES (3, 30, 2), (4, 40, 4)",
    )
    return database


def told(records: list[Record]) -> list[tuple[str, str, int, int | None]]:
    """Table, kind, id and seats of each."""
    values = [(record.table, json.loads(record.value)) for record in records if record.value]
    return sorted(
        (table, value["op"], row["id"], row["seats"])
        for table, value in values
        for row in [value["after"] or value["before"]]
    )


@pytest.mark.parametrize("publication", ["ours", "with heirs"])
def test_a_table_is_its_own_rows_in_snapshot_and_changes(
    crafts: Database, publication: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"tables": "crafts"}
    if publication == "with heirs":
        crafts.run("CREATE PUBLICATION whole FOR TABLE crafts")
        given["publication"] = "whole"
    options = crafts.options(**given)
    with running(options) as engine:
        start, records = batch(options, engine, engine.initial())
    assert told(records) == [("public.crafts", "r", 1, 10), ("public.crafts", "r", 2, 20)]
    # Those of both tables.
    crafts.run("UPDATE crafts SET seats = seats + 1")
    records = rest(options, start)
    assert told(records) == [("public.crafts", "u", 1, 11), ("public.crafts", "u", 2, 21)]
    assert [one.getMessage() for one in caplog.records] == [WARNING]


def test_both_tables_have_each_row_once(crafts: Database, caplog: pytest.LogCaptureFixture) -> None:
    options = crafts.options(tables="crafts,jets")
    with running(options) as engine:
        start, records = batch(options, engine, engine.initial())
    expected = [("crafts", 1, 10), ("crafts", 2, 20), ("jets", 3, 30), ("jets", 4, 40)]
    assert told(records) == [(f"public.{table}", "r", key, seats) for table, key, seats in expected]
    crafts.run("UPDATE crafts SET seats = seats + 1")
    records = rest(options, start)
    assert told(records) == [
        (f"public.{table}", "u", key, seats + 1) for table, key, seats in expected
    ]
    assert caplog.records == []


def test_a_watermark_reads_a_table_s_own_rows(
    crafts: Database, caplog: pytest.LogCaptureFixture
) -> None:
    options = crafts.options(tables="crafts", watermark="seats")
    with ExitStack() as stack:
        engine = WatermarkEngine(options)
        stack.callback(engine.stop)
        start = engine.initial()
        end = engine.latest(start)
        records = [one for task in engine.tasks(start, end) for one in read_marks(options, task)]
        assert told(records) == [("public.crafts", "r", 1, 10), ("public.crafts", "r", 2, 20)]
        crafts.run("INSERT INTO jets VALUES (5, 50, 2)")
        assert engine.latest(end) == end
    assert [one.getMessage() for one in caplog.records] == [WARNING]


def test_what_is_removed_by_upsert_is_not_removed_from_other_tables(crafts: Database) -> None:
    crafts.run("INSERT INTO jets VALUES (1, 11, 2)")
    target = Target(["crafts"], ["id"], ["seats"])
    upsert(crafts.connection, target, [(False, [1, None]), (True, [2, 21])], "a", 0)
    query = "SELECT tableoid::regclass::text, id, seats FROM crafts ORDER BY 1, 2"
    assert crafts.connection.execute(query.encode()).fetchall() == [
        ("crafts", 2, 21),
        ("jets", 1, 11),
        ("jets", 3, 30),
        ("jets", 4, 40),
    ]


def test_upsert_removes_from_partitions(database: Database) -> None:
    database.run(
        "CREATE TABLE days (id integer PRIMARY KEY, seats integer) PARTITION BY RANGE (id)",
        "CREATE TABLE days1 PARTITION OF days FOR VALUES FROM (0) TO (10)",
        "INSERT INTO days VALUES (1, 1), (2, 2)",
    )
    target = Target(["days"], ["id"], ["seats"])
    upsert(database.connection, target, [(False, [1, None]), (True, [2, 3])], "a", 0)
    assert database.connection.execute("SELECT * FROM days").fetchall() == [(2, 3)]
