"""Changes of a real PostgreSQL's tables without Spark: what its driver and tasks do, with engines
that die between their steps."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from pyrklog.spark.postgres.changes import TruncatedError
from pyrklog.spark.postgres.events import UNAVAILABLE, Record
from pyrklog.spark.postgres.positions import START, Position, lsn_of
from tests.support import changing_table
from tests.support.changing_table import ChangingTable, check_once, last_of
from tests.support.postgres_reading import (
    PLANES,
    Database,
    batch,
    read,
    rest,
    running,
    snapshot,
    told,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.timeout(120)]


@pytest.mark.parametrize("seed", range(3))
def test_a_snapshot_and_changes_of_a_table_that_changes_all_the_time(
    planes: Database, seed: int
) -> None:
    """Also between the snapshot and the slot, and while an engine is away."""
    options = planes.options(maxChangesPerTrigger="50")
    records: list[Record] = []
    batches = 0
    with ChangingTable(planes.connect, seed) as table:
        wait_until(lambda: table.transactions > 20, "nothing changes")
        with running(options) as engine:
            start = engine.initial()
            begun = table.transactions
            wait_until(lambda: table.transactions > begun + 20, "nothing changes")
            while batches < 4:
                end, found = batch(options, engine, start)
                batches += end != start
                start, records = end, records + found
        begun = table.transactions
        wait_until(lambda: table.transactions > begun + 50, "nothing changes")
    records += rest(options, start)
    steps = told(records)
    assert check_once(steps, table) > 20
    assert last_of(steps) == changing_table.content(planes.connection)


def test_each_batch_is_the_same_when_it_is_repeated(planes: Database) -> None:
    """The driver dies at any step; what it has logged is where a batch starts and ends."""
    options = planes.options(maxChangesPerTrigger="20")
    start = snapshot(options)
    with ChangingTable(planes.connect) as table:
        wait_until(lambda: table.transactions > 40, "nothing changes")
    records: list[Record] = []
    while True:
        with running(options) as engine:
            # Planned, and then dead.
            end = engine.latest(start)
        if end == start:
            break
        with running(options) as engine:
            # Read and written; dead before the slot knows.
            first = read(options, engine, start, end)
        with running(options) as engine:
            second = read(options, engine, start, end)
        assert first == second
        records += second
        start = end
    with planes.connect() as connection:
        expected = changing_table.content(connection)
    told_steps = told(records)
    assert sum(map(len, told_steps.values())) == sum(map(len, table.steps.values()))
    assert {key: row for key, row in expected.items() if key in told_steps} == last_of(told_steps)


def test_a_snapshot_that_dies_begins_anew_and_tells_later_changes_again(planes: Database) -> None:
    options = planes.options()
    with running(options) as engine:
        start = engine.initial()
        planes.run("UPDATE planes SET seats = 100 WHERE tailnum = 'N1'")
        end = engine.latest(start)
        # Spark has logged where the batch ends.
        planes.run("UPDATE planes SET seats = 101 WHERE tailnum = 'N1'")
    with running(options) as engine:
        assert engine.initial() == start
        records = read(options, engine, start, end)
        planes.run("UPDATE planes SET seats = 102 WHERE tailnum = 'N1'")
    records += rest(options, end)
    seats = [(op, row and row["seats"]) for op, row in told(records)["N1"]]
    assert seats == [("r", 101), ("u", 101), ("u", 102)]
    assert len(told(records)) == len(PLANES)


def test_what_is_committed_between_slot_and_snapshot_is_told_once(planes: Database) -> None:
    """The slot is made first, and waits for transactions: each change is in the snapshot's rows or
    behind them, wherever its commit is."""
    options = planes.options()
    open_before, open_across = planes.connect(), planes.connect()
    with running(options) as engine, closing(open_before), closing(open_across):
        # Begun before the slot, which waits for its end.
        open_before.execute("BEGIN")
        open_before.execute("UPDATE planes SET seats = 100 WHERE tailnum = 'N1'")
        with ThreadPoolExecutor(1) as pool:
            made = pool.submit(engine.initial)
            waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            wait_until(lambda: planes.value(waits) == 1, "the slot waits for nobody")
            open_before.execute("COMMIT")
            start = made.result(60)
        # Between both, and across the snapshot.
        planes.run(
            "UPDATE planes SET seats = 200 WHERE tailnum = 'N2'",
            "DELETE FROM planes WHERE tailnum = 'N3'",
            "INSERT INTO planes VALUES ('new', 'BOEING', 400)",
        )
        open_across.execute("BEGIN")
        open_across.execute("UPDATE planes SET seats = 500 WHERE tailnum = 'N5'")
        end = engine.latest(start)
        open_across.execute("COMMIT")
        planes.run("UPDATE planes SET seats = 600 WHERE tailnum = 'N2'")
        records = read(options, engine, start, end)
    records += rest(options, end)
    steps = told(records)
    seen = {
        key: [(op, row and row["seats"]) for op, row in steps[key]] for key in steps if key != "N3"
    }
    expected = {f"N{number}": [("r", number)] for number in range(40) if number != 3}
    expected["N1"] = [("r", 100)]
    expected["N2"] = [("r", 200), ("u", 600)]
    expected["N5"] = [("r", 5), ("u", 500)]
    expected["new"] = [("r", 400)]
    assert (seen, "N3" in steps) == (expected, False)


def test_one_slot_serves_a_start_that_died_before_its_first_batch(planes: Database) -> None:
    options = planes.options()
    with running(options) as engine:
        engine.initial()
        engine.latest(START)
    planes.run("DELETE FROM planes WHERE tailnum = 'N1'")
    with running(options) as engine:
        end, records = batch(options, engine, engine.initial())
    records += rest(options, end)
    assert last_of(told(records)) == changing_table.content(planes.connection)
    assert all([op for op, _ in steps] == ["r"] for steps in told(records).values())


def test_the_slot_lets_go_what_is_written_elsewhere(planes: Database) -> None:
    options = planes.options()
    start = snapshot(options)
    place = (
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots "
        f"WHERE slot_name = '{options.slot}'"
    )
    before = lsn_of(planes.value(place))
    planes.run("UPDATE planes SET seats = 7")
    with running(options) as engine:
        end, records = batch(options, engine, start)
        assert len(records) == len(PLANES)
        assert lsn_of(planes.value(place)) == before
        engine.commit(end)
    assert lsn_of(planes.value(place)) == lsn_of(end["lsn"]) > before


def test_a_transaction_is_never_divided(planes: Database) -> None:
    options = planes.options(maxChangesPerTrigger="10")
    start = snapshot(options)
    planes.run("UPDATE planes SET seats = 1", "UPDATE planes SET seats = 2", "DELETE FROM planes")
    with running(options) as engine:
        sizes = []
        for _ in range(3):
            start, records = batch(options, engine, start)
            sizes.append(len(records))
    assert sizes == [len(PLANES), len(PLANES), 2 * len(PLANES)]


def test_a_limit_that_a_transaction_reaches_exactly_is_one(planes: Database) -> None:
    """A transaction of one row has three messages, the first has the table's, too: ten are three
    transactions."""
    options = planes.options(maxChangesPerTrigger="10")
    start = snapshot(options)
    planes.run(*(f"UPDATE planes SET seats = {n} WHERE tailnum = 'N1'" for n in range(101, 113)))
    found = []
    with running(options) as engine:
        for _ in range(4):
            start, records = batch(options, engine, start)
            found.append(seats(records))
    assert found == [[n, n + 1, n + 2] for n in range(101, 113, 3)]


def seats(records: list[Record]) -> list[int]:
    return [json.loads(record.value or b"")["after"]["seats"] for record in records]


def test_a_batch_has_what_is_between_its_places_wherever_the_slot_is(planes: Database) -> None:
    options = planes.options()
    start = snapshot(options)
    ends = []
    with running(options) as engine:
        for number in (101, 102):
            planes.run(f"UPDATE planes SET seats = {number} WHERE tailnum = 'N1'")
            ends.append(engine.latest(start))
        assert seats(read(options, engine, start, ends[0])) == [101]
        assert seats(read(options, engine, ends[0], ends[1])) == [102]
        assert seats(read(options, engine, start, ends[1])) == [101, 102]


def test_a_place_within_a_commit_is_one_line_for_batches_and_the_slot(planes: Database) -> None:
    """The log may be flushed up to anywhere."""
    options = planes.options()
    start = snapshot(options)
    for number in (101, 102):
        planes.run(f"UPDATE planes SET seats = {number} WHERE tailnum = 'N1'")
    with running(options) as engine:
        end, records = batch(options, engine, start)
        begin = records[0].lsn
        assert begin is not None
        before, within = (Position(lsn).to_json() for lsn in (begin, begin + 1))
        assert read(options, engine, start, before) == []
        engine.commit(before)
        assert seats(read(options, engine, before, within)) == [101]
        assert seats(read(options, engine, before, end)) == [101, 102]
        engine.commit(within)
        assert seats(read(options, engine, within, end)) == [102]


def test_a_server_that_crashes_loses_nothing(planes: Database) -> None:
    options = planes.options()
    start = snapshot(options)
    planes.run("UPDATE planes SET seats = 1 WHERE tailnum = 'N1'")
    with running(options) as engine:
        start, first = batch(options, engine, start)
        engine.commit(start)
    # The slot's place is not on the disk yet.
    planes.connection.close()
    planes.server.crash()
    planes.server.start()
    planes.connection = planes.connect()
    planes.run("UPDATE planes SET seats = 2 WHERE tailnum = 'N1'")
    records = first + rest(options, start)
    assert [row and row["seats"] for _, row in told(records)["N1"]] == [1, 2]


def test_values_of_many_types_are_the_same_in_snapshot_and_changes(database: Database) -> None:
    database.run(
        "CREATE TABLE kinds (a smallint, b bigint, price numeric, f real, g float8, h boolean, "
        "i timestamptz, j timestamp, k date, l jsonb, m bytea, n text[], o uuid, p interval, "
        "q char(5), gone text, made integer GENERATED ALWAYS AS (a + 1) STORED, "
        '"Odd ""name" text, PRIMARY KEY (b, a))',
        "ALTER TABLE kinds DROP COLUMN gone",
    )
    row = (
        "(1, 9007199254740993, 12.50, 1.1, 'NaN', true, '2013-01-01 05:00:00.5+01', "
        "'2013-01-01 05:00', '2013-01-02', '{\"a\": 1}', '\\xff00', '{x,NULL}', "
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '1 day 2 hours', 'ab', E'tab\\tnew\\nline\\\\')"
    )
    columns = 'a, b, price, f, g, h, i, j, k, l, m, n, o, p, q, "Odd ""name"'
    insert = f"INSERT INTO kinds ({columns}) VALUES {row}"
    options = database.options(tables="kinds")
    database.run(insert)
    with running(options) as engine:
        start, records = batch(options, engine, engine.initial())
    database.run("DELETE FROM kinds", insert)
    records += rest(options, start)
    expected = {
        "a": 1,
        "b": 9007199254740993,
        "price": "12.50",
        "f": 1.1,
        "g": "NaN",
        "h": True,
        "i": "2013-01-01T04:00:00.5Z",
        "j": "2013-01-01T05:00:00",
        "k": "2013-01-02",
        "l": '{"a": 1}',
        "m": "/wA=",
        "n": "{x,NULL}",
        "o": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "p": "P1DT2H",
        "q": "ab   ",
        'Odd "name': "tab\tnew\nline\\",
    }
    values = [json.loads(record.value or b"{}") for record in records]
    assert [(value.get("op"), value.get("after")) for value in values] == [
        ("r", expected),
        ("d", None),
        (None, None),
        ("c", expected),
    ]
    assert [record.key for record in records] == [b'{"b":9007199254740993,"a":1}'] * 4
    assert [value["source"]["snapshot"] for value in values if value] == ["true", "false", "false"]


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_large_values_that_an_update_left(planes: Database, identity: str) -> None:
    large = "x" * 100_000
    planes.run(
        f"ALTER TABLE planes REPLICA IDENTITY {identity}",
        "ALTER TABLE planes ALTER manufacturer SET STORAGE EXTERNAL",
        f"UPDATE planes SET manufacturer = '{large}' WHERE tailnum = 'N1'",
    )
    options = planes.options()
    start = snapshot(options)
    planes.run("UPDATE planes SET seats = 3 WHERE tailnum = 'N1'")
    (record,) = rest(options, start)
    value = json.loads(record.value or b"")
    expected = {"tailnum": "N1", "manufacturer": large, "seats": 3}
    if identity == "FULL":
        assert (value["before"], value["after"]) == (expected | {"seats": 1}, expected)
    else:
        assert (value["before"], value["after"]) == (None, expected | {"manufacturer": UNAVAILABLE})


def test_several_tables_partitioned_ones_too_and_no_other(database: Database) -> None:
    database.run(
        "CREATE SCHEMA sales",
        'CREATE TABLE sales."Orders" (id integer PRIMARY KEY, hour integer)',
        "CREATE TABLE days (id integer PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE days1 PARTITION OF days FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE days2 PARTITION OF days FOR VALUES FROM (10) TO (20)",
        "CREATE TABLE others (id integer PRIMARY KEY)",
        'INSERT INTO days VALUES (1), (11); INSERT INTO sales."Orders" VALUES (5, 6)',
    )
    options = database.options(tables="sales.Orders,days")
    with running(options) as engine:
        start, records = batch(options, engine, engine.initial())
    database.run(
        "INSERT INTO others VALUES (1)",
        'UPDATE sales."Orders" SET hour = 7; INSERT INTO days VALUES (2), (12)',
    )
    records += rest(options, start)
    found = [(record.table, json.loads(record.key)["id"]) for record in records]
    days, orders = "public.days", "sales.Orders"
    assert sorted(found[:3]) == [(days, 1), (days, 11), (orders, 5)]
    assert found[3:] == [(orders, 5), (days, 2), (days, 12)]


def test_a_truncated_table_is_told(planes: Database) -> None:
    options = planes.options()
    start = snapshot(options)
    planes.run("TRUNCATE planes", "INSERT INTO planes VALUES ('N1', 'BOEING', 2)")
    with pytest.raises(TruncatedError, match=r"public\.planes was truncated at .*onTruncate=skip"):
        rest(options, start)
    records = rest(planes.options(onTruncate="skip"), start)
    assert [op for op, _ in told(records)["N1"]] == ["c"]


def test_a_new_column_is_told(planes: Database) -> None:
    options = planes.options()
    start = snapshot(options)
    planes.run(
        "ALTER TABLE planes ADD COLUMN engines integer DEFAULT 2",
        "UPDATE planes SET seats = 3 WHERE tailnum = 'N1'",
    )
    (record,) = rest(options, start)
    assert json.loads(record.value or b"")["after"]["engines"] == 2


def test_a_slot_that_is_in_use_is_waited_for(planes: Database) -> None:
    options = planes.options()
    start = snapshot(options)
    planes.run("UPDATE planes SET seats = 3 WHERE tailnum = 'N1'")
    with running(options) as engine, ThreadPoolExecutor(1) as pool:
        end = engine.latest(start)
        with planes.using_slot(options):
            reading = pool.submit(read, options, engine, start, end)
            said = f'replication slot "{options.slot}" is active'
            wait_until(lambda: said in planes.server.log(), "nobody asks for the slot")
            assert not reading.done()
        (record,) = reading.result(60)
    assert json.loads(record.value or b"")["after"]["seats"] == 3
