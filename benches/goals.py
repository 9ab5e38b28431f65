"""The goals of the figures, and the verdict on each."""

from dataclasses import dataclass

# A goal may be missed if the floor is no farther away than this.
FLOOR_DISTANCE = 0.15
# All cores count as full from here on; the rest is the kernel's own threads and rounding.
CORES_FULL_PERCENT = 95.0


@dataclass(frozen=True)
class Goal:
    """A bound for a metric: for our figure itself, or for its ratio to the reference's.

    With ``or_cores_full`` it suffices that all cores were busy.
    """

    case: str
    metric: str
    sign: str
    bound: float
    ratio: bool
    or_cores_full: bool = False

    def holds(self, value: float) -> bool:
        """Whether ``value``, a figure or a ratio, is within the bound."""
        return value >= self.bound if self.sign == ">=" else value <= self.bound

    def is_at(self, floor: float | None, ours: float | None) -> bool:
        """Whether our figure is as good as the floor's, or nearly."""
        if floor is None or ours is None:
            return False
        if self.sign == ">=":
            return ours >= (1 - FLOOR_DISTANCE) * floor
        return ours <= (1 + FLOOR_DISTANCE) * floor

    def __str__(self) -> str:
        return f"{self.sign} {self.bound:.3g}{'x' if self.ratio else ''}"


@dataclass(frozen=True)
class Figures:
    """A verdict's input: medians, and the median of the pairs' ratios."""

    ours: float | None
    ratio: float | None
    floor: float | None = None
    cores_busy_percent: float | None = None


def verdict(case: str, metric: str, figures: Figures) -> str:
    """The goal and whether it is reached; empty without a goal or a figure."""
    for goal in GOALS:
        value = figures.ratio if goal.ratio else figures.ours
        if (goal.case, goal.metric) != (case, metric) or value is None:
            continue
        if goal.holds(value):
            return f"reached ({goal})"
        busy = figures.cores_busy_percent or 0.0
        if goal.or_cores_full and busy >= CORES_FULL_PERCENT:
            return f"reached: all cores full ({goal})"
        if goal.is_at(figures.floor, figures.ours):
            return f"at the floor ({goal})"
        return f"missed ({goal})"
    return ""


def _produce(case: str, faster: float, cpu: float, or_full: bool = False) -> tuple[Goal, ...]:
    return (
        Goal(case, "mb_per_s", ">=", faster, True, or_full),
        Goal(case, "cpu_s_per_gb", "<=", cpu, True),
    )


def _latency(case: str) -> tuple[Goal, ...]:
    return (Goal(case, "p99_ms", "<=", 0.2, True), Goal(case, "p99.9_ms", "<=", 0.2, True))


GOALS = (
    *_produce("produce16k", 5, 1 / 6),
    *_produce("produce16k-4", 4, 1 / 5),
    *_produce("produce1k", 4, 1 / 6, or_full=True),
    *_produce("produce1k-4", 3, 1 / 5, or_full=True),
    *_produce("produce128k-4", 1.5, 1 / 3),
    *_produce("produce900k-4", 1.3, 1 / 2),
    *_produce("fetch", 1.0, 1.0),
    *_produce("fresh", 1.1, 1.0),
    *_produce("fresh-3", 1.1, 1.0),
    *_latency("end-to-end"),
    *_latency("end-to-end-5000"),
    Goal("lag", "producer_p99.9_growth", "<=", 1.2, False),
    Goal("lag", "tail_p99_growth", "<=", 1.2, False),
    Goal("lag", "tail_p99.9_growth", "<=", 1.5, False),
    # 0 MB as the table prints it: an index entry may be read, records may not.
    Goal("lag", "newest_read_mb", "<=", 0.5, False),
    Goal("lag", "old_mb_per_s", ">=", 1.0, True),
    *(
        goal
        for case in ("just-produced-1", "just-produced-3", "started-300mb", "started-1000mb")
        for goal in (
            Goal(case, "mb_per_s", ">=", 1.3, True),
            Goal(case, "cpu_s_per_gb", "<=", 1.0, True),
            Goal(case, "read_mb", "<=", 0.5, False),
            Goal(case, "again_mb_per_s", ">=", 1.3, True),
            Goal(case, "again_read_mb", "<=", 0.5, False),
        )
    ),
    Goal("restarted-2gb", "mb_per_s", ">=", 1.0, True),
    Goal("restarted-2gb", "read_mb", "<=", 0.5, False),
    *(
        goal
        for case in ("old-1", "old-3")
        for goal in (
            Goal(case, "mb_per_s", ">=", 1.1, True),
            Goal(case, "of_device", ">=", 0.85, False),
            Goal(case, "again_mb_per_s", ">=", 1.2, True),
        )
    ),
    # No growth: the interval holds 1, or lies below.
    Goal("memory-fresh", "fresh_per_warm", ">=", 0.7, False),
    Goal("memory-held", "read_disk_mb", "<=", 0.5, False),
    Goal("memory-held", "populated_per_held", "<=", 1.15, False),
    Goal("memory-neighbour", "neighbour_growth", "<=", 1.2, False),
    Goal("memory-neighbour", "producer_p99.9_ms", "<=", 5.0, False),
    Goal("hanging-disk", "p99_growth_low", "<=", 1.0, False),
    Goal("partitions10000", "of_six", ">=", 0.9, False),
    Goal("partitions10000", "startup_s", "<=", 3.0, False),
    Goal("partitions10000", "own_kb_per_partition", "<=", 10.0, False),
    Goal("recovery", "metadata_s", "<=", 1.0, False),
    Goal("recovery", "produced_s", "<=", 1.0, False),
    Goal("recovery", "led_s", "<=", 1.0, False),
    *_produce("cluster-16k-1", 4, 1 / 7),
    *_produce("cluster-16k-3", 4, 1 / 7),
    *_produce("cluster-128k-1", 2.5, 1 / 5),
    Goal("cluster-tail", "p99_ms", "<=", 0.2, True),
    Goal("cluster-failover", "led_s", "<=", 1.0, False),
    Goal("cluster-failover", "in_sync_s", "<=", 3.0, False),
    Goal("cluster-failover", "moved_s", "<=", 0.3, False),
    Goal("cluster-failover", "gone_s", "<=", 1.0, False),
    Goal("cluster-silence", "led_s", "<=", 1.0, False),
    Goal("cluster-silence", "controller_led_s", "<=", 1.0, False),
    Goal("cluster-controller", "led_s", "<=", 1.0, False),
    Goal("dev-start", "startup_s", "<=", 4.0, False),
    Goal("java", "records_per_s", ">=", 1.3, True),
    Goal("java", "cpu_s", "<=", 1 / 6, True),
    Goal("heartbeats", "requests_per_cpu_s", ">=", 1.0, True),
    Goal("commits1", "requests_per_cpu_s", ">=", 1.0, True),
    Goal("commits6", "requests_per_cpu_s", ">=", 1.0, True),
    *_produce("transactions-100ms", 4, 1 / 4),
    *_produce("transactions-10", 4, 1 / 4),
    Goal("transactions-100ms", "of_idempotent", ">=", 0.9, False),
    Goal("transactional-1000", "p99_ms", "<=", 1 / 3, True),
    Goal("read-committed", "of_uncommitted", ">=", 1.0, False),
    Goal("coordinator", "all_s", "<=", 2.0, False),
    *(
        goal
        for case in ("compaction-100", "compaction-1000")
        for goal in (
            Goal(case, "mb_per_cpu_s", ">=", 3.0, True),
            Goal(case, "producer_p99.9_growth", "<=", 1.3, False),
        )
    ),
    Goal("old-client-fetch", "mb_per_cpu_s", ">=", 2.0, True),
    Goal("old-client-produce", "mb_per_cpu_s", ">=", 2.0, True),
    Goal("mirror", "of_mirrormaker", ">=", 3.0, False),
    Goal("settle", "settle_s", "<=", 3.0, False),
    Goal("settle", "delay_ms", "<=", 50.0, False),
    Goal("idle", "own_rss_mb", "<=", 60.0, False),
    Goal("idle", "cpu_percent", "<=", 0.3, False),
    Goal("start-up", "startup_s", "<=", 0.5, False),
    Goal("spark-read", "of_stock", ">=", 2.0, False),
    Goal("spark-read-json", "of_stock", ">=", 4.0, False),
    Goal("spark-write", "of_stock", ">=", 3.0, False),
    Goal("spark-write-json", "of_stock", ">=", 3.0, False),
    Goal("spark-stream", "of_stock", ">=", 2.0, False),
    Goal("spark-follow", "of_stock", "<=", 0.5, False),
)
