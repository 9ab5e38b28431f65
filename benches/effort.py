"""The amount of work, the kinds of measurement, and the figures."""

from collections.abc import Callable
from dataclasses import dataclass

from benches.brokers import Broker
from benches.stage import Stage

# Figures of a row; a case fills in its own.
METRICS = (
    "mb_per_s",
    "records_per_s",
    "requests_per_s",
    "p50_ms",
    "p99_ms",
    "p99.9_ms",
    "max_ms",
    "cpu_s_per_gb",
    "cpu_s",
    "cpu_percent",
    "cores_busy_percent",
    "rss_mb",
    "own_rss_mb",
    "shared_mb",
    "threads",
    "startup_s",
    "requests_per_cpu_s",
    "settle_s",
    "settle_max_s",
    "delay_ms",
    # producer and consumer together
    "consumer_mb_per_s",
    "consumed_percent",
    # the lag story: quiet, then while another consumer reads old data
    "producer_p99_ms",
    "producer_p99.9_ms",
    "producer_lag_p99_ms",
    "producer_lag_p99.9_ms",
    "producer_p99_growth",
    "producer_p99.9_growth",
    "tail_p99_ms",
    "tail_lag_p99_ms",
    "tail_p99_growth",
    "tail_p99.9_ms",
    "tail_lag_p99.9_ms",
    "tail_p99.9_growth",
    "old_mb_per_s",
    "newest_read_mb",
    "newest_device_read_mb",
    "newest_mb_per_s",
    # a hanging disk: without, then with one
    "quiet_p99_ms",
    "frozen_p99_ms",
    "p99_growth",
    "p99_growth_low",
    "p99_growth_high",
    # many partitions, recovery
    "partitions",
    "of_six",
    "of_six_again",
    "create_s",
    "own_kb_per_partition",
    "metadata_s",
    "produced_s",
    "led_s",
    "read_s",
    "controller_led_s",
    "in_sync_s",
    "moved_s",
    "gone_s",
    "log_gb",
    # what memory holds
    "warm_mb_per_s",
    "fresh_per_warm",
    "read_disk_mb",
    "populated_per_held",
    "neighbour_s",
    "neighbour_growth",
    "neighbour_slowest_s",
    "cached_gb",
    "cached_after_gb",
    "phases",
    # reading twice, and the disk's own speed
    "read_mb",
    "again_mb_per_s",
    "again_cpu_s_per_gb",
    "again_read_mb",
    "device_mb_per_s",
    "of_device",
    "client_cpu_s_per_gb",
    # transactions
    "commits_per_s",
    "commits_per_cpu_s",
    "idempotent_mb_per_s",
    "of_idempotent",
    "uncommitted_mb_per_s",
    "of_uncommitted",
    # a coordinator that was killed
    "first_s",
    "all_s",
    "commits_millions",
    "offsets_per_s",
    # compaction, old clients
    "mb_per_cpu_s",
    "left_percent",
    "quiet_p99.9_ms",
    "beside_p99.9_ms",
    # a scan, and a stock consumer
    "rows_per_s",
    "rows_per_client_cpu_s",
    "client_rss_mb",
    "consumed_rows_per_s",
    "of_consumer",
    # a mirror, and MirrorMaker 2
    "mirrormaker_mb_per_cpu_s",
    "mirrormaker_mb_per_s",
    "mirrormaker_rss_mb",
    "of_mirrormaker",
    # jobs of Spark
    "stock_rows_per_s",
    "floor_rows_per_s",
    "of_stock",
    "stock_p99_ms",
    "job_cpu_s",
    "stock_job_cpu_s",
    "bytes",
    "seconds",
)
Row = dict[str, float]


@dataclass(frozen=True)
class Effort:
    """``quick`` is for a look, ``full`` for figures to quote."""

    pairs: int
    starts: int
    fill_bytes: int
    warm_seconds: float
    warm_bytes: int
    measure_seconds: float
    measure_bytes: int
    fetch_bytes: int
    idle_seconds: float
    fresh_rounds: int
    """Rounds of produce and read; a third as many before them are not measured."""
    java_records: int
    phases: int
    hang_pairs: int
    """Alternations of quiet and hanging."""
    old_bytes: int
    """What the lagging consumer reads in each phase."""
    newest_bytes: int
    """How far the other consumer is behind."""
    hang_seconds: float
    recovery_bytes: int
    recovery_partitions: int
    recovery_load_seconds: float
    """Seconds of load before the kill."""
    many_partitions: int
    crowd_bytes: int
    """Produced twice to these partitions."""
    memory_bytes: int
    """All of this must fit into memory."""
    transactions_bytes: int
    """Of which a part is aborted, and all is read."""
    commits: int
    """Offsets that a coordinator has behind it."""
    spark_rows: int
    """Of records of 100 bytes."""
    compaction_bytes: int
    compaction_quiet_seconds: float
    """Of the producer before it is disturbed."""
    mirror_bytes: int
    """Copied by each mirror while it is measured."""


QUICK = Effort(
    pairs=1,
    starts=1,
    fill_bytes=2_000_000_000,
    warm_seconds=1,
    warm_bytes=500_000_000,
    measure_seconds=3,
    measure_bytes=1_200_000_000,
    fetch_bytes=8_000_000_000,
    idle_seconds=3,
    fresh_rounds=2,
    java_records=1_000_000,
    phases=1,
    hang_pairs=1,
    old_bytes=1_500_000_000,
    newest_bytes=200_000_000,
    hang_seconds=1.5,
    recovery_bytes=800_000_000,
    recovery_partitions=100,
    recovery_load_seconds=1,
    many_partitions=1_000,
    crowd_bytes=1_200_000_000,
    memory_bytes=2_000_000_000,
    transactions_bytes=100_000_000,
    commits=200_000,
    spark_rows=400_000,
    compaction_bytes=1_000_000_000,
    compaction_quiet_seconds=3,
    mirror_bytes=300_000_000,
)
FULL = Effort(
    pairs=3,
    starts=5,
    fill_bytes=4_000_000_000,
    warm_seconds=5,
    warm_bytes=1_000_000_000,
    measure_seconds=20,
    measure_bytes=3_000_000_000,
    fetch_bytes=40_000_000_000,
    idle_seconds=30,
    fresh_rounds=9,
    java_records=8_000_000,
    phases=10,
    hang_pairs=10,
    old_bytes=8_000_000_000,
    newest_bytes=1_000_000_000,
    hang_seconds=5,
    recovery_bytes=10_000_000_000,
    recovery_partitions=1_000,
    recovery_load_seconds=3,
    many_partitions=10_000,
    crowd_bytes=12_000_000_000,
    memory_bytes=8_000_000_000,
    transactions_bytes=600_000_000,
    commits=10_000_000,
    spark_rows=13_600_000,
    compaction_bytes=10_000_000_000,
    compaction_quiet_seconds=30,
    mirror_bytes=2_000_000_000,
)

_SHOWN = (
    "mb_per_s",
    "records_per_s",
    "cpu_s_per_gb",
    "p50_ms",
    "p99_ms",
    "p99.9_ms",
    "own_rss_mb",
)


@dataclass(frozen=True)
class Case:
    """A named measurement of a running broker whose memory is warm."""

    name: str
    title: str
    measure: Callable[[Broker, Effort], Row]
    quick: bool = False
    floor: bool = False
    shown: tuple[str, ...] = _SHOWN
    only_ours: bool = False
    """What Kafka 3.9 cannot do."""


@dataclass(frozen=True)
class Scenario:
    """A named measurement that sets up, kills or crowds a broker of its own."""

    name: str
    title: str
    measure: Callable[[Stage, Effort], Row]
    quick: bool
    shown: tuple[str, ...]
    disk_bytes: Callable[[Effort], int]
    """The most that it has on disk."""
    floor: bool = False
