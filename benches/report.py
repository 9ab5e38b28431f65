"""From rows to ratios, tables and files."""

import csv
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from benches import goals
from benches.cases import SHOWN, TITLES
from benches.effort import METRICS, Row

OURS, REFERENCE, FLOOR = "pyrklog", "kafka", "floor"


@dataclass(frozen=True)
class Result:
    """One case on one broker in one pair (from 1)."""

    pair: int
    broker: str
    case: str
    row: Row


@dataclass(frozen=True)
class Line:
    """One metric of one case over all pairs. `cores_busy_percent` is that of our runs."""

    case: str
    metric: str
    reference: float | None
    ours: float | None
    ratios: tuple[float, ...]
    floor: float | None = None
    cores_busy_percent: float | None = None

    @property
    def ratio(self) -> float | None:
        """The median over the pairs; None without a pair."""
        return statistics.median(self.ratios) if self.ratios else None

    def verdict(self) -> str:
        """The goal and whether it is reached; empty where there is none."""
        figures = goals.Figures(self.ours, self.ratio, self.floor, self.cores_busy_percent)
        return goals.verdict(self.case, self.metric, figures)


def lines(results: Iterable[Result]) -> list[Line]:
    """Medians of each broker, and the ratio within each pair, in the order of the cases."""
    found: dict[tuple[str, str, int], Row] = {}
    for result in results:
        found[result.case, result.broker, result.pair] = result.row
    pairs = sorted({key[2] for key in found})

    def values(case: str, broker: str, metric: str) -> list[float | None]:
        return [found.get((case, broker, pair), {}).get(metric) for pair in pairs]

    out = []
    for case in [case for case in TITLES if any(key[0] == case for key in found)]:
        busy = _median(values(case, OURS, "cores_busy_percent"))
        for metric in SHOWN[case]:
            reference, ours = values(case, REFERENCE, metric), values(case, OURS, metric)
            ratios = tuple(
                ours_value / reference_value
                for reference_value, ours_value in zip(reference, ours, strict=True)
                if reference_value and ours_value is not None
            )
            floor = _median(values(case, FLOOR, metric))
            line = Line(case, metric, _median(reference), _median(ours), ratios, floor, busy)
            out.append(line)
    return out


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def number(value: float | None) -> str:
    """Three significant figures, thousands with commas; a dash for nothing."""
    if value is None:
        return "–"
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


_HEADINGS = ("case", "figure", "Kafka", "pyrklog", "ratio of each pair", "median", "goal")
_NUMBERS = range(2, 6)


def _cells(line: Line) -> list[str]:
    ratios = " ".join(f"{ratio:.2f}" for ratio in line.ratios)
    median = "–" if line.ratio is None else f"{line.ratio:.2f}"
    return [
        TITLES[line.case],
        line.metric,
        number(line.reference),
        number(line.ours),
        ratios or "–",
        median,
        line.verdict(),
    ]


def _rows(found: list[Line]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells; a column for the floor, the last one, where there is any."""
    headings = list(_HEADINGS)
    rows = [_cells(line) for line in found]
    if any(line.floor is not None for line in found):
        headings.append("floor")
        for line, cells in zip(found, rows, strict=True):
            cells.append(number(line.floor))
    return headings, rows


def table(found: list[Line]) -> Table:
    """For the terminal."""
    headings, rows = _rows(found)
    out = Table(title="pyrklog beside Apache Kafka (medians; ratio = pyrklog / Kafka)")
    for place, heading in enumerate(headings):
        right = place in _NUMBERS or heading == "floor"
        out.add_column(heading, justify="right" if right else "left")
    previous = None
    for line, cells in zip(found, rows, strict=True):
        if previous not in (None, line.case):
            out.add_section()
        if previous == line.case:
            cells[0] = ""
        style = "red" if line.verdict().startswith("missed") else None
        out.add_row(*cells, style=style)
        previous = line.case
    return out


def markdown(found: list[Line]) -> str:
    """For benchmarks.md."""
    headings, cells = _rows(found)
    rule = [
        "-:" if place in _NUMBERS or heading == "floor" else "-"
        for place, heading in enumerate(headings)
    ]
    rows = [" | ".join(headings), "|".join(rule), *(" | ".join(row) for row in cells)]
    return "\n".join(f"| {row} |" for row in rows) + "\n"


def write_csv(path: Path, results: Iterable[Result]) -> None:
    """One row for each case, broker and pair, with every figure that was taken."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["pair", "broker", "case", *METRICS])
        for result in results:
            figures = (result.row.get(metric) for metric in METRICS)
            cells = ("" if figure is None else f"{figure:.6g}" for figure in figures)
            writer.writerow([result.pair, result.broker, result.case, *cells])
