"""A table of planes that threads change all the time, and what each of its rows went through."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import psycopg

COLUMNS = ("tailnum", "manufacturer", "seats")
Row = dict[str, Any]
Step = tuple[str, Row | None]
"""What happened to a key: ``c``, ``u`` or ``d``, and the row then; ``r`` of one that was there."""
_CHANGES_MOST = 4


def create(connection: psycopg.Connection[Any], rows: Iterable[Row]) -> None:
    connection.execute(
        "CREATE TABLE planes (tailnum text PRIMARY KEY, manufacturer text, seats integer)"
    )
    with connection.cursor() as cursor, cursor.copy("COPY planes FROM STDIN") as copy:
        for row in rows:
            copy.write_row([row.get(name) for name in COLUMNS])


def content(connection: psycopg.Connection[Any]) -> dict[str, Row]:
    rows = connection.execute("SELECT tailnum, manufacturer, seats FROM planes").fetchall()
    return {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in rows}


class ChangingTable:
    """Threads with keys of their own, that commit until they are stopped. A context manager.

    Transactions insert, update, delete and rename, some in a part that is rolled back, some as a
    whole; two of them are open at a time."""

    def __init__(
        self, connect: Callable[[], psycopg.Connection[Any]], seed: int = 1, pause_s: float = 0.001
    ) -> None:
        with connect() as connection:
            self.before = content(connection)
        self.steps: defaultdict[str, list[Step]] = defaultdict(list)
        """By key, of what was committed since ``before``, in order."""
        self.transactions = 0
        self._connect = connect
        self._pause_s = pause_s
        self._numbers = itertools.count(1_000_000)
        self._stopped = threading.Event()
        self._errors: list[BaseException] = []
        keys = sorted(self.before)
        self._threads = [
            threading.Thread(target=self._run, args=[keys[which::2], random.Random(seed + which)])
            for which in range(2)
        ]

    def __enter__(self) -> ChangingTable:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _run(self, keys: list[str], chance: random.Random) -> None:
        try:
            with self._connect() as connection:
                while not self._stopped.wait(self._pause_s):
                    self._transaction(connection, keys, chance)
        except BaseException as error:
            self._errors.append(error)

    def _transaction(
        self, connection: psycopg.Connection[Any], keys: list[str], chance: random.Random
    ) -> None:
        done: list[tuple[str, Step]] = []
        is_undone = chance.random() < 0.1
        with connection.transaction() as whole:
            for _ in range(chance.randint(1, _CHANGES_MOST)):
                if chance.random() < 0.1:
                    with connection.transaction() as part:
                        self._change(connection, chance.choice(keys), chance)
                        raise psycopg.Rollback(part)
                with connection.transaction():
                    done += self._change(connection, chance.choice(keys), chance)
            if is_undone:
                raise psycopg.Rollback(whole)
        if not is_undone:
            for key, step in done:
                self.steps[key].append(step)
            self.transactions += 1

    def _change(
        self, connection: psycopg.Connection[Any], key: str, chance: random.Random
    ) -> list[tuple[str, Step]]:
        seats = next(self._numbers)
        row = dict(zip(COLUMNS, (key, f"maker {seats}", seats), strict=True))
        values = list(row.values())
        known = connection.execute("SELECT 1 FROM planes WHERE tailnum = %s", [key]).fetchone()
        if known is None:
            connection.execute("INSERT INTO planes VALUES (%s, %s, %s)", values)
            return [(key, ("c", row))]
        what = chance.random()
        if what < 0.2:
            connection.execute("DELETE FROM planes WHERE tailnum = %s", [key])
            return [(key, ("d", None))]
        if what < 0.3:
            new = f"{key}-{seats}"
            renamed = row | {"tailnum": new}
            connection.execute(
                "UPDATE planes SET tailnum = %s, manufacturer = %s, seats = %s WHERE tailnum = %s",
                [*renamed.values(), key],
            )
            return [(key, ("d", None)), (new, ("c", renamed))]
        connection.execute(
            "UPDATE planes SET manufacturer = %s, seats = %s WHERE tailnum = %s",
            [*values[1:], key],
        )
        return [(key, ("u", row))]


def steps_told(records: Iterable[tuple[bytes, bytes | None]]) -> dict[str, list[Step]]:
    """By key, of records in the order of each key; AssertionError for a deletion without its
    tombstone."""
    found: defaultdict[str, list[Step]] = defaultdict(list)
    due: set[str] = set()
    for key_json, value_json in records:
        (key,) = json.loads(key_json).values()
        if value_json is None:
            assert key in due, f"a tombstone of {key} without its deletion"
            due.remove(key)
            continue
        assert key not in due, f"no tombstone of {key}"
        value = json.loads(value_json)
        found[key].append((value["op"], value["after"]))
        if value["op"] == "d":
            due.add(key)
    assert not due
    return found


def check_once(told: Mapping[str, list[Step]], table: ChangingTable) -> int:
    """AssertionError unless each key's row was read at one time, and all that came later was told,
    once and in order. Returns how many changes the snapshot had."""
    before = 0
    for key in {*told, *table.steps, *table.before}:
        first: list[Step] = [("r", table.before[key])] if key in table.before else []
        later = table.steps.get(key, [])
        seen = told.get(key, [])
        places = [
            at for at in range(len(later) + 1) if _as_read(first + later[:at]) + later[at:] == seen
        ]
        assert places, f"{key}: {first + later} was told as {seen}"
        before += places[0]
    return before


def last_of(told: Mapping[str, list[Step]]) -> dict[str, Row]:
    """The table that the records stand for."""
    rows = {key: steps[-1][1] for key, steps in told.items()}
    return {key: row for key, row in rows.items() if row is not None}


def _as_read(steps: list[Step]) -> list[Step]:
    row = steps[-1][1] if steps else None
    return [] if row is None else [("r", row)]
