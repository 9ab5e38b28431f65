"""What metrics cost: ``python -m benches.metrics_cost``.

Two equal brokers with many partitions and groups. One serves HTTP and is scraped each second, the
other one serves none. Each does the same work in turn, A B B A, while the other one rests.
benchmark-method.md describes what is measured and how.
"""

import argparse
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from benches import (
    alone,
    effort,
    loadgen,
    many_groups,
    memory_group,
    process,
    scrapes,
    topics,
)
from benches.against_kafka import amount, count
from benches.alone import Benchmark
from benches.brokers import ROOT, Broker, Pyrklog, free_port
from benches.effort import Effort, Row
from benches.figures import Figure, goal
from benches.produce_cases import Work, produce
from benches.read_cases import WARM_BYTES, fetch_warm
from benches.stage import MEMORY_BYTES

MANY = "many"
_BATCH_BYTES = 16_384
_SMALL_BATCH_BYTES = 1_024
_BATCHES_EACH = 3
_COMMITTED_OFFSET = 4
_START_TIMEOUT_S = 300.0
_WARM_SECONDS = 1.0
# A partition's folder, segment, indexes and small files in whole blocks, and its few records.
_PARTITION_BYTES = 40_000
_LEAST_RATIO = 0.98
_MEMORY_MAX_MB = 30.0
_SCRAPE_MAX_MS = 5.0
_GROUPS_ASKED = 20


class WithHttp(Pyrklog):
    name = "with HTTP"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.http_port = free_port()

    def command(self) -> list[str]:
        return [*super().command(), "--http", f"127.0.0.1:{self.http_port}"]


class WithoutHttp(Pyrklog):
    name = "without HTTP"

    def command(self) -> list[str]:
        return [*super().command(), "--http", "none"]


@dataclass(frozen=True)
class Plan:
    pairs: int
    partitions: int
    groups: int
    seconds: float
    """Most of each produce and of each fetch."""
    turn_bytes: int
    """Most that a turn produces while it is measured."""
    warm_bytes: int
    """What each broker gets first, so that its memory was touched."""
    scrapes: int
    """Of each stretch in which the CPU time of a scrape is measured."""

    @property
    def many(self) -> int:
        """Partitions of the topic beside the load's."""
        return max(1, self.partitions - topics.PARTITIONS)

    @property
    def effort(self) -> Effort:
        return replace(
            effort.QUICK,
            warm_seconds=_WARM_SECONDS,
            warm_bytes=self.turn_bytes // 3,
            measure_seconds=self.seconds,
            measure_bytes=self.turn_bytes,
            fetch_bytes=10**15,
        )

    def disk_bytes(self) -> int:
        """The most that both have on disk at the same time. Each keeps its partitions, and what it
        sets aside for records not written yet; only one at a time has the records of a turn."""
        each = self.partitions * _PARTITION_BYTES + Pyrklog.unwritten_max_bytes * 5 // 4
        turn = self.effort.warm_bytes + self.turn_bytes
        return 2 * each + max(self.warm_bytes, turn, WARM_BYTES)


@dataclass(frozen=True)
class Turn:
    produced: Row
    fetched: Row
    own_bytes: int


@dataclass(frozen=True)
class Pair:
    on: Turn
    off: Turn


def own_bytes(statuses: Sequence[str]) -> int:
    """Resident memory of processes by /proc/PID/status, without shared memory and files."""
    return sum(1024 * process.parse_fields(text).get("RssAnon", 0) for text in statuses)


def in_turn(
    pairs: int, on: Callable[[], Turn], off: Callable[[], Turn], note: Callable[[int, Pair], None]
) -> list[Pair]:
    """On, off, off, on, and so on: what changes slowly favours neither."""
    found = []
    for number in range(pairs):
        if number % 2 == 0:
            one, other = on(), off()
        else:
            other, one = off(), on()
        found.append(Pair(one, other))
        note(number + 1, found[-1])
    return found


def compare(pairs: Sequence[Pair]) -> list[Figure]:
    """Ratios and differences within each pair."""

    def ratios(work: str, metric: str) -> tuple[float, ...]:
        rows = [(getattr(pair.on, work), getattr(pair.off, work)) for pair in pairs]
        return tuple(on[metric] / off[metric] for on, off in rows)

    faster = goal(">=", _LEAST_RATIO, ratio=True)
    cheaper = goal("<=", 1 / _LEAST_RATIO, ratio=True)
    memory = tuple((pair.on.own_bytes - pair.off.own_bytes) / 1e6 for pair in pairs)
    return [
        Figure("produce, MB/s, with / without", ratios("produced", "mb_per_s"), faster),
        Figure("produce, CPU-s/GB, with / without", ratios("produced", "cpu_s_per_gb"), cheaper),
        Figure("fetch, MB/s, with / without", ratios("fetched", "mb_per_s"), faster),
        Figure("fetch, CPU-s/GB, with / without", ratios("fetched", "cpu_s_per_gb"), cheaper),
        Figure("own memory, with - without, MB", memory, goal("<=", _MEMORY_MAX_MB)),
        *(
            Figure(
                f"{name} without, {unit}",
                tuple(getattr(pair.off, work)[metric] for pair in pairs),
            )
            for name, work in (("produce", "produced"), ("fetch", "fetched"))
            for unit, metric in (("MB/s", "mb_per_s"), ("CPU-s/GB", "cpu_s_per_gb"))
        ),
        Figure("own memory without, MB", tuple(pair.off.own_bytes / 1e6 for pair in pairs)),
    ]


@contextmanager
def _running(broker: Broker, *, all_memory: bool) -> Iterator[None]:
    """Starts it, in a memory group of its own if possible, and removes it in the end."""
    group: memory_group.Group = memory_group.NoMemoryGroup("all memory is asked for")
    if not all_memory:
        name = f"pyrklog-bench-{os.getpid()}-{broker.port}"
        group = memory_group.create(name, MEMORY_BYTES)
    try:
        broker.prepare()
        enter = group.join() if isinstance(group, memory_group.MemoryGroup) else None
        broker.start(enter, _START_TIMEOUT_S)
        yield
    finally:
        broker.remove()
        if isinstance(group, memory_group.MemoryGroup):
            group.remove()


def _set_up(broker: Broker, plan: Plan) -> None:
    topics.create(broker, "warm")
    topics.fill(broker, plan.warm_bytes, "warm")
    topics.remove_all(broker)
    topics.create(broker, MANY, plan.many)
    broker.topics.remove(MANY)
    topics.wait_until_led(broker, MANY)
    loadgen.run(
        *("produce", broker.bootstrap, MANY),
        batch_bytes=_SMALL_BATCH_BYTES,
        bytes=_BATCHES_EACH * _SMALL_BATCH_BYTES * plan.many,
        seconds=_START_TIMEOUT_S,
    )
    groups = many_groups.names(plan.groups)
    many_groups.commit(broker.port, groups, MANY, plan.many, _COMMITTED_OFFSET)


def _turn(broker: Broker, plan: Plan) -> Turn:
    produced = produce(Work(_BATCH_BYTES, 1))(broker, plan.effort)
    topics.remove_all(broker)
    fetched = fetch_warm(1)(broker, plan.effort)
    pids = process.tree(broker.pid)
    own = own_bytes([Path(f"/proc/{pid}/status").read_text() for pid in pids])
    topics.remove_all(broker)
    return Turn(produced, fetched, own)


def measure(plan: Plan, folder: Path, console: Console, *, all_memory: bool) -> list[Figure]:
    on, off = WithHttp(folder / "on"), WithoutHttp(folder / "off")
    groups = many_groups.names(min(plan.groups, _GROUPS_ASKED))
    details = scrapes.detail_paths(MANY, groups)
    longest_s: list[float] = []

    def scraped() -> Turn:
        with scrapes.Scraper(on.http_port, details) as scraper:
            turn = _turn(on, plan)
        longest_s.append(scraper.longest_s)
        return turn

    def note(number: int, pair: Pair) -> None:
        told = [
            f"{name} {row['mb_per_s']:.0f} MB/s {row['cpu_s_per_gb']:.3f} CPU-s/GB"
            for turn in (pair.on, pair.off)
            for name, row in (("produce", turn.produced), ("fetch", turn.fetched))
        ]
        console.print(f"pair {number}: with {told[0]}, {told[1]}; without {told[2]}, {told[3]}")

    with _running(on, all_memory=all_memory), _running(off, all_memory=all_memory):
        for broker in (on, off):
            console.print(f"{broker.name}: {plan.partitions} partitions, {plan.groups} groups")
            _set_up(broker, plan)
        pairs = in_turn(plan.pairs, scraped, lambda: _turn(off, plan), note)
        asked = {
            "/metrics": itertools.repeat("/metrics"),
            "/metrics/detail of the topic": scrapes.detail_paths(MANY, []),
        }
        costs = {
            what: scrapes.cost_ms(on, on.http_port, paths, plan.scrapes)
            for what, paths in asked.items()
        }
    bound = {"/metrics": goal("<=", _SCRAPE_MAX_MS)}
    return [
        *compare(pairs),
        *(
            Figure(f"{what}, CPU of one scrape, ms", tuple(found), bound.get(what))
            for what, found in costs.items()
        ),
        Figure("longest answer in a turn, ms", tuple(1e3 * seconds for seconds in longest_s)),
    ]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benches.metrics_cost", description="what metrics over HTTP cost a broker"
    )
    add = parser.add_argument
    add("--pairs", type=count, default=5, help="how often each broker has its turn")
    add("--partitions", type=count, default=10_000)
    add("--groups", type=count, default=1_000, help="groups with ten committed offsets each")
    add("--seconds", type=amount, default=10.0, help="most of each produce and of each fetch")
    add("--turn-gb", type=amount, default=3.0, help="most that a turn produces")
    add("--warm-gb", type=amount, default=3.0, help="what each broker gets first")
    add("--scrapes", type=count, default=100, help="of each stretch that measures one's CPU")
    add("--strict", action="store_true", help="a missed goal is a failure")
    add("--all-memory", action="store_true", help="no memory groups: all of the machine's memory")
    add("--out", default=str(ROOT / "bench-out" / "metrics-cost"), help="folder for all output")
    return parser.parse_args(arguments)


def plan_of(options: argparse.Namespace) -> Plan:
    return Plan(
        pairs=options.pairs,
        partitions=options.partitions,
        groups=options.groups,
        seconds=options.seconds,
        turn_bytes=round(options.turn_gb * 1e9),
        warm_bytes=round(options.warm_gb * 1e9),
        scrapes=options.scrapes,
    )


def main() -> int:
    """Exit status: 0 measured, 1 a goal missed (with --strict), 2 usage, 3 could not measure."""
    options = parse(sys.argv[1:])
    plan = plan_of(options)
    benchmark = Benchmark(
        title="what metrics cost",
        settings=asdict(plan),
        disk_bytes=plan.disk_bytes(),
        less=", or less with --partitions, --turn-gb and --warm-gb",
        measure=lambda folder, console: measure(
            plan, folder, console, all_memory=options.all_memory
        ),
    )
    return alone.run(benchmark, options.out, strict=options.strict)


if __name__ == "__main__":
    sys.exit(main())
