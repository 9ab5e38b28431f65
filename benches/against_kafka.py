"""pyrklog and Apache Kafka in turn, A B A B, on the same work: `python -m benches.against_kafka`.

Each broker runs alone, in a memory cgroup where one can be made, on memory that was touched
before. docs/benchmarks.md says what is measured and how.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benches import cases, environment, memory_group, report
from benches.brokers import BROKERS, ROOT, BenchError, Broker

MEMORY_BYTES = 2_500_000_000


class Bench:
    """One invocation: what to run, and the results so far."""

    def __init__(self, options: argparse.Namespace, console: Console) -> None:
        self.console = console
        self.effort = cases.QUICK if options.quick else cases.FULL
        if options.pairs:
            self.effort = replace(self.effort, pairs=options.pairs)
        self.brokers: list[str] = options.brokers
        self.only: list[str] = options.only
        self.folder = Path(options.out)
        self.results: list[report.Result] = []

    def wanted(self, name: str) -> bool:
        """Whether `--only` leaves the case in."""
        return not self.only or name in self.only

    def steps(self) -> int:
        """Steps of the progress bar."""
        per_broker = len([c for c in (cases.IDLE, *cases.CASES) if self.wanted(c.name)]) + 2
        return self.effort.pairs * len(self.brokers) * per_broker

    def check_space(self) -> None:
        """BenchError unless the disk holds what one broker writes at most before it is removed."""
        produced = [c for c in cases.CASES if c.name.startswith("produce") and self.wanted(c.name)]
        each = self.effort.warm_bytes + self.effort.measure_bytes
        needed = self.effort.fill_bytes + len(produced) * each + cases.FETCHED_BYTES
        free = shutil.disk_usage(self.folder).free
        if free < needed * 1.1:
            raise BenchError(
                f"{self.folder} has {free / 1e9:.0f} GB free, {needed * 1.1 / 1e9:.0f} GB are "
                "needed: choose another folder with --out, fewer cases with --only, or --quick"
            )

    def run(self) -> None:
        """All pairs."""
        self.check_space()
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        with Progress(*columns, console=self.console) as progress:
            task = progress.add_task("", total=self.steps())
            for pair in range(1, self.effort.pairs + 1):
                for name in self.brokers:
                    for result in self.measure(pair, name):
                        progress.update(task, advance=1, description=result)

    def measure(self, pair: int, name: str) -> Iterator[str]:
        """Starts one broker, runs every case on it and removes it; yields what comes next."""
        with self.broker(name) as (broker, group):
            enter = group.join() if isinstance(group, memory_group.MemoryGroup) else None
            yield f"{name} {pair}: starting"
            started = []
            for start in range(self.effort.starts):
                if start:
                    broker.stop()
                started.append(broker.start(enter))
            self.note(pair, name, cases.START_UP, {"startup_s": statistics.median(started)})
            if self.wanted(cases.IDLE.name):
                yield f"{name} {pair}: {cases.IDLE.title}"
                self.note(pair, name, cases.IDLE.name, cases.IDLE.measure(broker, self.effort))
            chosen = [case for case in cases.CASES if self.wanted(case.name)]
            yield f"{name} {pair}: filling memory"
            if chosen:
                cases.fill(broker, self.effort)
            for case in chosen:
                yield f"{name} {pair}: {case.title}"
                self.note(pair, name, case.name, case.measure(broker, self.effort))
            broker.stop()

    @contextmanager
    def broker(
        self, name: str
    ) -> Iterator[tuple[Broker, memory_group.MemoryGroup | memory_group.NoMemoryGroup]]:
        """A prepared broker in a folder and a memory group of its own, both removed at the end."""
        group = memory_group.create(f"pyrklog-bench-{os.getpid()}", MEMORY_BYTES)
        parent = tempfile.mkdtemp(prefix="data-", dir=self.folder)
        broker = BROKERS[name](Path(parent) / name)
        try:
            broker.prepare()
            yield broker, group
        finally:
            broker.remove()
            shutil.rmtree(parent, ignore_errors=True)
            if isinstance(group, memory_group.MemoryGroup):
                group.remove()

    def note(self, pair: int, broker: str, case: str, row: cases.Row) -> None:
        """Keeps a result and shows its main figures at once."""
        self.results.append(report.Result(pair, broker, case, row))
        metrics = ("mb_per_s", "cpu_s_per_gb", "p50_ms", "p99_ms", "startup_s", "cpu_percent")
        figures = [f"{metric} {report.number(row[metric])}" for metric in metrics if metric in row]
        self.console.print(f"{broker:8} {case:14} {'  '.join(figures)}", highlight=False)
        least = 3 * cases.UNWRITTEN_MAX_BYTES.get(broker, 0)
        if case.startswith("produce") and row["bytes"] < least:
            self.console.print(
                f"  note: only {row['bytes'] / 1e6:.0f} MB, less than three times what {broker} "
                "may leave unwritten; the clock still stopped with the last byte in its file"
            )

    def describe(self) -> None:
        """Prints the machine, the memory group and what each broker is given."""
        machine = environment.describe(self.folder)
        (self.folder / "environment.json").write_text(json.dumps(machine, indent=2) + "\n")
        for key, value in machine.items():
            self.console.print(f"{key:12} {value}", highlight=False)
        probe = memory_group.create(f"pyrklog-bench-{os.getpid()}", MEMORY_BYTES)
        if isinstance(probe, memory_group.MemoryGroup):
            self.console.print(f"{'memory group':12} {MEMORY_BYTES / 1e9:.1f} GB, {probe.path}")
            probe.remove()
        else:
            self.console.print(f"{'memory group':12} none: {probe.reason}", style="yellow")
        for name in self.brokers:
            for line in BROKERS[name](self.folder / name).describe():
                self.console.print(f"{name:12} {line}", highlight=False)
        effort = self.effort
        self.console.print(
            f"{'warm-up':12} {effort.fill_bytes / 1e9:.0f} GB, then {effort.warm_seconds:.0f} s of "
            "each case's own work (for Kafka's JIT too), none of it measured"
        )

    def finish(self) -> bool:
        """Writes CSV, table and plot, prints the table; whether every goal is reached."""
        report.write_csv(self.folder / "results.csv", self.results)
        found = report.lines(self.results)
        (self.folder / "table.md").write_text(report.markdown(found))
        from benches import plot

        pairs = f"{self.effort.pairs} pair(s), {time.strftime('%Y-%m-%d')}"
        plot.draw(self.folder / "results.png", found, pairs)
        self.console.print(report.table(found))
        self.console.print(f"results.csv, results.png, table.md in {self.folder}")
        return not any(line.verdict().startswith("missed") for line in found)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.against_kafka", description="pyrklog beside Apache Kafka"
    )
    names = [cases.IDLE.name, *(case.name for case in cases.CASES)]
    parser.add_argument("--quick", action="store_true", help="one short pair, under 5 minutes")
    parser.add_argument("--strict", action="store_true", help="a missed goal is a failure")
    parser.add_argument("--pairs", type=int, help="how often each broker runs")
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=[], help="of " + ",".join(names)
    )
    parser.add_argument(
        "--brokers", type=lambda text: text.split(","), default=["kafka", "pyrklog"]
    )
    parser.add_argument("--out", default=str(ROOT / "bench-out"), help="folder for all output")
    options = parser.parse_args(arguments)
    for name in options.only:
        if name not in names:
            parser.error(f"no case {name!r}; there are {', '.join(names)}")
    for name in options.brokers:
        if name not in BROKERS:
            parser.error(f"no broker {name!r}; there are {', '.join(BROKERS)}")
    if options.pairs is not None and options.pairs < 1:
        parser.error("--pairs is at least 1")
    return options


def main() -> int:
    """Exit status: 0 measured, 1 a goal missed (with --strict), 2 usage, 3 could not measure."""
    options = parse(sys.argv[1:])
    # Wide enough for the table where there is no terminal, as in a log file.
    console = Console() if sys.stdout.isatty() else Console(width=140)
    Path(options.out).mkdir(parents=True, exist_ok=True)
    bench = Bench(options, console)
    try:
        bench.describe()
        bench.run()
    except BenchError as error:
        console.print(f"error: {error}", style="red", highlight=False)
        if bench.results:
            bench.finish()
        return 3
    reached = bench.finish()
    return 0 if reached or not options.strict else 1


if __name__ == "__main__":
    sys.exit(main())
