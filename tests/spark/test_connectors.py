"""The pipelines from and to databases and lakehouse tables: killed in the middle, all at once, then
run to their ends; each result is beside what the database, or the input, has."""

from __future__ import annotations

import contextlib
import io
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from pyrklog.spark.pipelines import __main__, changes, lake, upserts
from pyrklog.spark.pipelines.run import Run
from pyrklog.testing import TestBroker
from tests.support import changing_table, flights_input
from tests.support.changing_table import ChangingTable, check_once, last_of, steps_told
from tests.support.flights_input import MARKER, seconds
from tests.support.postgres import PostgresServer
from tests.support.postgres_reading import Database
from tests.support.sinking import visible
from tests.support.spark_drivers import run_and_kill
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(400)]

STREAM_S = 100
QUERIES = ("planes-changes", "planes-upserts", "lake")


@dataclass(frozen=True)
class Killed:
    """What a driver left that ran all of them."""

    bootstrap: str
    folder: Path
    origin: Database
    target: Database
    table: ChangingTable
    """Of ``origin``, at rest."""
    planes: dict[str, dict[str, Any]]
    """What the topic ``planes`` stands for."""

    def run(self, spark: Any) -> Run:
        return Run(spark, self.bootstrap, self.folder)

    def commits(self, name: str) -> int:
        return len(list((self.folder / "checkpoints" / name / "commits").glob("[0-9]*")))

    def finish(self, queries: list[Any]) -> None:
        """All that is left, of queries that have done something, but not all."""
        for query in queries:
            assert query.awaitTermination(STREAM_S)
            assert sum(progress.numInputRows for progress in query.recentProgress) > 0, query.name
            assert query.recentProgress[0].batchId > 0, query.name


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[Killed]:
    folder = tmp_path_factory.mktemp("connectors")
    given = flights_input.read()
    origin, target = Database(postgres), Database(postgres)
    changing_table.create(origin.connection, given.planes.values())
    changing_table.create(target.connection, [])
    with TestBroker() as broker:
        flights_input.create_topics(broker.bootstrap, ["flights", "planes-changes"])
        planes = flights_input.create_planes(broker.bootstrap, given)
        flights_input.produce(broker.bootstrap, "flights", given.flights, "tailnum")
        with ChangingTable(origin.connect, pause_s=0.05) as table:
            made = Killed(broker.bootstrap, folder, origin, target, table, planes)
            run_until_killed(made)
            later = table.transactions + 100
            wait_until(lambda: table.transactions > later, "nothing changes")
        flights_input.produce(broker.bootstrap, "flights", [MARKER], "tailnum")
        yield made
    origin.connection.close()
    target.connection.close()


def run_until_killed(made: Killed) -> None:
    arguments = [made.bootstrap, str(made.folder), made.origin.conninfo, made.target.conninfo]
    run_and_kill(
        "tests.support.connectors_driver",
        arguments,
        made.folder / "driver.log",
        lambda: all(made.commits(name) >= 2 for name in QUERIES),
        wait_s=240,
    )


def test_from_a_database(spark: Any, killed: Killed) -> None:
    queries = changes.start(killed.run(spark), f"{killed.origin.conninfo} password=hush")
    killed.finish(queries)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        queries[0].explain(extended=True)
    assert "hush" not in shown.getvalue() + queries[0].lastProgress.json
    rows = visible(killed.bootstrap, "planes-changes", ["key", "value"])
    told = steps_told((row["key"], row["value"]) for row in rows)
    check_once(told, killed.table)
    assert last_of(told) == changing_table.content(killed.origin.connection)
    kinds = Counter(op for steps in told.values() for op, _ in steps)
    assert kinds["r"] > 3000
    assert min(kinds[op] for op in "cud") > 10


def test_into_a_database(spark: Any, killed: Killed) -> None:
    killed.finish(upserts.start(killed.run(spark), killed.target.conninfo))
    assert changing_table.content(killed.target.connection) == {
        name: {column: row.get(column) for column in changing_table.COLUMNS}
        for name, row in killed.planes.items()
    }


def test_into_a_lakehouse_table(
    spark: Any, killed: Killed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "COMPACT_EVERY", 1)
    killed.finish(lake.start(killed.run(spark)))
    table = DeltaTable(killed.folder / "flights-delta")
    assert in_table(table) == Counter(
        (row["id"], row["time"] and seconds(row["time"]), row["carrier"], row.get("dep_delay"))
        for row in [*flights_input.read().flights, MARKER]
    )
    assert len(table.file_uris()) == 1, "it was not compacted"


def in_table(table: DeltaTable) -> Counter[tuple[Any, ...]]:
    rows = table.to_pyarrow_table().to_pylist()
    return Counter(
        (row["id"], int(row["time"].timestamp()), row["carrier"], row["dep_delay"]) for row in rows
    )


def test_a_batch_is_in_a_lakehouse_table_once(spark: Any, tmp_path: Path) -> None:
    """Of two drivers with one checkpoint the slower fails, and adds nothing."""
    frame = spark.range(10).selectExpr("id", "timestamp_seconds(id) AS time")
    uri = str(tmp_path / "table")
    DeltaTable.create(uri, Schema.from_json(frame.schema.json()))
    assert lake.append(frame, uri, "a", 0)
    assert not lake.append(frame, uri, "a", 0)
    assert lake.append(frame, uri, "b", 0)
    assert lake.append(frame, uri, "a", 1)

    class Slow:
        def mapInArrow(self, *arguments: Any) -> Any:
            assert lake.append(frame, uri, "a", 2)
            return frame.mapInArrow(*arguments)

    with pytest.raises(DeltaError, match="transaction"):
        lake.append(Slow(), uri, "a", 2)
    DeltaTable(uri).optimize.compact()
    assert not lake.append(frame, uri, "a", 2)
    assert DeltaTable(uri).to_pyarrow_table().num_rows == 40


def test_the_command_line(spark: Any, killed: Killed, tmp_path: Path) -> None:
    """By a watermark, to a topic of another broker."""
    with TestBroker() as broker:
        flights_input.create_topics(broker.bootstrap, ["planes-changes"])
        where = ["changes", broker.bootstrap, str(tmp_path), "--records", "1000"]
        __main__.main([*where, "--postgres", killed.origin.conninfo, "--watermark", "seats"])
        rows = visible(broker.bootstrap, "planes-changes", ["key", "value"])
    found = [json.loads(row["value"])["after"] for row in rows]
    expected = changing_table.content(killed.origin.connection)
    assert {row["tailnum"]: row for row in found} == {
        name: row for name, row in expected.items() if row["seats"] is not None
    }
    assert len(found) == len({row["tailnum"] for row in found})
