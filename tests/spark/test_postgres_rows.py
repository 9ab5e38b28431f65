"""A real PostgreSQL's rows by a watermark, and batches of rows into its tables, without Spark."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import psycopg
import pytest

from pyrklog.spark.postgres.options import PostgresOptions
from pyrklog.spark.postgres.positions import START, Json
from pyrklog.spark.postgres.server import UnsuitableDatabaseError
from pyrklog.spark.postgres.upsert import Target, upsert
from pyrklog.spark.postgres.watermark import WatermarkEngine, read_marks
from tests.support.changing_table import content
from tests.support.postgres_reading import Database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.timeout(120)]

TARGET = Target(["planes"], ["tailnum"], ["manufacturer", "seats"])


@contextmanager
def running(options: PostgresOptions) -> Iterator[WatermarkEngine]:
    engine = WatermarkEngine(options)
    try:
        yield engine
    finally:
        engine.stop()


def batch(
    options: PostgresOptions, engine: WatermarkEngine, start: Json
) -> tuple[Json, list[tuple[str, int]]]:
    """The end of the next one, and its rows."""
    end = engine.latest(start)
    records = [one for task in engine.tasks(start, end) for one in read_marks(options, task)]
    assert all(record.lsn is None for record in records)
    values = [json.loads(record.value or b"") for record in records]
    assert {value["op"] for value in values} <= {"r"}
    return end, [(value["after"]["tailnum"], value["after"]["seats"]) for value in values]


def test_rows_come_again_when_their_mark_rises(planes: Database) -> None:
    options = planes.options(watermark="seats", maxChangesPerTrigger="15")
    found = []
    with running(options) as engine:
        start = engine.initial()
        assert start == START
        for _ in range(3):
            end, rows = batch(options, engine, start)
            assert rows == batch(options, engine, start)[1], "a repeated batch differs"
            start = end
            found.append(rows)
        assert engine.latest(start) == start
    assert [len(rows) for rows in found] == [15, 15, 10]
    assert [*chain(*found)] == [(f"N{number}", number) for number in range(40)]
    planes.run(
        "DELETE FROM planes WHERE tailnum = 'N1'",
        "UPDATE planes SET seats = 100 WHERE tailnum IN ('N2', 'N3')",
        "UPDATE planes SET seats = NULL WHERE tailnum = 'N4'",
    )
    # Another process, by the checkpoint alone.
    with running(options) as engine:
        engine.prepare_available_now()
        planes.run("UPDATE planes SET seats = 101 WHERE tailnum = 'N5'")
        end, rows = batch(options, engine, start)
        assert sorted(rows) == [("N2", 100), ("N3", 100)]
        assert engine.latest(end) == end, "what came after the start of the run"


def test_rows_with_one_mark_are_one_batch(planes: Database) -> None:
    planes.run("UPDATE planes SET seats = 5")
    options = planes.options(watermark="seats", maxChangesPerTrigger="3")
    with running(options) as engine:
        end, rows = batch(options, engine, START)
        assert len(rows) == 40
        assert engine.latest(end) == end


def test_the_newest_times_are_left_for_later(database: Database) -> None:
    database.run(
        "CREATE TABLE planes (tailnum text PRIMARY KEY, seats integer, seen timestamptz)",
        "INSERT INTO planes VALUES ('N1', 1, now() - interval '1 hour'), ('N2', 2, now())",
    )
    late, soon = (database.options(watermark="seen", lag=lag) for lag in ("10m", "0s"))
    with running(late) as engine:
        end, rows = batch(late, engine, engine.initial())
        assert rows == [("N1", 1)]
        assert engine.latest(end) == end
    with running(soon) as engine:
        assert batch(soon, engine, end)[1] == [("N2", 2)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"watermark": "seen"}, "table public.planes has no column seen"),
        ({"watermark": "seats", "lag": "5m"}, "option lag needs a column of times"),
        ({"watermark": "seats", "tables": "others"}, "there is no table public.others"),
    ],
)
def test_columns_that_are_no_marks(planes: Database, options: dict[str, str], said: str) -> None:
    with (
        running(planes.options(**options)) as engine,
        pytest.raises(UnsuitableDatabaseError, match=said),
    ):
        engine.initial()


def test_a_batch_is_written_once(planes: Database) -> None:
    before = content(planes.connection)
    rows: list[tuple[bool, list[object]]] = [
        (True, ["N1", "first", 1]),
        (False, ["N2", None, None]),
        (True, ["N1", "last", 2]),
        (True, ["new", "x\ty\\N", None]),
        (True, ["N3", "there", 3]),
        (False, ["N3", None, None]),
        (False, ["N4", None, None]),
        (True, ["N4", "back", 4]),
        (False, ["never there", None, None]),
    ]
    assert upsert(planes.connection, TARGET, rows, "a", 7)
    expected = before | {
        "N1": {"tailnum": "N1", "manufacturer": "last", "seats": 2},
        "N4": {"tailnum": "N4", "manufacturer": "back", "seats": 4},
        "new": {"tailnum": "new", "manufacturer": "x\ty\\N", "seats": None},
    }
    del expected["N2"], expected["N3"]
    assert content(planes.connection) == expected
    for old in (7, 6):
        assert not upsert(planes.connection, TARGET, [(False, ["N1", None, None])], "a", old)
    assert content(planes.connection) == expected
    assert upsert(planes.connection, TARGET, [(False, ["N1", None, None])], "b", 0)
    assert upsert(planes.connection, TARGET, [], "a", 8)
    del expected["N1"]
    assert content(planes.connection) == expected


def test_a_batch_that_fails_leaves_nothing(planes: Database) -> None:
    before = content(planes.connection)
    rows: list[tuple[bool, list[object]]] = [(True, ["N1", "a", 1]), (True, ["N2", "a", "many"])]
    with pytest.raises(psycopg.DataError):
        upsert(planes.connection, TARGET, rows, "a", 0)
    assert content(planes.connection) == before
    assert upsert(planes.connection, TARGET, rows[:1], "a", 0)


def test_of_two_writers_of_one_batch_one_waits_and_writes_nothing(planes: Database) -> None:
    """A driver that was thought dead is still at it."""
    upsert(planes.connection, TARGET, [], "a", 0)
    begun, go = threading.Event(), threading.Event()
    results: list[Any] = []

    def rows() -> Iterator[tuple[bool, list[object]]]:
        begun.set()
        go.wait(60)
        yield True, ["N1", "first", 1]

    def write(given: Any) -> None:
        with planes.connect() as connection:
            results.append(upsert(connection, TARGET, given, "a", 1))

    first = threading.Thread(target=write, args=[rows()])
    first.start()
    assert begun.wait(60)
    second = threading.Thread(target=write, args=[[(True, ["N1", "second", 2])]])
    second.start()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    wait_until(lambda: planes.value(waiting) == 1, "the second does not wait")
    go.set()
    first.join()
    second.join()
    assert results == [True, False]
    assert content(planes.connection)["N1"]["manufacturer"] == "first"


def test_a_table_in_a_schema_with_a_key_of_two_columns_and_no_others(database: Database) -> None:
    database.run(
        "CREATE SCHEMA sales",
        'CREATE TABLE sales."Seen" (a integer, "B" integer, PRIMARY KEY (a, "B"))',
    )
    target = Target(["sales", "Seen"], ["a", "B"], [])
    upsert(database.connection, target, [(True, [1, 2]), (True, [1, 3]), (True, [1, 2])], "a", 0)
    upsert(database.connection, target, [(False, [1, 2]), (True, [1, 3])], "a", 1)
    assert database.connection.execute('SELECT * FROM sales."Seen"').fetchall() == [(1, 3)]
