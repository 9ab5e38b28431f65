"""From rows to ratios, tables and files."""

import csv
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from benches.cases import METRICS, TITLES, Row

OURS, REFERENCE = "pyrklog", "kafka"


@dataclass(frozen=True)
class Result:
    """One case on one broker in one pair (from 1)."""

    pair: int
    broker: str
    case: str
    row: Row


@dataclass(frozen=True)
class Goal:
    """What must hold for a metric: of our figure itself, or of its ratio to the reference's."""

    case: str
    metric: str
    sign: str
    bound: float
    ratio: bool

    def holds(self, value: float) -> bool:
        """Whether `value`, a figure or a ratio, is within the bound."""
        return value >= self.bound if self.sign == ">=" else value <= self.bound

    def __str__(self) -> str:
        return f"{self.sign} {self.bound:g}{'x' if self.ratio else ''}"


GOALS = (
    Goal("produce16k", "mb_per_s", ">=", 2.0, True),
    Goal("produce16k", "cpu_s_per_gb", "<=", 0.5, True),
    Goal("produce1k", "mb_per_s", ">=", 3.0, True),
    Goal("produce1k", "cpu_s_per_gb", "<=", 0.333, True),
    Goal("fetch", "mb_per_s", ">=", 1.0, True),
    Goal("fetch", "cpu_s_per_gb", "<=", 1.0, True),
    Goal("heartbeats", "requests_per_cpu_s", ">=", 1.0, True),
    Goal("commits1", "requests_per_cpu_s", ">=", 1.0, True),
    Goal("commits6", "requests_per_cpu_s", ">=", 1.0, True),
    Goal("settle", "settle_s", "<=", 3.0, False),
    Goal("settle", "delay_ms", "<=", 50.0, False),
    Goal("idle", "rss_mb", "<=", 80.0, False),
    Goal("idle", "cpu_percent", "<=", 0.3, False),
    Goal("start-up", "startup_s", "<=", 0.5, False),
)

_SHOWN: dict[str, tuple[str, ...]] = {
    "start-up": ("startup_s",),
    "idle": ("cpu_percent", "rss_mb", "threads"),
    "end-to-end": ("p50_ms", "p99_ms", "p99.9_ms", "cpu_percent"),
    "settle": ("settle_s", "settle_max_s", "delay_ms"),
    **dict.fromkeys(
        ("heartbeats", "commits1", "commits6"),
        ("requests_per_cpu_s", "requests_per_s", "p50_ms", "p99_ms"),
    ),
}
_SHOWN_OTHERWISE = (
    "mb_per_s",
    "records_per_s",
    "cpu_s_per_gb",
    "p50_ms",
    "p99_ms",
    "p99.9_ms",
    "rss_mb",
)


@dataclass(frozen=True)
class Line:
    """One metric of one case over all pairs."""

    case: str
    metric: str
    reference: float | None
    ours: float | None
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float | None:
        """The median over the pairs; None without a pair."""
        return statistics.median(self.ratios) if self.ratios else None

    def verdict(self) -> str:
        """The goal and whether it is reached; empty where there is none."""
        for goal in GOALS:
            value = self.ratio if goal.ratio else self.ours
            if (goal.case, goal.metric) == (self.case, self.metric) and value is not None:
                return f"{'reached' if goal.holds(value) else 'missed'} ({goal})"
        return ""


def lines(results: Iterable[Result]) -> list[Line]:
    """Medians of each broker, and the ratio within each pair, in the order of the cases."""
    found: dict[tuple[str, str, int], Row] = {}
    for result in results:
        found[result.case, result.broker, result.pair] = result.row
    cases = [case for case in TITLES if any(key[0] == case for key in found)]
    pairs = sorted({key[2] for key in found})
    out = []
    for case in cases:
        for metric in _SHOWN.get(case, _SHOWN_OTHERWISE):
            values = {
                broker: [found.get((case, broker, pair), {}).get(metric) for pair in pairs]
                for broker in (REFERENCE, OURS)
            }
            ratios = tuple(
                ours / reference
                for reference, ours in zip(values[REFERENCE], values[OURS], strict=True)
                if reference and ours is not None
            )
            medians = [_median(values[broker]) for broker in (REFERENCE, OURS)]
            out.append(Line(case, metric, medians[0], medians[1], ratios))
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


def _cells(line: Line) -> tuple[str, ...]:
    ratios = " ".join(f"{ratio:.2f}" for ratio in line.ratios)
    median = "–" if line.ratio is None else f"{line.ratio:.2f}"
    return (
        TITLES[line.case],
        line.metric,
        number(line.reference),
        number(line.ours),
        ratios or "–",
        median,
        line.verdict(),
    )


_HEADINGS = ("case", "figure", "Kafka", "pyrklog", "ratio of each pair", "median", "goal")


def table(found: list[Line]) -> Table:
    """For the terminal."""
    out = Table(title="pyrklog beside Apache Kafka (medians; ratio = pyrklog / Kafka)")
    for place, heading in enumerate(_HEADINGS):
        out.add_column(heading, justify="right" if 2 <= place <= 5 else "left")
    previous = None
    for line in found:
        if previous not in (None, line.case):
            out.add_section()
        cells = list(_cells(line))
        if previous == line.case:
            cells[0] = ""
        style = "red" if cells[6].startswith("missed") else None
        out.add_row(*cells, style=style)
        previous = line.case
    return out


def markdown(found: list[Line]) -> str:
    """For docs/benchmarks.md."""
    rows = [" | ".join(_HEADINGS), "|".join(["-"] * 2 + ["-:"] * 4 + ["-"])]
    rows += [" | ".join(_cells(line)) for line in found]
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
