"""When a broker's disks, clocks, queues and cache are findings, and what is said of them."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from pyrklog.base.clock_reading import ClockReading
from pyrklog.observability.health_rules import span
from pyrklog.observability.health_signs import (
    BrokerSnapshot,
    Counted,
    Disk,
    DiskReading,
    OpenFiles,
    doubled_controllers,
    peer_clocks,
    seconds_until_full,
    signs,
    size,
    store_unreached,
)

GB = 10**9
WELL = BrokerSnapshot(1, {}, ["/a", "/b"])


def readings(*free_gb: float, every: float = 60.0, device: int = 1) -> list[DiskReading]:
    return [
        DiskReading(number * every, 100 * GB, int(free * GB), device)
        for number, free in enumerate(free_gb)
    ]


def told(broker: BrokerSnapshot) -> list[tuple[str, str, str]]:
    found = signs(broker)
    assert all(one.broker == 1 and one.fix for one in found)
    return [(one.kind, one.severity, one.what) for one in found]


def of_disk(*free_gb: float, every: float = 60.0) -> list[tuple[str, str, str]]:
    return told(replace(WELL, disks=[Disk("/a", readings(*free_gb, every=every))]))


def test_a_broker_that_is_well_has_no_findings() -> None:
    assert told(WELL) == []
    assert of_disk(*[50.0] * 60) == []


def test_the_time_until_a_volume_is_full_is_that_of_its_trend() -> None:
    falling = [50 - number / 10 for number in range(20)]  # 0.1 GB a minute, 48.1 left
    assert seconds_until_full(readings(*falling)) == pytest.approx(481 * 60)
    assert seconds_until_full(readings(*falling[:9])) is None, "too few readings"
    assert seconds_until_full(readings(*reversed(falling))) is None
    assert seconds_until_full(readings(*[50.0] * 20)) is None


def test_retention_that_frees_what_came_is_no_trend() -> None:
    teeth = [50 - number % 10 for number in range(60)]
    assert seconds_until_full(readings(*teeth)) is None


def test_readings_at_one_time_are_no_trend() -> None:
    assert seconds_until_full(readings(*range(50, 30, -1), every=0.0)) is None


def test_a_volume_that_fills_up_is_told_with_the_time() -> None:
    slow = of_disk(*[50 - number / 10 for number in range(20)])
    assert slow == [
        (
            "disk_filling",
            "warning",
            "broker 1: the volume of /a is full in 8 h if it goes on as now (48.1 GB free)",
        )
    ]
    (soon,) = of_disk(*[20 - number for number in range(11)])
    assert soon[1] == "degraded"
    assert "full in 10 min" in soon[2]
    assert of_disk(*[50 - number / 1000 for number in range(20)]) == [], "in more than a day"


def test_a_volume_that_is_nearly_full_is_told_without_a_trend() -> None:
    assert of_disk(10.0) == [
        ("disk_filling", "warning", "broker 1: the volume of /a is 90 % full (10.0 GB free)")
    ]
    assert of_disk(10.9) == []


def test_directories_of_one_volume_are_told_once() -> None:
    full = readings(5.0)
    disks = [Disk("/a", full), Disk("/b", full), Disk("/c", readings(4.0, device=2))]
    assert [what[2].split()[5] for what in told(replace(WELL, disks=disks))] == ["/a", "/c"]


def test_a_volume_that_does_not_answer_is_told_instead_of_its_space() -> None:
    disk = Disk("/a", readings(1.0), silent_seconds=45)
    assert told(replace(WELL, disks=[disk])) == [
        ("disk_hangs", "degraded", "broker 1: the volume of /a has not answered for 45 s")
    ]
    assert told(replace(WELL, disks=[Disk("/a", (), silent_seconds=29)])) == []


@pytest.mark.parametrize(
    ("zookeeper", "says"),
    [
        ((10_000, 10_700, 10_100), "0.6 s behind"),
        ((10_000, 9_300, 10_100), "0.7 s ahead of"),
        ((10_000, 10_600, 10_100), None),  # by half a second at least
        ((10_000, 9_500, 10_100), None),
        ((10_000, 15_000, 16_000), None),  # within the time that the question took
    ],
)
def test_only_a_certain_difference_from_zookeepers_clock_counts(
    zookeeper: tuple[int, int, int], says: str | None
) -> None:
    found = told(replace(WELL, store_clock=ClockReading(*zookeeper)))
    if says is None:
        assert found == []
        return
    ((kind, severity, what),) = found
    assert (kind, severity) == ("clock_skew", "warning")
    assert what.startswith(f"broker 1's clock is {says} ZooKeeper's: retention")


def test_brokers_clocks_are_compared_with_the_one_in_their_middle() -> None:
    clocks = {
        1: ClockReading(0, 5, 10),
        2: ClockReading(0, 2_005, 10),
        3: ClockReading(0, 105, 200),
    }
    (found,) = peer_clocks(clocks)
    assert found.broker == 2
    assert found.what.startswith("broker 2's clock is 2.0 s ahead of broker 1's")
    clocks[1] = ClockReading(0, -3_000, 10)
    assert [one.broker for one in peer_clocks(clocks)] == [1, 2]
    assert peer_clocks({1: ClockReading(0, 99_999, 1)}) == []
    assert peer_clocks({}) == []


@pytest.mark.parametrize(
    ("used", "severity"), [(799, None), (800, "warning"), (949, "warning"), (950, "degraded")]
)
def test_few_file_handles_are_told(used: int, severity: str | None) -> None:
    found = signs(replace(WELL, open_files=OpenFiles(used, 1000)))
    assert [one.severity for one in found] == ([] if severity is None else [severity])
    if found:
        assert found[0].what == f"broker 1 has {used} of 1,000 file handles in use"
        assert "LimitNOFILE" in (found[0].fix or "")


def test_two_controllers_are_one_too_many() -> None:
    assert doubled_controllers([2]) == doubled_controllers([]) == []
    (both,) = doubled_controllers([3, 1])
    assert (both.kind, both.severity) == ("controller_doubled", "error")
    assert both.what == "brokers 1 and 3 both take themselves for the controller"
    (three,) = doubled_controllers([3, 1, 2])
    assert three.what == "brokers 1 and 2 and 3 all take themselves for the controller"


def test_a_queue_that_stands_still_names_its_directory() -> None:
    statistics = {
        "reader_queue_stalled_ms.1.fetch-0": 12_000,
        "reader_queue_waiting.1.fetch-0": 31,
        "reader_queue_stalled_ms.0.digest": 5_000,
        "reader_queue_stalled_ms.0.lookup": 4_999,
    }
    assert told(replace(WELL, statistics=statistics)) == [
        (
            "reads_stuck",
            "degraded",
            "broker 1: reads in /a stand still for 5.0 s (queue digest, 0 wait)",
        ),
        (
            "reads_stuck",
            "degraded",
            "broker 1: reads of a part of its topics in /b stand still for 12 s (queue fetch-0, "
            "31 wait)",
        ),
    ]


def test_producers_that_wait_for_room_are_counted() -> None:
    statistics = {"produce_muted_oldest_wait_ms.7": 8_000, "produce_muted_waiting.7": 1}
    assert told(replace(WELL, statistics=statistics)) == [
        (
            "writes_stuck",
            "degraded",
            "broker 1: 1 producer waits for room in log directory 7, the first for 8.0 s",
        )
    ]


def test_a_small_cache_is_told_where_one_is_wanted() -> None:
    none = replace(WELL, statistics={"cache_limit_bytes": 0})
    assert told(none) == [
        ("cache_small", "info", "broker 1 has no block cache: appends wait for files")
    ]
    assert told(replace(none, wants_cache=False)) == []
    small = replace(WELL, statistics={"cache_limit_bytes": 32 * 2**20})
    assert "has 33.6 MB at most" in told(small)[0][2]


def test_a_cache_is_as_small_as_the_memory_that_it_lies_in() -> None:
    large = replace(WELL, statistics={"cache_limit_bytes": GB})
    assert told(replace(large, cache_volume_bytes=2 * GB)) == []
    assert told(replace(large, cache_volume_bytes=None)) == []
    found = told(replace(large, cache_volume_bytes=32 * 2**20))
    assert "has 33.6 MB at most" in found[0][2]
    assert told(replace(WELL, statistics={"cache_limit_bytes": 64 * 2**20})) == []


def counted(appended: int, cached: int, disk: int, seconds: float = 300) -> tuple[Counted, Counted]:
    before: Mapping[str, int] = {"cache_appended_bytes": 5, "fetched_bytes.cached": 7}
    now = {
        "cache_appended_bytes": 5 + appended,
        "fetched_bytes.cached": 7 + cached,
        "fetched_bytes.sendfile": disk // 2,
        "fetched_bytes.window": disk // 2,
    }
    return Counted(10.0, before), Counted(10.0 + seconds, now)


def test_a_cache_that_turns_over_before_consumers_come_is_told() -> None:
    broker = replace(WELL, statistics={"cache_limit_bytes": GB})
    busy = replace(broker, cache_counted=counted(30 * GB, 10 * GB, 30 * GB))
    assert told(busy) == [
        (
            "cache_thrashing",
            "warning",
            "broker 1's block cache (1.0 GB) holds 10 s of what is appended, and 75 % of what was "
            "sent in the last 5 min came from disks",
        )
    ]
    for well in (
        counted(5 * GB, 10 * GB, 30 * GB),  # it holds a minute
        counted(30 * GB, 30 * GB, 5 * GB),  # most came from memory
        counted(30 * GB, 0, 10_000_000),  # hardly anything was read
        counted(0, 0, 30 * GB),  # old data is read past the cache
        counted(30 * GB, 0, 0),
        counted(30 * GB, 10 * GB, 30 * GB, seconds=0.0)[::-1],
    ):
        assert told(replace(broker, cache_counted=well)) == []


@pytest.mark.parametrize(
    ("away", "says"),
    [(None, ""), (0.4, ""), (12.0, ", for 12 s now"), (600.0, ", for 10 min now")],
)
def test_the_absence_of_zookeeper_is_told_with_its_time(away: float | None, says: str) -> None:
    assert store_unreached(1, away).what == f"broker 1 does not reach ZooKeeper{says}"


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (0.84, "0.8 s"),
        (12, "12 s"),
        (119, "119 s"),
        (300, "5 min"),
        (7200, "2 h"),
        (1e6, "12 days"),
    ],
)
def test_spans_of_time(seconds: float, says: str) -> None:
    assert span(seconds) == says


@pytest.mark.parametrize(
    ("count", "says"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (412 * GB, "412 GB"), (1e15, "1000.0 TB")],
)
def test_sizes(count: float, says: str) -> None:
    assert size(count) == says
