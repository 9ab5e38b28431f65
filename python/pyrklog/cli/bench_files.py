"""Files of ``pyrklog bench --out DIR``: ``results.csv``, a row for each load; ``progress.csv``, a
row four times a second; ``environment.json``; pictures, if matplotlib is there."""

from __future__ import annotations

import csv
import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyrklog.base.problems import Problem
from pyrklog.cli.bench_runs import Done
from pyrklog.cli.failures import CliError

RESULTS = "results.csv"
PROGRESS = "progress.csv"
ENVIRONMENT = "environment.json"
PICTURE = "throughput.svg"
NO_MATPLOTLIB = 'note: no pictures without matplotlib: pip install "pyrklog[plot]"'
_PROGRESS_FIELDS = ("at", "mode", "seconds", "records", "bytes")


def folder_for(path: Path) -> Path:
    """Makes it. Raises :class:`CliError` if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from None
    return path


def unwritable(path: Path, error: OSError) -> CliError:
    return CliError(Problem.NOT_WRITTEN, f"cannot write {path}: {error.strerror or error}")


def append(path: Path, fields: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Adds rows to a CSV file, which begins with its fields. Durable when it returns. Raises
    :class:`CliError`, also for a file of other fields."""
    try:
        with path.open("a+", newline="") as file:
            file.seek(0)
            head = file.readline().strip()
            if head and head != ",".join(fields):
                what = f"{path} has other columns: {head[:200]}"
                raise CliError(Problem.FILE_EXISTS, what, "name another folder with --out")
            file.seek(0, os.SEEK_END)
            writer = csv.DictWriter(
                file, fields, lineterminator="\n", restval="", extrasaction="ignore"
            )
            if not head:
                writer.writeheader()
            writer.writerows({name: _cell(row.get(name)) for name in fields} for row in rows)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(path, error) from None


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, Mapping) else value


def write_environment(folder: Path, **more: Any) -> None:
    """What figures depend on. Raises :class:`CliError`."""
    from pyrklog import __version__

    found = {
        "pyrklog": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        **more,
    }
    path = folder / ENVIRONMENT
    try:
        path.write_text(json.dumps(found, indent=2) + "\n")
    except OSError as error:
        raise unwritable(path, error) from None


def write(folder: Path, done: Sequence[Done], **more: Any) -> bool:
    """Adds results; false if there is no matplotlib to draw them. Raises :class:`CliError`."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    rows = [{"at": at, **one.row(), **more} for one in done]
    append(folder / RESULTS, list(rows[0]), rows)
    steps = [
        {
            "at": at,
            "mode": one.load.mode.value,
            "seconds": step.seconds,
            "records": step.records,
            "bytes": step.bytes,
        }
        for one in done
        for step in one.progress
    ]
    append(folder / PROGRESS, _PROGRESS_FIELDS, steps)
    write_environment(folder)
    return draw_progress(folder / PICTURE, done)


def draw_progress(path: Path, done: Sequence[Done]) -> bool:
    """Megabytes a second over time; false without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 4), layout="constrained")
    for one in done:
        steps = one.progress
        speeds = [
            (now.bytes - before.bytes) / 1e6 / max(1e-9, now.seconds - before.seconds)
            for before, now in pairwise(steps)
        ]
        axis.plot([step.seconds for step in steps[1:]], speeds, label=one.load.mode.value)
    axis.set_xlabel("seconds")
    axis.set_ylabel("MB/s")
    axis.set_ylim(bottom=0)
    axis.legend()
    try:
        figure.savefig(path)
    except OSError as error:
        raise unwritable(path, error) from None
    finally:
        pyplot.close(figure)
    return True
