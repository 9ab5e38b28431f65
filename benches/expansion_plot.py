"""Expansions over time: a column for each way; reads of old brokers, producers, the new broker."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benches.expansion_sampler import Second

_OLD = 3
_OURS, _KAFKA, _BUSY = "#1f77b4", "#8a8a8a", "#d9a441"
_WIDTH, _HEIGHT = 2.2, 7.5
_KINDS = ("svg", "png")


def draw(
    folder: Path,
    series: Mapping[str, Sequence[Second]],
    rows: Mapping[str, Mapping[str, float]],
    titles: Mapping[str, str],
) -> None:
    """Writes ``expansion.svg`` and ``expansion.png``."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    if not series:
        return
    figure, axes = pyplot.subplots(
        3,
        len(series),
        figsize=(1.2 + _WIDTH * len(series), _HEIGHT),
        squeeze=False,
        sharex="col",
        sharey="row",
        layout="constrained",
    )
    for place, (name, found) in enumerate(series.items()):
        _draw_way(axes[:, place], found, rows.get(name, {}), _colour(name))
        axes[0, place].set_title(_wrapped(titles.get(name, name)), fontsize=8)
        axes[2, place].set_xlabel("seconds", fontsize=8)
    for axis, label in zip(
        axes[:, 0],
        (
            "old brokers read, MB/s\n(disk busy, %: yellow)",
            "producers' p99.9, ms",
            "new broker, MB/s",
        ),
        strict=True,
    ):
        axis.set_ylabel(label, fontsize=8)
    for kind in _KINDS:
        figure.savefig(folder / f"expansion.{kind}", dpi=110)
    pyplot.close(figure)


def _colour(name: str) -> str:
    return _KAFKA if name.startswith("kafka") else _OURS


def _wrapped(title: str) -> str:
    return title.replace(", ", ",\n", 2)


def _draw_way(axes: Any, found: Sequence[Second], row: Mapping[str, float], colour: str) -> None:
    when = [one.second for one in found]
    reads, latency, new = axes
    reads.fill_between(when, [one.device_busy_percent for one in found], color=_BUSY, alpha=0.25)
    reads.plot(when, [sum(one.read_mb[:_OLD]) for one in found], color=colour, linewidth=0.9)
    latency.plot(when, [one.p999_ms for one in found], color=colour, linewidth=0.7)
    latency.set_yscale("log")
    if row.get("quiet_p99.9_ms"):
        latency.axhline(row["quiet_p99.9_ms"], color="black", linestyle=":", linewidth=0.8)
    new.plot(when, [one.new_written_mb for one in found], color=colour, linewidth=0.9)
    for axis in axes:
        axis.axvline(0, color="black", linewidth=0.6)
        for name in ("tail_s", "whole_s"):
            if name in row:
                style = "--" if name == "tail_s" else "-."
                axis.axvline(row[name], color="#2ca02c", linestyle=style, linewidth=0.8)
        axis.tick_params(labelsize=7)
        axis.grid(color="#eeeeee")
