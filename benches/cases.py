import time
from collections.abc import Callable

from benches import (
    compaction_case,
    coordinator_case,
    crowd_case,
    dev_case,
    group_cases,
    hanging_case,
    lag_case,
    memory_cases,
    mirror_case,
    old_cases,
    old_client_cases,
    process,
    recovery_case,
    scan_cases,
    spark_cases,
    topics,
    transaction_cases,
)
from benches.brokers import Broker
from benches.cluster_cases import CLUSTER_CASES, ClusterCase
from benches.effort import Case, Effort, Row, Scenario
from benches.meter import memory
from benches.produce_cases import Work, java_defaults, produce
from benches.read_cases import end_to_end, fetch_fresh, fetch_warm, together

_SETTLE_S = 5.0


def idle(broker: Broker, effort: Effort) -> Row:
    time.sleep(_SETTLE_S)
    before = process.usage(broker.pid)
    time.sleep(effort.idle_seconds)
    after = process.usage(broker.pid)
    return {
        "cpu_percent": 100 * (after.cpu_s - before.cpu_s) / effort.idle_seconds,
        "seconds": effort.idle_seconds,
        **memory(after),
    }


def in_groups(
    measure: Callable[[Broker, float, float], Row],
) -> Callable[[Broker, Effort], Row]:
    """A case of group_cases. They share a topic, because offsets need an existing one."""

    def run(broker: Broker, effort: Effort) -> Row:
        if not topics.exists(broker, group_cases.TOPIC):
            topics.create(broker, group_cases.TOPIC)
            broker.topics.remove(group_cases.TOPIC)
        return measure(broker, effort.warm_seconds, effort.measure_seconds)

    return run


def _batches() -> list[Case]:
    sizes = {
        "1k": ("0.9 KB", 1_024),  # eight records of 100 bytes: 917 bytes
        "4k": ("4 KB", 4_096),
        "16k": ("16 KB", 16_384),
        "128k": ("128 KB", 131_072),
        "900k": ("900 KB", 900_000),
    }
    quick = ("produce1k", "produce16k", "produce128k", "produce16k-4")
    found = []
    for connections in (1, 4):
        for short, (size, size_bytes) in sizes.items():
            name = f"produce{short}" + ("" if connections == 1 else f"-{connections}")
            plural = "" if connections == 1 else "s"
            title = f"produce {size}, {connections} connection{plural}"
            measure = produce(Work(size_bytes, connections))
            floor = short in ("1k", "16k", "128k")
            found.append(Case(name, title, measure, name in quick, floor))
    return found


def _record_sizes() -> list[Case]:
    titles = {10: "10 B", 100: "100 B", 1_000: "1 KB", 10_000: "10 KB"}
    return [
        Case(f"records{size}", f"records of {title}", produce(Work(16_384, 1, record_bytes=size)))
        for size, title in titles.items()
    ]


def _partitions() -> list[Case]:
    return [
        Case(
            f"partitions{count}",
            f"produce 16 KB, {count:,} partition{'s' if count > 1 else ''}",
            produce(crowd_case.work(count), warm=False),
            quick=count == 100,
        )
        for count in (1, 3, 6, 9, 100, 1_000)
    ]


def _reads() -> list[Case]:
    found = []
    for count in (1, 2, 3):
        name, plural = ("", "") if count == 1 else (f"-{count}", "s")
        title = f"fetch of warm data, {count} connection{plural}"
        found.append(Case(f"fetch{name}", title, fetch_warm(count), count == 1, floor=True))
    for count in (1, 3):
        name, plural = ("", "") if count == 1 else (f"-{count}", "s")
        title = f"fetch of fresh data, {count} connection{plural}"
        found.append(Case(f"fresh{name}", title, fetch_fresh(count), count == 1, floor=True))
    return found


_LATENCY = ("p50_ms", "p99_ms", "p99.9_ms", "cpu_percent")
_TOGETHER = ("mb_per_s", "consumer_mb_per_s", "consumed_percent", "cpu_s_per_gb", "p99_ms")
_JAVA = ("records_per_s", "cpu_s", "p50_ms", "p99_ms", "p99.9_ms")
_REQUESTS = ("requests_per_cpu_s", "requests_per_s", "p50_ms", "p99_ms")
_SETTLE = ("settle_s", "settle_max_s", "delay_ms")


def _end_to_end() -> list[Case]:
    return [
        Case(
            "end-to-end" if rate == 1_000 else f"end-to-end-{rate}",
            f"end to end at {rate:,} records/s",
            end_to_end(rate),
            quick=rate == 1_000,
            floor=True,
            shown=_LATENCY,
        )
        for rate in (200, 1_000, 5_000)
    ]


def _groups() -> list[Case]:
    return [
        Case(
            "heartbeats",
            "heartbeats of 1,000 members",
            in_groups(group_cases.heartbeats),
            shown=_REQUESTS,
        ),
        Case(
            "commits1",
            "commits of 1,000 members, 1 partition",
            in_groups(group_cases.commits(1)),
            shown=_REQUESTS,
        ),
        Case(
            "commits6",
            "commits of 1,000 members, 6 partitions",
            in_groups(group_cases.commits(6)),
            shown=_REQUESTS,
        ),
        Case("settle", "one of 500 members leaves", in_groups(group_cases.settle), shown=_SETTLE),
    ]


# The start of the broker measures "start-up"; "idle" before the memory is filled.
START_UP = "start-up"
IDLE = Case(
    "idle",
    "idle after start",
    idle,
    quick=True,
    shown=("cpu_percent", "rss_mb", "own_rss_mb", "threads"),
)
CASES = (
    *_batches(),
    *_record_sizes(),
    *_partitions(),
    *_reads(),
    Case("together", "producer and consumer together", together, quick=True, shown=_TOGETHER),
    *_end_to_end(),
    Case(
        "java",
        "Java's ProducerPerformance, defaults",
        java_defaults,
        quick=True,
        floor=True,
        shown=_JAVA,
    ),
    *_groups(),
    *transaction_cases.CASES,
    *old_client_cases.CASES,
    *scan_cases.CASES,
    *spark_cases.CASES,
)
SCENARIOS: tuple[Scenario, ...] = (
    crowd_case.SCENARIO,
    lag_case.SCENARIO,
    *old_cases.SCENARIOS,
    hanging_case.SCENARIO,
    recovery_case.SCENARIO,
    coordinator_case.SCENARIO,
    *compaction_case.SCENARIOS,
    dev_case.SCENARIO,
    *memory_cases.SCENARIOS,
    mirror_case.SCENARIO,
)
ALL: tuple[Case | Scenario | ClusterCase, ...] = (IDLE, *CASES, *SCENARIOS, *CLUSTER_CASES)
TITLES = {START_UP: "start to first Metadata"} | {case.name: case.title for case in ALL}
SHOWN = {START_UP: ("startup_s",)} | {case.name: case.shown for case in ALL}
