"""A picture of the figures: throughput, CPU and latency of both brokers.

A line joins two points on a logarithmic scale: its length shows the ratio anywhere on the scale,
which a bar's length would not.
"""

from pathlib import Path
from typing import Any

from benches.cases import TITLES
from benches.report import FLOOR, OURS, REFERENCE, Line, number

_PANELS = (
    ("mb_per_s", "MB/s (right is better)"),
    ("cpu_s_per_gb", "broker CPU-seconds per GB (left is better)"),
    ("p99_ms", "p99 latency in ms (left is better)"),
)
LOOKS = {
    REFERENCE: ("Apache Kafka", "#8a8a8a", "o"),
    OURS: ("pyrklog", "#1f77b4", "D"),
    FLOOR: ("floor", "#2ca02c", "|"),
}


def draw(path: Path, found: list[Line], subtitle: str) -> None:
    """Writes a PNG with one panel for each metric that has figures."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [
        (title, lines)
        for metric, title in _PANELS
        if (lines := [line for line in found if line.metric == metric and _values(line)])
    ]
    if not panels:
        return
    figure, axes = pyplot.subplots(
        len(panels),
        1,
        figsize=(9, sum(0.45 * len(lines) + 1.2 for _, lines in panels)),
        squeeze=False,
        height_ratios=[len(lines) + 1.5 for _, lines in panels],
        layout="constrained",
    )
    for axis, (title, lines) in zip(axes[:, 0], panels, strict=True):
        _draw_panel(axis, title, lines)
    axes[0, 0].legend(fontsize=8)
    figure.suptitle(f"pyrklog beside Apache Kafka\n{subtitle}", fontsize=10)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _values(line: Line) -> dict[str, float]:
    all_values = {REFERENCE: line.reference, OURS: line.ours, FLOOR: line.floor}
    return {broker: value for broker, value in all_values.items() if value}


def _draw_panel(axis: Any, title: str, lines: list[Line]) -> None:
    shown: set[str] = set()
    for place, line in enumerate(lines):
        values = _values(line)
        axis.plot(list(values.values()), [place] * len(values), color="#c8c8c8", zorder=1)
        for broker, value in values.items():
            label, colour, marker = LOOKS[broker]
            first = None if broker in shown else label
            shown.add(broker)
            axis.scatter([value], [place], s=36, c=colour, marker=marker, zorder=2, label=first)
            axis.annotate(
                number(value),
                (value, place),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                fontsize=7,
                color=colour,
            )
    axis.set_yticks(range(len(lines)), [TITLES[line.case] for line in lines], fontsize=8)
    axis.set_ylim(len(lines) - 0.4, -0.8)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(lambda value, _: number(value))
    axis.xaxis.set_minor_formatter(lambda value, _: "")
    axis.tick_params(axis="x", labelsize=8)
    axis.grid(axis="x", which="both", color="#eeeeee")
    axis.margins(x=0.12)
    axis.set_title(title, fontsize=9, loc="left")
