"""Files by hour: each row once after a kill before any step of publishing or compaction."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyrklog.spark.pipelines import hours


class Killed(BaseException):
    """The process is gone."""


class Steps:
    """Kills before the step of this number, from when it is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        monkeypatch.setattr(os, "replace", self._counted(os.replace))
        monkeypatch.setattr(shutil, "rmtree", self._counted(shutil.rmtree))

    def _counted(self, act: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise Killed
            return act(*arguments, **options)

        return step


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


def stage(folder: Path, batch: int) -> None:
    """Three hours, of which each batch has two."""
    shutil.rmtree(hours.staging(folder), ignore_errors=True)
    for hour in {batch % 3, (batch + 1) % 3}:
        place = hours.staging(folder) / f"hour=2013-01-01T0{hour}"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"row": [f"{batch}:{hour}"]}), place / "part.parquet")


def run(folder: Path, done: list[int], end: int) -> None:
    """As a stream, whose checkpoint is ``done``."""
    for batch in range(len(done), end):
        hours.compact(folder, before=batch, files_most=2)
        stage(folder, batch)
        hours.publish(folder, batch)
        done.append(batch)


def rows(folder: Path) -> Counter[str]:
    files = [file for path in hours.folders(folder) for file in path.glob("*.parquet")]
    return Counter(row for file in files for row in pq.read_table(file)["row"].to_pylist())


def expected(end: int) -> Counter[str]:
    return Counter(f"{n}:{hour}" for n in range(end) for hour in {n % 3, (n + 1) % 3})


def test_files_stay_few(tmp_path: Path) -> None:
    run(tmp_path, [], 30)
    assert rows(tmp_path) == expected(30)
    hours.compact(tmp_path, before=30, files_most=2)
    assert len(hours.folders(tmp_path)) <= 3 * 2
    assert rows(tmp_path) == expected(30)
    assert not hours.staging(tmp_path).exists()


def test_the_batch_that_may_be_repeated_is_left_alone(tmp_path: Path) -> None:
    run(tmp_path, [], 4)
    hours.compact(tmp_path, before=3, files_most=1)
    for hour in (0, 1):
        assert (tmp_path / f"hour=2013-01-01T0{hour}" / "batches=3-3").is_dir()


def test_times_of_any_year_stay(tmp_path: Path) -> None:
    """Spark writes them as INT96 unless it is told otherwise; merged twice."""
    years = [1, 1500, 1677, 2013, 2262, 2500, 9999]
    for batch, year in enumerate(years):
        place = hours.staging(tmp_path) / "hour=2013-01-01T00"
        place.mkdir(parents=True)
        times = pa.array([datetime(year, 1, 1, 5)], pa.timestamp("us"))
        table = pa.table({"time": times})
        pq.write_table(table, place / "part.parquet", use_deprecated_int96_timestamps=True)
        hours.publish(tmp_path, batch)
        hours.compact(tmp_path, before=batch + 1, files_most=2)
    files = [file for path in hours.folders(tmp_path) for file in path.glob("*.parquet")]
    assert len(files) <= 2
    tables = [pq.ParquetFile(one, coerce_int96_timestamp_unit="us").read() for one in files]
    assert [time.year for time in pa.concat_tables(tables)["time"].to_pylist()] == years


def test_a_late_row_does_not_write_its_hour_anew(tmp_path: Path) -> None:
    """The large part stays; the small ones that follow become one."""
    for batch, count in enumerate([100_000, *[1] * 9]):
        place = hours.staging(tmp_path) / "hour=2013-01-01T00"
        place.mkdir(parents=True)
        pq.write_table(
            pa.table({"row": [f"{batch}:{n}" for n in range(count)]}), place / "0.parquet"
        )
        names = hours.publish(tmp_path, batch)
        hours.compact(tmp_path, before=batch + 1, names=names, files_most=2)
    parts = [path.name for path in hours.folders(tmp_path)]
    assert parts[0] == "batches=0-0"
    assert len(parts) <= 3
    assert rows(tmp_path).total() == 100_009


def test_only_the_hours_that_are_named_are_looked_at(tmp_path: Path) -> None:
    run(tmp_path, [], 2)
    before = hours.folders(tmp_path)
    hours.compact(tmp_path, before=2, names=[], files_most=1)
    assert hours.folders(tmp_path) == before
    hours.compact(tmp_path, before=2, names=["hour=2013-01-01T01"], files_most=1)
    assert len(hours.folders(tmp_path)) == len(before) - 1


def test_a_kill_at_any_step(tmp_path: Path, steps: Steps) -> None:
    """The batch is repeated by another process."""
    kills = 0
    for step in range(1000):
        folder, done = tmp_path / str(step), list[int]()
        folder.mkdir()
        run(folder, done, 5)
        steps.left = step
        try:
            run(folder, done, 8)
        except Killed:
            kills += 1
        steps.left = None
        # What is finished is there; of the batch under way maybe a part. Nothing is there twice.
        assert not expected(len(done)) - rows(folder)
        assert not rows(folder) - expected(len(done) + 1)
        if len(done) == 8:
            break
        run(folder, done, 8)
        assert rows(folder) == expected(8)
    assert kills > 10
