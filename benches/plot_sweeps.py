"""Curves of what was varied: batch size, record size, partitions, rate; and the effects of lag and
of a hanging disk. One picture, one panel each, where there are figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.plot import LOOKS
from benches.report import FLOOR, OURS, REFERENCE, Line, number


@dataclass(frozen=True)
class Sweep:
    """A curve for each broker: ``metric`` of ``cases`` over ``values``."""

    title: str
    axis: str
    metric: str
    values: Sequence[float]
    cases: Sequence[str]


_BATCH_KB = (0.917, 4, 16, 128, 900)
_BATCHES = ("produce1k", "produce4k", "produce16k", "produce128k", "produce900k")
_RECORD_BYTES = (10, 100, 1_000, 10_000)
_PARTITIONS = (1, 3, 6, 9, 100, 1_000, 10_000)
_RATES = {200: "end-to-end-200", 1_000: "end-to-end", 5_000: "end-to-end-5000"}

SWEEPS = (
    Sweep("produce, 1 connection", "KB a batch", "mb_per_s", _BATCH_KB, _BATCHES),
    Sweep(
        "produce, 4 connections",
        "KB a batch",
        "mb_per_s",
        _BATCH_KB,
        tuple(f"{case}-4" for case in _BATCHES),
    ),
    Sweep("produce, 1 connection", "KB a batch", "cpu_s_per_gb", _BATCH_KB, _BATCHES),
    Sweep(
        "produce, 4 connections",
        "KB a batch",
        "cpu_s_per_gb",
        _BATCH_KB,
        tuple(f"{case}-4" for case in _BATCHES),
    ),
    Sweep(
        "16 KB batches",
        "bytes a record",
        "mb_per_s",
        _RECORD_BYTES,
        tuple(f"records{size}" for size in _RECORD_BYTES),
    ),
    Sweep(
        "16 KB batches, 2 connections",
        "partitions",
        "mb_per_s",
        _PARTITIONS,
        tuple(f"partitions{count}" for count in _PARTITIONS),
    ),
    Sweep("end to end", "records/s", "p99_ms", tuple(_RATES), tuple(_RATES.values())),
    Sweep("end to end", "records/s", "p99.9_ms", tuple(_RATES), tuple(_RATES.values())),
)
# (title, case, (label, metric without, metric with))
STALLS = (
    (
        "a consumer reads old data: latency in ms",
        "lag",
        (
            ("producer p99", "producer_p99_ms", "producer_lag_p99_ms"),
            ("producer p99.9", "producer_p99.9_ms", "producer_lag_p99.9_ms"),
            ("tail p99", "tail_p99_ms", "tail_lag_p99_ms"),
        ),
    ),
    (
        "the disk of another topic hangs: latency in ms",
        "hanging-disk",
        (("producer p99", "quiet_p99_ms", "frozen_p99_ms"),),
    ),
)


def points(sweep: Sweep, found: Sequence[Line]) -> dict[str, list[tuple[float, float]]]:
    """(x, y) of each broker that has figures."""
    lines = {line.case: line for line in found if line.metric == sweep.metric}
    out: dict[str, list[tuple[float, float]]] = {}
    for value, case in zip(sweep.values, sweep.cases, strict=True):
        line = lines.get(case)
        if line is None:
            continue
        figures = {REFERENCE: line.reference, OURS: line.ours, FLOOR: line.floor}
        for broker, figure in figures.items():
            if figure:
                out.setdefault(broker, []).append((value, figure))
    return out


def draw(path: Path, found: Sequence[Line], subtitle: str) -> bool:
    """Writes a PNG; returns False without a file if nothing was varied."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    curves = [(sweep, drawn) for sweep in SWEEPS if _is_curve(drawn := points(sweep, found))]
    stalls = [stall for stall in STALLS if any(line.case == stall[1] for line in found)]
    count = len(curves) + len(stalls)
    if not count:
        return False
    rows = (count + 1) // 2
    figure, axes = pyplot.subplots(
        rows, 2, figsize=(10, 3.2 * rows), squeeze=False, layout="constrained"
    )
    places = list(axes.flat)
    for axis, (sweep, drawn) in zip(places, curves, strict=False):
        _draw_curve(axis, sweep, drawn)
    for axis, (title, case, bars) in zip(places[len(curves) :], stalls, strict=False):
        _draw_stall(axis, title, bars, {line.metric: line for line in found if line.case == case})
    for axis in places[count:]:
        axis.set_axis_off()
    figure.suptitle(f"pyrklog beside Apache Kafka\n{subtitle}", fontsize=10)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True


def _is_curve(drawn: dict[str, list[tuple[float, float]]]) -> bool:
    return any(len(some) > 1 for some in drawn.values())


def _draw_curve(axis: Any, sweep: Sweep, drawn: dict[str, list[tuple[float, float]]]) -> None:
    from matplotlib.ticker import LogLocator

    for broker, some in drawn.items():
        label, colour, marker = LOOKS[broker]
        xs, ys = zip(*some, strict=True)
        axis.plot(xs, ys, color=colour, marker=marker, label=label, markersize=5)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_xticks(sweep.values, [number(value) for value in sweep.values], fontsize=8)
    axis.minorticks_off()
    axis.yaxis.set_major_formatter(lambda value, _: number(value))
    _finish(axis, f"{sweep.title}: {sweep.metric}")
    axis.set_xlabel(sweep.axis, fontsize=8)


def _draw_stall(
    axis: Any, title: str, bars: Sequence[tuple[str, str, str]], lines: dict[str, Line]
) -> None:
    """A line from the figure without to the figure with, for each broker."""
    from matplotlib.ticker import LogLocator

    place = 0
    labels = []
    for label, without, during in bars:
        for broker in (REFERENCE, OURS):
            before, after = (_figure(lines.get(name), broker) for name in (without, during))
            labels.append(f"{label}, {LOOKS[broker][0]}")
            if before and after:
                colour = LOOKS[broker][1]
                axis.plot([before, after], [place, place], color=colour)
                axis.scatter([before], [place], marker="o", facecolors="none", edgecolors=colour)
                axis.scatter([after], [place], marker=">", color=colour)
            place += 1
    axis.set_yticks(range(place), labels, fontsize=8)
    axis.set_ylim(place - 0.5, -0.5)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(lambda value, _: number(value))
    axis.xaxis.set_minor_formatter(lambda value, _: "")
    _finish(axis, title, legend=False)


def _figure(line: Line | None, broker: str) -> float | None:
    if line is None:
        return None
    return line.reference if broker == REFERENCE else line.ours


def _finish(axis: Any, title: str, legend: bool = True) -> None:
    axis.set_title(title, fontsize=9, loc="left")
    axis.tick_params(labelsize=8)
    axis.grid(color="#eeeeee")
    if legend:
        axis.legend(fontsize=7)
