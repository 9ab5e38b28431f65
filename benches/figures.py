"""The figures of a benchmark without a reference broker: verdicts, a table, files."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from benches.goals import Goal
from benches.report import number

_HEADINGS = ("figure", "median", "each", "goal")
_NUMBERS = range(1, 3)


@dataclass(frozen=True)
class Figure:
    """One figure, measured several times; the median counts. ``name`` ends with its unit."""

    name: str
    each: tuple[float, ...]
    goal: Goal | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.each)

    @property
    def is_missed(self) -> bool:
        return self.goal is not None and not self.goal.holds(self.median)

    def verdict(self) -> str:
        """The goal and whether it is reached; empty without a goal."""
        if self.goal is None:
            return ""
        return f"{'missed' if self.is_missed else 'reached'} ({self.goal})"


def goal(sign: str, bound: float, *, ratio: bool = False) -> Goal:
    """The goal of a single figure, which belongs to no case."""
    return Goal("", "", sign, bound, ratio)


def _cells(figure: Figure) -> list[str]:
    is_ratio = figure.goal is not None and figure.goal.ratio
    shown = (f"{value:.3f}" if is_ratio else number(value) for value in figure.each)
    median = f"{figure.median:.3f}" if is_ratio else number(figure.median)
    return [figure.name, median, " ".join(shown), figure.verdict()]


def markdown(figures: Sequence[Figure]) -> str:
    rule = ["-:" if place in _NUMBERS else "-" for place in range(len(_HEADINGS))]
    rows = [" | ".join(_HEADINGS), "|".join(rule), *(" | ".join(_cells(one)) for one in figures)]
    return "\n".join(f"| {row} |" for row in rows) + "\n"


def table(title: str, figures: Iterable[Figure]) -> Table:
    out = Table(title=title)
    for place, heading in enumerate(_HEADINGS):
        out.add_column(heading, justify="right" if place in _NUMBERS else "left")
    for figure in figures:
        out.add_row(*_cells(figure), style="red" if figure.is_missed else None)
    return out


def write(
    folder: Path,
    figures: Sequence[Figure],
    settings: Mapping[str, object],
    machine: Mapping[str, str],
) -> None:
    """``results.json`` has all that was measured, where and with what; ``table.md`` the table."""
    content = {
        "settings": dict(settings),
        "environment": dict(machine),
        "figures": [
            {
                "name": figure.name,
                "median": figure.median,
                "each": list(figure.each),
                "goal": None if figure.goal is None else str(figure.goal),
                "reached": None if figure.goal is None else not figure.is_missed,
            }
            for figure in figures
        ],
    }
    (folder / "results.json").write_text(json.dumps(content, indent=2) + "\n")
    (folder / "table.md").write_text(markdown(figures))
