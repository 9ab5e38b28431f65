"""pyrklog and Apache Kafka in turn, A B A B, on the same work: ``python -m benches.against_kafka``.

Each broker runs alone, if possible in a memory cgroup, on memory that was touched before.
benchmark-method.md describes what is measured and how.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benches import (
    cases,
    cluster_cases,
    effort,
    environment,
    memory_group,
    report,
    scheduling,
    spent,
    topics,
)
from benches.brokers import BROKERS, ROOT, BenchError, Unavailable
from benches.cluster import cluster_stage
from benches.cluster_cases import CLUSTER_CASES, ClusterCase
from benches.effort import Case, Effort, Scenario
from benches.read_cases import FRESH_BYTES
from benches.stage import MEMORY_BYTES, stage

# Shared cases whose data is on disk at the same time. Each case's data is removed after it (not
# with --quick, because Kafka removes nothing in its first half minute).
_SHARED_CASES_AT_ONCE = 2
_HEADLINES = (
    *("mb_per_s", "cpu_s_per_gb", "p50_ms", "p99_ms", "startup_s", "cpu_percent"),
    *("producer_p99.9_growth", "tail_p99_growth", "newest_read_mb", "p99_growth"),
    *("of_six", "own_kb_per_partition", "produced_s", "led_s"),
    *("of_idempotent", "commits_per_s", "of_uncommitted", "all_s"),
    *("mb_per_cpu_s", "of_mirrormaker"),
)


class Bench:
    def __init__(self, options: argparse.Namespace, console: Console) -> None:
        self.console = console
        self.effort = _effort(options)
        self.quick: bool = options.quick
        self.keeps_topics: bool = options.quick and not options.only
        self.brokers: list[str] = options.brokers
        self.only: list[str] = options.only
        self.all_memory: bool = options.all_memory
        self.folder = Path(options.out).resolve()
        self.results: list[report.Result] = []
        self._began = time.monotonic()

    def wanted(self, case: Case | Scenario, broker: str) -> bool:
        """Whether ``--only`` (else ``--quick``) includes the case, and the broker can run it."""
        if broker == "floor" and not case.floor:
            return False
        if isinstance(case, Case) and case.only_ours and broker != "pyrklog":
            return False
        return case.name in self.only if self.only else case.quick or not self.quick

    def shared(self, broker: str) -> list[Case]:
        return [case for case in cases.CASES if self.wanted(case, broker)]

    def scenarios(self, pair: int, broker: str) -> list[Scenario]:
        """The cases with a broker of their own. They take long and repeat their main part, so one
        pair is enough unless they were named."""
        chosen = [scenario for scenario in cases.SCENARIOS if self.wanted(scenario, broker)]
        return chosen if pair == 1 or self.only else []

    def clusters(self, broker: str) -> list[list[ClusterCase]]:
        """The cases of a cluster: those that share one, then those with their own."""
        if broker == "floor":
            return []
        chosen = [
            case
            for case in CLUSTER_CASES
            if (case.name in self.only if self.only else case.quick or not self.quick)
            and (broker == "pyrklog" or not case.only_ours)
        ]
        shared = [case for case in chosen if not case.delayed]
        return [group for group in (shared, *([case] for case in chosen if case.delayed)) if group]

    def steps(self) -> int:
        """Steps of the progress bar: as many as :meth:`measure` yields."""
        count = 0
        for pair in range(1, self.effort.pairs + 1):
            for broker in self.brokers:
                cases_of_one = len(self.shared(broker)) + self.wanted(cases.IDLE, broker)
                count += cases_of_one + bool(cases_of_one) + len(self.scenarios(pair, broker))
                count += sum(1 + len(group) for group in self.clusters(broker))
        return count

    def check_space(self) -> None:
        """Raises BenchError unless the disk has room for the largest data of one broker."""
        effort = self.effort
        shared = 0
        if self.shared("pyrklog"):
            at_once = _SHARED_CASES_AT_ONCE
            if self.keeps_topics:
                at_once = len(self.shared("pyrklog"))
            each = effort.warm_bytes + effort.measure_bytes
            fresh = 2 * effort.fresh_rounds * FRESH_BYTES
            shared = effort.fill_bytes + at_once * max(each, fresh)
        alone = [scenario.disk_bytes(effort) for scenario in self.scenarios(1, "pyrklog")]
        needed = max([shared, *alone]) * 1.1
        free = shutil.disk_usage(self.folder).free
        if free < needed:
            raise BenchError(
                f"{self.folder} has {free / 1e9:.0f} GB free, {needed / 1e9:.0f} GB are "
                "needed: choose another folder with --out, fewer cases with --only, or --quick"
            )

    def run(self) -> None:
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
                        progress.update(task, advance=1, description=f"{name} {pair}: {result}")

    def measure(self, pair: int, name: str) -> Iterator[str]:
        """Everything on one broker; yields what comes next."""
        if self.shared(name) or self.wanted(cases.IDLE, name):
            yield from self._measure_shared(pair, name)
        for scenario in self.scenarios(pair, name):
            yield scenario.title
            with stage(name, self.folder, all_memory=self.all_memory) as place:
                try:
                    self.note(pair, name, scenario.name, scenario.measure(place, self.effort))
                except Unavailable as reason:
                    self.console.print(f"{scenario.name}: not measured: {reason}", style="yellow")

        for group in self.clusters(name):
            yield from self._measure_cluster(pair, name, group)

    def _measure_cluster(self, pair: int, name: str, chosen: list[ClusterCase]) -> Iterator[str]:
        with cluster_stage(name, self.folder, delayed=chosen[0].delayed) as cluster:
            yield "starting a cluster"
            cluster.start()
            if any(not case.delayed for case in chosen):
                cluster_cases.fill(cluster, min(self.effort.fill_bytes, cluster_cases.FILL_BYTES))
            for case in chosen:
                yield case.title
                self.note(pair, name, case.name, case.measure(cluster, self.effort))

    def _measure_shared(self, pair: int, name: str) -> Iterator[str]:
        with stage(name, self.folder, all_memory=self.all_memory) as place:
            broker = place.prepare()
            yield "starting"
            started = []
            for start in range(self.effort.starts):
                if start:
                    broker.stop()
                started.append(place.start(broker))
            if name != "floor":
                self.note(pair, name, cases.START_UP, {"startup_s": statistics.median(started)})
            if self.wanted(cases.IDLE, name):
                yield cases.IDLE.title
                self.note(pair, name, cases.IDLE.name, cases.IDLE.measure(broker, self.effort))
            chosen = self.shared(name)
            if chosen:
                topics.fill(broker, self.effort.fill_bytes)
            for case in chosen:
                yield case.title
                self.note(pair, name, case.name, case.measure(broker, self.effort))
                if not self.keeps_topics:
                    topics.remove_all(broker)
            broker.stop()

    def note(self, pair: int, broker: str, case: str, row: effort.Row) -> None:
        """Keeps a result and shows its main figures at once."""
        self.results.append(report.Result(pair, broker, case, row))
        figures = [f"{name} {report.number(row[name])}" for name in _HEADLINES if name in row]
        elapsed = f"{time.monotonic() - self._began:6.0f} s"
        line = f"{elapsed} {broker:8} {case:15} {'  '.join(figures)}"
        self.console.print(line, highlight=False)
        least = 3 * BROKERS[broker].unwritten_max_bytes
        if (
            case.startswith(("produce", "records", "partitions", "cluster-1"))
            and row.get("bytes", least) < least
        ):
            self.console.print(
                f"  note: only {row['bytes'] / 1e6:.0f} MB, less than three times what {broker} "
                "may leave unwritten; the clock still stopped with the last byte in its file"
            )
        if self.folder.is_dir():
            report.write_csv(self.folder / "results.csv", self.results)

    def describe(self, scheduled: str) -> None:
        machine = {**environment.describe(self.folder), "scheduling": scheduled}
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
            f"{'warm-up':12} {effort.fill_bytes / 1e9:.1f} GB, then {effort.warm_seconds:.0f} s of "
            "each case's own work (for Kafka's JIT too), none of it measured"
        )

    def finish(self) -> bool:
        """Writes CSV, table and plots, prints the table; returns whether every goal is reached."""
        report.write_csv(self.folder / "results.csv", self.results)
        found = report.lines(self.results)
        (self.folder / "table.md").write_text(report.markdown(found))
        from benches import plot, plot_sweeps

        pairs = f"{self.effort.pairs} pair(s), {time.strftime('%Y-%m-%d')}"
        plot.draw(self.folder / "results.png", found, pairs)
        plot_sweeps.draw(self.folder / "sweeps.png", found, pairs)
        self.console.print(report.table(found))
        self.console.print(f"results.csv, results.png, sweeps.png, table.md in {self.folder}")
        return not any(line.verdict().startswith("missed") for line in found)


def _effort(options: argparse.Namespace) -> Effort:
    chosen = effort.QUICK if options.quick else effort.FULL
    given = {
        "pairs": options.pairs,
        "phases": options.phases,
        "hang_pairs": options.phases,
        "old_bytes": options.old_gb and round(options.old_gb * 1e9),
        "recovery_bytes": options.recovery_gb and round(options.recovery_gb * 1e9),
        "recovery_partitions": options.recovery_partitions,
        "many_partitions": options.many,
        "measure_seconds": options.seconds,
        "commits": options.commits,
        "compaction_bytes": options.compaction_gb and round(options.compaction_gb * 1e9),
    }
    return replace(chosen, **{name: value for name, value in given.items() if value is not None})


def _names(text: str) -> list[str]:
    return text.split(",")


def amount(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benches.against_kafka", description="pyrklog beside Apache Kafka"
    )
    names = [case.name for case in cases.ALL]
    add = parser.add_argument
    add("--quick", action="store_true", help="one short pair of some cases, under 5 minutes")
    add("--strict", action="store_true", help="a missed goal is a failure")
    add("--floor", action="store_true", help="the floor programs, too, where there is one")
    add("--all-memory", action="store_true", help="no memory group: all of the machine's memory")
    add("--pairs", type=count, help="how often each broker runs")
    add("--phases", type=count, help="alternations in lag and hanging-disk")
    add("--seconds", type=amount, help="most time to measure each case")
    add("--old-gb", type=amount, help="lag: what is read of old data in each phase")
    add("--recovery-gb", type=amount, help="recovery: what lies in the log")
    add("--recovery-partitions", type=count)
    add("--commits", type=count, help="coordinator: offsets committed before it is killed")
    add("--compaction-gb", type=amount, help="compaction: what is in the log")
    add("--many", type=count, help="partitions of partitions10000")
    add("--only", type=_names, default=[], help="of " + ",".join(names))
    add("--brokers", type=_names, default=["kafka", "pyrklog"], help="of " + ",".join(BROKERS))
    add("--out", default=str(ROOT / "bench-out"), help="folder for all output")
    options = parser.parse_args(arguments)
    for name in options.only:
        if name not in names:
            parser.error(f"no case {name!r}; there are {', '.join(names)}")
    for name in options.brokers:
        if name not in BROKERS:
            parser.error(f"no broker {name!r}; there are {', '.join(BROKERS)}")
    if options.floor and "floor" not in options.brokers:
        options.brokers = [*options.brokers, "floor"]
    return options


def main() -> int:
    """Exit status: 0 measured, 1 a goal missed (with --strict), 2 usage, 3 could not measure."""
    options = parse(sys.argv[1:])
    # Wide enough for the table without a terminal, as in a log file.
    console = Console() if sys.stdout.isatty() else Console(width=140)
    Path(options.out).mkdir(parents=True, exist_ok=True)
    bench = Bench(options, console)
    try:
        with scheduling.without_autogroups() as scheduled:
            bench.describe(scheduled)
            bench.run()
    except BenchError as error:
        console.print(f"error: {error}", style="red", highlight=False)
        if bench.results:
            bench.finish()
        return 3
    finally:
        spent.sweep()
    reached = bench.finish()
    return 0 if reached or not options.strict else 1


if __name__ == "__main__":
    sys.exit(main())
