"""A broker comes to a cluster under load: ``python -m benches.expansion``.

pyrklog from the leaders' ends, with back-fill and by copy, beside Apache Kafka with its tool; then
a drain. Each case has a cluster of its own, and is kept when it is done: the same command goes on
with those that are left. benchmark-method.md describes what is measured and how.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benches import environment, expansion_figures, expansion_plot, scheduling, spent
from benches.against_kafka import amount, count
from benches.brokers import ROOT, BenchError
from benches.effort import Row
from benches.expansion_figures import row_of
from benches.expansion_sampler import Second, read, seconds, write
from benches.expansion_side import Side, Size, side
from benches.expansion_ways import DRAIN, Trial, Way, drain, expand, prepare, ways
from benches.figures import Figure, markdown, table

_HEADLINES = (
    *("more_until_tail_mb", "read_mb", "third_s", "tail_s", "whole_s", "quiet_p99.9_ms"),
    *("p99.9_ms", "growth", "handover_s", "gone_s", "handing_growth", "predicted_s", "off_percent"),
    "corrected_off_percent",
)
FULL = Size(12_000_000_000, 300, 1_000, 20_000_000, 16_000, 60.0, 60.0, 900.0, (25, 40, 80))
SMALL = Size(300_000_000, 30, 40, 20_000_000, 16_000, 3.0, 8.0, 90.0, (40,))


class Bench:
    def __init__(self, options: argparse.Namespace, console: Console) -> None:
        self.console = console
        self.size = size_of(options)
        self.folder = Path(options.out).resolve()
        self._ways = ways(self.size)
        self._every = [way.name for way in self._ways]
        self._only: list[str] = options.only
        self._again: bool = options.again

    @property
    def names(self) -> list[str]:
        """Those that are asked for."""
        every = self._every
        unknown = sorted(set(self._only) - set(every))
        if unknown:
            raise BenchError(f"no case {unknown[0]}; there are {', '.join(every)}")
        return [name for name in every if not self._only or name in self._only]

    def run(self) -> list[str]:
        """Returns the cases that failed; the others go on."""
        failed = []
        for way in self._ways:
            name = way.name
            if name not in self.names:
                continue
            if not self._again and self._row(name) is not None:
                self.console.print(f"{name}: kept from an earlier run", highlight=False)
                continue
            place = self._place(name)
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            began = time.monotonic()
            try:
                self._keep(name, self._try(way, place))
            except (BenchError, OSError) as error:
                self.console.print(f"{name}: error: {error}", style="red", highlight=False)
                failed.append(name)
                continue
            row = self._row(name) or {}
            told = "  ".join(f"{key} {row[key]:.4g}" for key in _HEADLINES if key in row)
            elapsed = time.monotonic() - began
            self.console.print(f"{elapsed:6.0f} s {name:18} {told}", highlight=False)
        return failed

    def _try(self, way: Way, place: Path) -> Trial:
        with side(way.kind, self.folder, self.size) as found:
            try:
                if way.mode == DRAIN:
                    return drain(found, way, place)
                prepare(found, way)
                return expand(found, way, place)
            except BaseException:
                self._keep_logs(found, place)
                raise

    def _keep_logs(self, found: Side, place: Path) -> None:
        """The brokers' folders go; what they said stays with a case that failed."""
        for broker in found.brokers:
            said = broker.folder / "output.log"
            if said.exists():
                shutil.copy(said, place / f"{broker.folder.name}.log")

    def _place(self, name: str) -> Path:
        return self.folder / "cases" / name

    def _keep(self, name: str, trial: Trial) -> None:
        place = self._place(name)
        write(place / "series.csv", seconds(trial.samples, trial.requests, trial.begin_s))
        (place / "requests.bin").unlink(missing_ok=True)
        kept = {"size": _plain(self.size), "row": row_of(trial, self.size)}
        (place / "result.json").write_text(json.dumps(kept, indent=1) + "\n")

    def _row(self, name: str) -> Row | None:
        """Of an earlier run with the same sizes."""
        path = self._place(name) / "result.json"
        if not path.exists():
            return None
        kept = json.loads(path.read_text())
        row: Row = kept["row"]
        return row if kept["size"] == _plain(self.size) else None

    def describe(self, scheduled: str) -> None:
        machine = {**environment.describe(self.folder), "scheduling": scheduled}
        settings = {"size": _plain(self.size), "memory_group_bytes": self.size.memory_bytes}
        content = {"environment": machine, **settings}
        (self.folder / "environment.json").write_text(json.dumps(content, indent=2) + "\n")
        size = self.size
        said = {
            **machine,
            "history": f"{size.data_bytes / 1e9:g} GB in {size.partitions} partitions, 3 replicas",
            "producers": f"{size.rate_bytes / 1e6:g} MB/s, {size.per_s:g} requests/s, acks=all",
            "memory group": f"{size.memory_bytes / 1e9:.1f} GB for all brokers",
            "free disk": f"{size.disk_bytes() / 1e9:.1f} GB are needed",
        }
        for key, value in said.items():
            self.console.print(f"{key:12} {value}", highlight=False)
        if not size.is_memory_a_tenth:
            told = "the memory group holds more than a tenth of the history: these figures are"
            self.console.print(f"note: {told} a trial of the benchmark, not of brokers")

    def finish(self) -> list[Figure]:
        """Table, plots and goals of what there is, also from earlier runs."""
        rows = {name: row for name in self._every if (row := self._row(name)) is not None}
        drains = {way.name for way in self._ways if way.mode == DRAIN}
        series: dict[str, list[Second]] = {
            name: read(self._place(name) / "series.csv") for name in rows if name not in drains
        }
        titles = {way.name: way.title for way in self._ways}
        found = expansion_figures.figures_of(rows)
        expansion_plot.draw(self.folder, series, rows, titles)
        both = expansion_figures.markdown(rows, titles) + "\n" + markdown(found)
        (self.folder / "table.md").write_text(both)
        (self.folder / "results.json").write_text(json.dumps(rows, indent=1) + "\n")
        self.console.print(table("a broker comes, a broker goes", found))
        said = "table.md, results.json, expansion.svg, expansion.png, cases/*/series.csv"
        self.console.print(f"{said} in {self.folder}", highlight=False)
        return found


def _plain(size: Size) -> dict[str, object]:
    return {**asdict(size), "rates_mb": list(size.rates_mb)}


def size_of(options: argparse.Namespace) -> Size:
    base = SMALL if options.small else FULL
    data = base.data_bytes if options.gb is None else round(options.gb * 1e9)
    rate = base.rate_bytes if options.mb_per_s is None else round(options.mb_per_s * 1e6)
    return Size(
        data_bytes=data,
        partitions=options.partitions or base.partitions,
        leaders=options.leaders or base.leaders,
        rate_bytes=rate,
        record_bytes=base.record_bytes,
        warm_s=base.warm_s,
        quiet_s=options.quiet_seconds or base.quiet_s,
        most_s=options.most_seconds or base.most_s,
        rates_mb=tuple(options.throttles or base.rates_mb),
        memory_max_bytes=round((options.memory_gb or 0) * 1e9),
    )


def _rates(text: str) -> list[int]:
    return [count(one) for one in text.split(",")]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benches.expansion", description="a broker comes to a cluster under load"
    )
    add = parser.add_argument
    add("--small", action="store_true", help="0.3 GB: shows that each case runs to its end")
    add("--gb", type=amount, help="history, of one replica; 12")
    add("--partitions", type=count, help="of the history; 300")
    add("--leaders", type=count, help="of each broker when one is drained; 1000")
    add("--mb-per-s", type=amount, help="of the producers; 20")
    add("--memory-gb", type=amount, help="of all brokers; a tenth of all replicas, 3.2 at least")
    add("--quiet-seconds", type=amount, help="before each expansion; 60")
    add("--most-seconds", type=amount, help="longest wait for an expansion's end; 900")
    add("--throttles", type=_rates, help="of Kafka, MB/s; the middle one of pyrklog, too; 25,40,80")
    add("--only", type=lambda text: text.split(","), default=[], help="cases, with commas")
    add("--again", action="store_true", help="also what an earlier run has kept")
    add("--strict", action="store_true", help="a missed goal is a failure")
    add("--out", default=str(ROOT / "bench-out" / "expansion"), help="folder for all output")
    return parser.parse_args(arguments)


def main() -> int:
    """Exit status: 0 measured, 1 a goal missed (with --strict), 2 usage, 3 could not measure."""
    options = parse(sys.argv[1:])
    console = Console() if sys.stdout.isatty() else Console(width=140)
    bench = Bench(options, console)
    try:
        _ = bench.names
    except BenchError as error:
        console.print(f"error: {error}", style="red", highlight=False)
        return 2
    bench.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.callback(spent.sweep)
        bench.describe(stack.enter_context(scheduling.without_autogroups()))
        failed = bench.run()
    found = bench.finish()
    if failed:
        console.print(f"not measured: {', '.join(failed)}", style="red", highlight=False)
        return 3
    return 1 if options.strict and any(figure.is_missed for figure in found) else 0


if __name__ == "__main__":
    sys.exit(main())
