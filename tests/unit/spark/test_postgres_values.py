"""Positions in a database's changes, its snapshots, options, and rows as records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyrklog.spark.given import OptionError
from pyrklog.spark.postgres.events import (
    UNAVAILABLE,
    KeyColumnError,
    Moment,
    Record,
    Source,
    read,
    records_of,
)
from pyrklog.spark.postgres.options import Table, parse
from pyrklog.spark.postgres.pgoutput import Column, Delete, Insert, Row, Unchanged, Update
from pyrklog.spark.postgres.positions import (
    START,
    Position,
    PositionError,
    Snapshot,
    lsn_of,
    marks,
    marks_to_json,
    position,
    shown,
)

SNAPSHOT = Snapshot(10, 20, frozenset({12, 19}))
LOGICAL = {"conninfo": "host=db", "tables": "planes, sales.orders", "slot": "a_1"}


@pytest.mark.parametrize("lsn", [0, 1, 2**32 - 1, 2**32, 2**40 + 0xABC, 2**64 - 1])
def test_places_in_the_log_are_written_as_by_the_server(lsn: int) -> None:
    assert lsn_of(shown(lsn)) == lsn
    assert shown(0x16_B374D848) == "16/B374D848"


def test_what_a_snapshot_sees() -> None:
    assert str(SNAPSHOT) == "10:20:12,19"
    assert Snapshot.parse("10:20:12,19") == SNAPSHOT
    assert Snapshot.parse("10:10:") == Snapshot(10, 10, frozenset())
    assert [xid for xid in range(8, 23) if SNAPSHOT.sees(xid)] == [
        8,
        9,
        10,
        11,
        13,
        14,
        15,
        16,
        17,
        18,
    ]


@pytest.mark.parametrize(("apart", "expected"), [(-1, True), (0, False), (1, False)])
@pytest.mark.parametrize("xmax", [2**32, 2**32 + 1, 2**32 - 1, 5 * 2**32 + 3])
def test_numbers_of_transactions_are_completed(xmax: int, apart: int, expected: bool) -> None:
    snapshot = Snapshot(xmax, xmax, frozenset())
    assert snapshot.sees((xmax + apart) % 2**32) is expected


def test_a_position_forgets_its_snapshot_when_it_is_behind_it() -> None:
    at = Position(100, SNAPSHOT, 200)
    assert at.moved(199) == Position(199, SNAPSHOT, 200)
    assert at.moved(200) == Position(200)
    for one in (at, at.moved(199), at.moved(200)):
        assert position(json.loads(json.dumps(one.to_json()))) == one
    assert position(START) is None
    assert marks(START) == {}
    assert marks(marks_to_json({"public.b": "2", "public.a": "1"})) == {
        "public.a": "1",
        "public.b": "2",
    }


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"version": 2},
        {"version": 1, "lsn": "x"},
        {"version": 1, "lsn": None},
        {"version": 1, "lsn": "0/1", "snapshot": "1:2"},
        {"version": 1, "watermarks": {}},
    ],
)
def test_another_sources_position_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(PositionError, match="is no position"):
        position(document)


def test_a_position_of_the_other_mode_is_refused() -> None:
    with pytest.raises(PositionError, match="no position of a watermark"):
        marks(Position(1).to_json())


def test_options_are_read() -> None:
    found = parse(LOGICAL | {"password": "secret", "maxchangespertrigger": "7"})
    assert found.tables == (Table("public", "planes"), Table("sales", "orders"))
    assert (found.slot, found.publication) == ("a_1", "a_1")
    assert (found.changes_most, found.fails_on_truncate) == (7, True)
    assert "secret" not in repr(found)
    watched = parse({"conninfo": "", "tables": "planes", "watermark": "seen", "lag": "5m"})
    assert (watched.watermark, watched.lag_ms) == ("seen", 300_000)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"slott": "a"}, "there is no option slott; did you mean slot?"),
        ({"slot": "A-1"}, "slot is 'A-1': it can have lower-case letters"),
        ({"tables": "a.b.c"}, "it can be TABLE or SCHEMA.TABLE"),
        ({"tables": "a,public.a"}, "it names a table twice"),
        ({"tables": ""}, "it can be TABLE or SCHEMA.TABLE"),
        ({"lag": "5m"}, "option lag is of option watermark"),
        ({"watermark": "seen"}, "option slot is of logical decoding"),
        ({"onTruncate": "cry"}, "it can be fail or skip"),
        ({"maxChangesPerTrigger": "0"}, "it can be a whole number from 1"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse(LOGICAL | options)
    assert said in str(refused.value)


def test_all_that_is_needed_is_told() -> None:
    with pytest.raises(OptionError) as refused:
        parse({})
    assert str(refused.value).splitlines() == [
        "option conninfo is needed",
        "option tables is needed",
        "option slot is needed, a name for each checkpoint, or watermark",
    ]


COLUMNS = (Column("id", 23, True), Column("name", 25, False), Column("note", 25, False))
SOURCE = Source("db", Table("public", "planes"), ["id"], COLUMNS)
MOMENT = Moment(1_500_000, 90, 100, 7)
OLD, NEW = {"id": 1, "name": "a", "note": "x"}, {"id": 1, "name": "b", "note": "x"}


def told(record: Record) -> tuple[Any, ...]:
    """Key, and kind, before and after; a tombstone is None."""
    assert record.table == "public.planes"
    assert record.lsn == 100
    if record.value is None:
        return json.loads(record.key)["id"], None
    value = json.loads(record.value)
    return json.loads(record.key)["id"], value["op"], value["before"], value["after"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Insert(1, ("1", "a", "x")), [(1, "c", None, OLD)]),
        (Update(1, None, False, ("1", "b", "x")), [(1, "u", None, NEW)]),
        (Update(1, ("1", "a", "x"), True, ("1", "b", "x")), [(1, "u", OLD, NEW)]),
        (
            Update(1, None, False, ("1", "b", Unchanged.VALUE)),
            [(1, "u", None, NEW | {"note": UNAVAILABLE})],
        ),
        (
            Update(1, ("1", "a", "x"), True, ("1", "b", Unchanged.VALUE)),
            [(1, "u", OLD, NEW)],
        ),
        (
            Update(1, ("1", None, None), False, ("2", "b", Unchanged.VALUE)),
            [
                (1, "d", {"id": 1}, None),
                (1, None),
                (2, "c", None, {"id": 2, "name": "b", "note": UNAVAILABLE}),
            ],
        ),
        (
            Update(1, ("1", "a", "x"), True, ("2", "b", "x")),
            [(1, "d", OLD, None), (1, None), (2, "c", None, NEW | {"id": 2})],
        ),
        (Delete(1, ("1", None, None), False), [(1, "d", {"id": 1}, None), (1, None)]),
        (Delete(1, ("1", "a", "x"), True), [(1, "d", OLD, None), (1, None)]),
    ],
)
def test_changes_are_records(change: Insert | Update | Delete, expected: list[Any]) -> None:
    assert [told(record) for record in records_of(SOURCE, MOMENT, change)] == expected


def test_where_a_change_comes_from() -> None:
    (record,) = records_of(SOURCE, MOMENT, Insert(1, ("1", "a", "x")))
    value = json.loads(record.value or b"")
    assert value["ts_ms"] == 1500
    assert value["source"] == {
        "connector": "postgresql",
        "db": "db",
        "schema": "public",
        "table": "planes",
        "ts_ms": 1500,
        "ts_us": 1_500_000,
        "snapshot": "false",
        "lsn": 90,
        "commitLsn": 100,
        "txId": 7,
    }


@pytest.mark.parametrize("row", [(None, "a", "x"), (Unchanged.VALUE, "a", "x")])
def test_a_change_without_its_key_is_refused(row: Row) -> None:
    with pytest.raises(KeyColumnError, match=r"does not have id of its primary key"):
        list(records_of(SOURCE, MOMENT, Insert(1, row)))


def test_a_row_that_was_found() -> None:
    assert told(read(SOURCE, MOMENT, ("1", "a", "x"))) == (1, "r", None, OLD)
