"""``bench sweep``: a load again and again, with one thing changed at a time.

A sweep has a folder. Each run's row is durable in ``results.csv`` before the next begins, and a
sweep that is started again goes on with the runs that are missing.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from statistics import median
from typing import Any

from pyrklog.base.problems import Problem
from pyrklog.cli.bench_files import RESULTS, append, folder_for, unwritable
from pyrklog.cli.failures import CliError
from pyrklog.cli.output import columns

VARIABLES = ("size", "partitions", "producers", "batch", "rate")
COLUMNS = columns("variable, value>, broker, runs>, mb_per_s> MB/S, records_per_s> REC/S, p99>")
RATIOS = columns("variable, value>, ratio> MB/S OF THE FIRST / SECOND, lowest>, highest>")
PRESETS = {"article": ("size=10,20,50,100,200,500,1000,2000,5000,10000", "partitions=1..9")}
"""Of :data:`VARIABLES`: throughput by record size, and by partitions."""
PLAN = "plan.json"
VALUES_MAX = 1000
_KEY = ("variable", "value", "repeat", "broker")


@dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    variable: str
    value: int
    repeat: int
    broker: str

    def key(self) -> tuple[str, ...]:
        return tuple(str(getattr(self, name)) for name in _KEY)

    def __str__(self) -> str:
        return f"{self.variable}={self.value} #{self.repeat} on {self.broker}"


def parse_variable(text: str) -> tuple[str, list[int]]:
    """Parses ``size=10,100,1000`` or ``partitions=1..9``. Raises :class:`CliError`."""
    name, equals, listed = text.partition("=")
    if not equals or name not in VARIABLES:
        what = f"--var takes {', '.join(VARIABLES)} and values, such as size=10,100, not {text!r}"
        near = get_close_matches(name, VARIABLES, n=1)
        raise CliError(Problem.ARGUMENT_VALUE, what, f"did you mean {near[0]}?" if near else None)
    values: list[int] = []
    for part in listed.split(","):
        first, is_range, last = part.partition("..")
        if not first.isdecimal() or (is_range and not last.isdecimal()):
            what = f"--var {name} takes whole numbers, such as 1,2,5 or 1..9, not {part!r}"
            raise CliError(Problem.ARGUMENT_VALUE, what)
        begin, end = int(first), int(last or first)
        if not 1 <= begin <= end or len(values) + end - begin >= VALUES_MAX:
            what = f"--var {name}={part} is not 1 to {VALUES_MAX} values of 1 or more"
            raise CliError(Problem.ARGUMENT_VALUE, what)
        values += range(begin, end + 1)
    return name, list(dict.fromkeys(values))


def points(
    variables: Mapping[str, Sequence[int]], repeat: int, brokers: Sequence[str]
) -> list[Point]:
    """All runs; brokers take turns in being first, so that a machine that changes slowly favours
    none."""
    found = []
    for turn in range(1, repeat + 1):
        order = list(brokers) if turn % 2 else list(reversed(brokers))
        for name, values in variables.items():
            found += [Point(name, value, turn, one) for value in values for one in order]
    return found


@dataclass(frozen=True)
class Sweep:
    folder: Path
    points: Sequence[Point]

    def open(self, plan: Mapping[str, Any]) -> None:
        """Raises :class:`CliError` if the folder has a sweep of another plan."""
        folder_for(self.folder)
        path = self.folder / PLAN
        wanted = json.dumps(plan, indent=2, sort_keys=True) + "\n"
        try:
            if not path.exists():
                path.write_text(wanted)
            elif path.read_text() != wanted:
                what = f"{self.folder} has a sweep of another plan ({PLAN})"
                raise CliError(Problem.FILE_EXISTS, what, "name another folder with --out")
        except OSError as error:
            raise unwritable(path, error) from None

    def rows(self) -> list[dict[str, str]]:
        """What is there."""
        path = self.folder / RESULTS
        if not path.exists():
            return []
        with path.open(newline="") as file:
            return list(csv.DictReader(file))

    def run(self, one: Callable[[Point], Mapping[str, Any]], tell: Callable[[str], None]) -> None:
        """Runs what is missing. Raises :class:`CliError` of the first run that fails."""
        done = {tuple(row[name] for name in _KEY) for row in self.rows()}
        left = [point for point in self.points if point.key() not in done]
        if len(left) < len(self.points):
            tell(f"{len(self.points) - len(left)} of {len(self.points)} runs are there")
        began = time.monotonic()
        for number, point in enumerate(left, 1):
            row = {**asdict(point), **one(point)}
            append(self.folder / RESULTS, list(row), [row])
            each_s = (time.monotonic() - began) / number
            left_s = each_s * (len(left) - number)
            speed = f"{row['records_per_s']:,} records/s, {row['mb_per_s']:,} MB/s"
            tell(f"{number}/{len(left)} {point}: {speed}; about {left_s / 60:.0f} min left")


def summary(rows: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Medians of each point's runs, of each broker."""
    return [
        {
            "variable": variable,
            "value": value,
            "broker": broker,
            "runs": len(found),
            **{
                name: _median(row[name] for row in found)
                for name in ("mb_per_s", "records_per_s", "p99")
            },
        }
        for (variable, value, broker), found in _grouped(rows, "broker").items()
    ]


def ratios(rows: Sequence[Mapping[str, str]], brokers: Sequence[str]) -> list[dict[str, Any]]:
    """The first broker's throughput over the second's: median and range over the repeats, each
    divided within itself."""
    found = []
    for (variable, value), members in _grouped(rows).items():
        speeds = {(row["repeat"], row["broker"]): float(row["mb_per_s"]) for row in members}
        each = [
            speeds[turn, brokers[0]] / speeds[turn, brokers[1]]
            for turn in dict.fromkeys(row["repeat"] for row in members)
            if speeds.get((turn, brokers[0])) and speeds.get((turn, brokers[1]))
        ]
        if each:
            told = {"ratio": median(each), "lowest": min(each), "highest": max(each)}
            rounded = {name: round(ratio, 3) for name, ratio in told.items()}
            found.append({"variable": variable, "value": value, **rounded})
    return found


def _grouped(
    rows: Sequence[Mapping[str, str]], *more: str
) -> dict[tuple[Any, ...], list[Mapping[str, str]]]:
    found: dict[tuple[Any, ...], list[Mapping[str, str]]] = {}
    for row in rows:
        key = (row["variable"], int(row["value"]), *(row[name] for name in more))
        found.setdefault(key, []).append(row)
    return found


def _median(values: Iterator[str]) -> float | None:
    known = [float(value) for value in values if value]
    return round(median(known), 3) if known else None


def draw(folder: Path, rows: Sequence[Mapping[str, str]]) -> bool:
    """A picture for each variable; false without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = summary(rows)
    for variable in dict.fromkeys(one["variable"] for one in found):
        figure, axis = pyplot.subplots(figsize=(7, 4), layout="constrained")
        mine = [one for one in found if one["variable"] == variable]
        for broker in dict.fromkeys(one["broker"] for one in mine):
            curve = sorted(
                (one["value"], one["mb_per_s"]) for one in mine if one["broker"] == broker
            )
            axis.plot(*zip(*curve, strict=True), marker="o", label=broker)
        axis.set_xlabel(variable)
        axis.set_ylabel("MB/s, median")
        axis.set_ylim(bottom=0)
        if max(one["value"] for one in mine) > 20 * min(one["value"] for one in mine):
            axis.set_xscale("log")
        axis.legend()
        figure.savefig(folder / f"sweep-{variable}.svg")
        pyplot.close(figure)
    return True
