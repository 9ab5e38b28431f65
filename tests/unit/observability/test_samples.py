"""What a scrape has of what was read: labels, units, bounds."""

from dataclasses import replace

from pyrklog import _core
from pyrklog.lag.group_lags import WORST_MAX
from pyrklog.observability.health import counted
from pyrklog.observability.latency_samples import of_times
from pyrklog.observability.metric_table import LOG_DIR, PLAIN
from pyrklog.observability.samples import (
    ALL_LOG_DIRS,
    LOG_DIRS_APART_MAX,
    SERIES_MAX,
    GroupReadings,
    PartitionReadings,
    Readings,
    Sample,
    bounded,
    log_dir_labels,
    of_broker,
    of_group,
    of_topic,
    teller,
)
from pyrklog.observability.tally import Tally, count
from pyrklog.plane.values import PartitionImage, ReplicaOffsets
from pyrklog.protocol.lag import PartitionLag
from tests.support.latencies import histogram, times

READINGS = Readings(2, 1, 1, 3, 1.5, 4096, 1.7e9)
NOTHING = Tally(*[0] * 14)
FINDINGS = {"disk_filling": 2, "clock_skew": 0}
BROKERS = (1, 2, 3)
PRIVATE_KEYS = 20_000
"""APIs of this project's own tools have higher ones, and are not counted."""


def partition(
    index: int,
    leader: int = 1,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] = (1, 2, 3),
    offline: tuple[int, ...] = (),
) -> PartitionImage:
    return PartitionImage(index, leader, 0, replicas, isr, offline)


def values(samples: list[Sample], name: str) -> dict[tuple[str, ...], float]:
    return {one.labels: one.value for one in samples if one.metric.name == name}


def of(statistics: dict[str, int], log_dirs: int = 1) -> list[Sample]:
    names = [f"/data/{number}" for number in range(log_dirs)]
    return of_broker(statistics, NOTHING, READINGS, names, findings=FINDINGS)


def queues(log_dirs: int) -> dict[str, int]:
    kinds = [*(f"fetch-{number}" for number in range(4)), "ahead", "lookup", "close"]
    kinds += ["expand", "internal", "digest"]
    of_queue = ("waiting", "running", "oldest_wait_ms", "stalled_ms", "rejected")
    of_dir = ("produce_muted_waiting", "unwritten_bytes", "log_dir_read_only")
    found = {
        f"reader_queue_{name}.{number}.{kind}": number + 1
        for number in range(log_dirs)
        for kind in kinds
        for name in of_queue
    }
    found |= {f"{name}.{number}": 10 for number in range(log_dirs) for name in of_dir}
    return found


def test_statistics_come_in_base_units_with_their_labels() -> None:
    found = of(
        {
            "network_threads_worked_ns": 2_500_000_000,
            "fetched_bytes.cached": 7,
            "fetched_bytes.window": 8,
            "requests.Produce": 9,
            "unwritten_bytes.0": 10,
            "reader_queue_stalled_ms.0.ahead": 1500,
        }
    )
    assert values(found, "pyrklog_network_threads_busy_seconds_total") == {(): 2.5}
    assert values(found, "pyrklog_fetched_bytes_total") == {("cached",): 7, ("window",): 8}
    assert values(found, "kafka_network_requestmetrics_requests_total") == {("Produce",): 9}
    assert values(found, "pyrklog_log_dir_unwritten_bytes") == {("/data/0",): 10}
    assert values(found, "pyrklog_reader_queue_stalled_seconds") == {("/data/0", "ahead"): 1.5}
    assert values(found, "process_cpu_seconds_total") == {(): 1.5}
    expected = {("disk_filling",): 2, ("clock_skew",): 0}
    assert values(found, "pyrklog_health_findings") == expected


def test_queues_that_share_topics_by_hash_are_one_series() -> None:
    found = of(queues(1))
    assert values(found, "pyrklog_reader_queue_waiting")["/data/0", "fetch"] == 4
    assert values(found, "pyrklog_reader_queue_oldest_wait_seconds")["/data/0", "fetch"] == 0.001


def test_many_log_directories_are_one_series_with_the_longest_wait() -> None:
    found = of(queues(20), log_dirs=20)
    waiting = values(found, "pyrklog_reader_queue_waiting")
    assert waiting[ALL_LOG_DIRS, "ahead"] == sum(range(1, 21))
    assert {log_dir for log_dir, _ in waiting} == {ALL_LOG_DIRS}
    longest = values(found, "pyrklog_reader_queue_oldest_wait_seconds")
    assert longest[ALL_LOG_DIRS, "ahead"] == 0.02


def test_a_broker_that_has_everything_leaves_nothing_out() -> None:
    """The most log directories apart, all APIs, all findings, the most groups."""
    dirs = [f"/data/{number}" for number in range(LOG_DIRS_APART_MAX)]
    apis = [one.name for one in _core.api_table() if one.key < PRIVATE_KEYS]
    statistics = {
        **dict.fromkeys(PLAIN, 1),
        **queues(len(dirs)),
        **{f"{name}.{number}": 1 for number in range(len(dirs)) for name in LOG_DIR},
        **{f"requests.{name}": 1 for name in apis},
    }
    of_dirs = (f"{name}.{number}" for name in ("read", "write") for number in range(len(dirs)))
    found = of_broker(
        statistics,
        NOTHING,
        READINGS,
        dirs,
        [(f"g{number}", 1) for number in range(WORST_MAX)],
        counted([]),
        of_times(times(dict.fromkeys(of_dirs, histogram(1))), log_dir_labels(dirs)),
    )
    assert values(found, "pyrklog_metrics_left_out_series") == {(): 0}
    assert SERIES_MAX - 20 < len(found) < SERIES_MAX, "near the bound, or this tests nothing"


def test_what_exceeds_the_bound_is_counted() -> None:
    found = of({f"requests.Api{number}": 1 for number in range(1000)})
    assert len(found) == SERIES_MAX - 1
    (left_out,) = values(found, "pyrklog_metrics_left_out_series").values()
    assert left_out == 1000 + 29 + len(FINDINGS) - (SERIES_MAX - 2)
    assert bounded(found, SERIES_MAX)[-1].value == 0


def test_the_leader_counts_its_partitions_and_the_controller_all() -> None:
    topics = [
        ("a", [partition(0), partition(1, isr=(1,)), partition(2, leader=2, isr=(2,))]),
        ("b", [partition(0, leader=-1, isr=()), partition(1, isr=(1, 2), offline=(1,))]),
    ]
    limits = {"a": 2, "b": 2}
    as_leader = count(1, 2, BROKERS, topics, limits.__getitem__, imbalance_percent=10)
    assert as_leader.brokers is None
    assert as_leader.replicas == 5
    assert as_leader.leaders == 3
    assert as_leader.under_replicated == 2
    assert as_leader.under_min_isr == 1
    assert as_leader.at_min_isr == 1
    assert as_leader.offline_replicas == 1
    assert (as_leader.is_controller, as_leader.offline, as_leader.topics) == (0, 0, 0)
    as_controller = count(2, 2, BROKERS, topics, limits.__getitem__, imbalance_percent=10)
    assert as_controller.brokers == 3
    assert (as_controller.is_controller, as_controller.offline) == (1, 1)
    assert (as_controller.topics, as_controller.partitions) == (2, 5)
    # As by Kafka's controllers, one without a leader, too.
    assert as_controller.not_preferred == 2


def test_replicas_that_are_being_added_leave_a_partition_as_it_was() -> None:
    moving = [("a", [partition(0, isr=(1, 2)), partition(1, isr=(1,))])]
    adding = {("a", 0): (3,), ("a", 1): (3,)}.__getitem__
    found = count(1, 2, BROKERS, moving, lambda _: 2, adding, imbalance_percent=10)
    assert (found.under_replicated, found.under_min_isr) == (1, 1)


def test_a_partition_is_at_its_minimum_also_with_fewer_replicas_than_that() -> None:
    """As in Kafka: so is each partition with a single replica."""
    topics = [
        ("a", [partition(0), partition(1, isr=(1, 2)), partition(2, isr=(1,))]),
        ("b", [partition(0, replicas=(1,), isr=(1,)), partition(1, leader=2, isr=(2, 3))]),
    ]
    found = count(1, 2, BROKERS, topics, lambda _: 2, imbalance_percent=10)
    assert (found.at_min_isr, found.under_min_isr) == (2, 1)


def test_the_leader_counts_partitions_that_are_reassigned() -> None:
    topics = [("a", [partition(0), partition(1), partition(2, leader=2)])]
    moved = {("a", 0): True, ("a", 1): False, ("a", 2): True}.__getitem__
    found = count(1, 2, BROKERS, topics, lambda _: 2, is_reassigned=moved, imbalance_percent=10)
    assert found.reassigned == 1


def test_options_of_topics_led_elsewhere_are_not_looked_up() -> None:
    def never(_topic: str) -> int:
        raise AssertionError

    elsewhere = [("a", [partition(0, leader=2, isr=(2,))])]
    found = count(1, 1, BROKERS, elsewhere, never, imbalance_percent=10)
    assert found.under_min_isr == 0


def test_a_broker_is_uneven_above_the_percentage_that_its_controller_mends() -> None:
    def uneven(astray: int, brokers: tuple[int, ...] = BROKERS, controller_id: int = 1) -> int:
        whole = [("a", [partition(n, leader=2 if n < astray else 1) for n in range(20)])]
        return count(
            1, controller_id, brokers, whole, lambda _: 1, imbalance_percent=10
        ).uneven_brokers

    assert [uneven(0), uneven(2), uneven(3), uneven(20)] == [0, 0, 1, 1]
    assert uneven(20, brokers=(2, 3)) == 0, "one that is away gets nothing back"
    assert uneven(20, controller_id=2) == 0


def test_one_broker_tells_a_partition() -> None:
    assert teller(partition(0, leader=2), {1, 2, 3}, 1) == 2
    assert teller(partition(0, leader=-1), {2, 3}, 3) == 2
    assert teller(partition(0, leader=-1, replicas=(1, 2)), {3}, 3) == 3


def test_a_topic_and_a_group_in_detail() -> None:
    found = of_topic(
        "a",
        [
            PartitionReadings(partition(0, isr=(1,)), True, True, ReplicaOffsets(17, 16, 5, 900)),
            PartitionReadings(partition(1, leader=-1), False, True, None),
            PartitionReadings(partition(2, leader=2), False, False, ReplicaOffsets(7, 6, 4, 90)),
        ],
        3,
        (7, 8),
    )
    assert values(found, "kafka_topic_partitions") == {("a",): 3}
    assert values(found, "kafka_topic_partition_in_sync_replica") == {("a", "0"): 1, ("a", "1"): 3}
    under = values(found, "kafka_topic_partition_under_replicated_partition")
    assert under == {("a", "0"): 1, ("a", "1"): 0}
    preferred = values(found, "kafka_topic_partition_leader_is_preferred")
    assert preferred == {("a", "0"): 1, ("a", "1"): 0}
    ends = {("a", "0"): 17, ("a", "2"): 7}
    assert values(found, "pyrklog_partition_log_end_offset") == ends
    assert values(found, "kafka_topic_partition_current_offset") == {("a", "0"): 16}
    assert values(found, "kafka_topic_partition_oldest_offset") == {("a", "0"): 5}
    served = values(found, "pyrklog_topic_fetched_bytes_total")
    assert served == {("a", "cache"): 7, ("a", "files"): 8}
    assert values(found, "pyrklog_partition_bytes") == {("a", "0"): 900, ("a", "2"): 90}
    rows = [
        PartitionLag("a", 0, 15, 17, 2, 1500, lost=0),
        PartitionLag("a", 1, 9),
        PartitionLag("a", 2, 9, 4, 0, 0, lost=0, ahead=5),
    ]
    told = of_group(GroupReadings("g", 2, rows, [("a", 3)]))
    assert values(told, "kafka_consumergroup_members") == {("g",): 2}
    committed = {("g", "a", str(n)): offset for n, offset in enumerate((15, 9, 9, -1))}
    assert values(told, "kafka_consumergroup_current_offset") == committed
    lags = {("g", "a", "0"): 2, ("g", "a", "2"): -5, ("g", "a", "3"): -1}
    assert values(told, "kafka_consumergroup_lag") == lags
    seconds = {("g", "a", "0"): 1.5, ("g", "a", "2"): 0}
    assert values(told, "pyrklog_group_partition_lag_seconds") == seconds
    assert values(told, "pyrklog_group_lost_records") == {("g", "a", "0"): 0, ("g", "a", "2"): 0}


def test_the_groups_most_behind_are_told() -> None:
    readings = replace(READINGS, lag_histories=7)
    found = of_broker({}, NOTHING, readings, [], [("g", 41_500), ("h", 1)])
    assert values(found, "pyrklog_group_lag_seconds") == {("g",): 41.5, ("h",): 0.001}
    assert values(found, "pyrklog_lag_histories") == {(): 7}
