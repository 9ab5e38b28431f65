"""Files by hour: each row once after a kill before any step of publishing or compaction."""

from __future__ import annotations

import os
import shutil
from collections import Counter
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
