"""What questions cost: what they share, when they wait, and what they leave out."""

import os
import re
import resource
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from pyrklog.base.client_places import CLIENT_SHARE, NoPlaceError
from pyrklog.config.load import load_config
from pyrklog.config.topic import TopicDefaults
from pyrklog.lag.numbers import LagNumbers
from pyrklog.observability import observer as module
from pyrklog.observability import samples as samples_module
from pyrklog.observability.health_watch import HealthWatch
from pyrklog.observability.observer import (
    HEALTHS_WAITING_MAX,
    REST,
    SERIES_A_TOPIC,
    SERIES_AN_OFFSET,
    BrokerObserver,
    DetailUnknownError,
    memory_file,
    resident_bytes,
)
from pyrklog.observability.samples import DETAIL_SERIES_MAX
from pyrklog.plane.values import PartitionImage, ReplicaOffsets
from pyrklog.protocol.lag import PartitionLag
from tests.support.latencies import histogram, times

TABLE = [((topic, number), number) for topic in ("a", "b", "c") for number in range(5)]


class FakePlane:
    def __init__(self) -> None:
        self.asked = 0
        self.hosted = set(range(99))

    def statistics(self) -> dict[str, int]:
        self.asked += 1
        return {"requests.Fetch": 1}

    def pasts(self) -> list[None]:
        return [None]

    def times(self) -> list[tuple[str, Sequence[int]]]:
        return list(times({"request.Produce.served": histogram(10**6)}).items())

    def replica_offsets(self, partitions: list[tuple[str, int]]) -> list[ReplicaOffsets | None]:
        return [
            ReplicaOffsets(number, number - 1, 0, 100) if number in self.hosted else None
            for _, number in partitions
        ]

    def served_bytes(self, _topic: str) -> tuple[int, int]:
        return 7, 8


class FakeImage:
    """Topics ``t0``, ``t1`` ... of two partitions, the second one not in sync."""

    def __init__(self, topics: int) -> None:
        found = {
            0: PartitionImage(0, 1, 0, (1, 2), (1, 2), ()),
            1: PartitionImage(1, 1, 0, (1, 2), (1,), ()),
        }
        self.topics = {f"t{n}": SimpleNamespace(partitions=found) for n in range(topics)}
        self.version = 1
        self.controller_id = 1
        self.brokers: list[Any] = []
        self.asked: list[str] = []

    def overrides(self, topic: str) -> dict[str, str]:
        self.asked.append(topic)
        return {"min.insync.replicas": "2", "retention.ms": "1"} if topic == "t0" else {}


class FakeLag:
    def numbers(self) -> LagNumbers:
        return LagNumbers(worst=[("g", 41_000)], histories=7)

    async def rows(
        self, group: str, rows_max: int, topic: str | None
    ) -> tuple[list[PartitionLag], int]:
        rows = [
            PartitionLag(name, number, at, lag=1, lag_ms=1000, lost=0)
            for (name, number), at in TABLE
            if topic in (None, name)
        ]
        return rows[:rows_max], len(rows[rows_max:])


class Observed:
    def __init__(self, topics: int = 3) -> None:
        self.plane = FakePlane()
        self.image = FakeImage(topics)
        self.lag: FakeLag | None = FakeLag()
        self.adding: dict[tuple[str, int], tuple[int, ...]] = {}
        self.partial: dict[tuple[str, int], tuple[int, ...]] = {}
        self.is_told = True
        self.adding_changes = 0
        group = SimpleNamespace(offsets=TABLE, members={"m": 1})
        groups = SimpleNamespace(groups={"g": SimpleNamespace(group=group)})
        metadata = SimpleNamespace(
            node_id=1, image=self.image, defaults=TopicDefaults(load_config()), config=load_config()
        )
        self.metadata = metadata
        sources: Any = SimpleNamespace(
            cluster_id="c",
            metadata=metadata,
            plane=self.plane,
            store=SimpleNamespace(is_reachable=True),
            log_dirs=["/d"],
            stage=lambda: "serving",
            failed_log_dirs=list,
            groups=lambda: groups,
            lag=lambda: self.lag,
            started_at=0.0,
            adding=lambda key: self.adding.get(key, ()),
            is_reassigned=lambda key: key in self.adding,
            partial=lambda key: self.partial.get(key, ()),
            adding_changes=lambda: self.adding_changes,
            is_told=lambda: self.is_told,
            store_clock=lambda: None,
            isr_changes=lambda: (5, 7),
            unclean_elections=lambda: 3,
        )
        self.observer = BrokerObserver(sources, HealthWatch(sources))

    async def scraped(self) -> dict[str, float]:
        """Of metrics without labels."""
        found = await self.observer.samples()
        return {one.metric.name: one.value for one in found if not one.labels}

    async def detail(self, topic: str | None, group: str | None) -> str:
        return (await self.observer.detail(topic, group, "")).body.decode()


def work_takes_a_second(monkeypatch: pytest.MonkeyPatch, *, own: bool) -> None:
    """Each piece of work on the broker's own thread, or each on the other one."""
    clock, broker = iter(range(1000)), threading.get_ident()

    def thread_time() -> float:
        return float(next(clock)) if (threading.get_ident() == broker) is own else 0.0

    monkeypatch.setattr(time, "thread_time", thread_time)


async def test_what_comes_together_shares_the_statistics(
    mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REST", 0)
    one = Observed()
    for _ in range(3):
        await one.observer.samples()
        assert one.observer.ready().status == 200
    assert one.plane.asked == 1
    mock_clock.jump(1)
    await one.observer.samples()
    assert one.plane.asked == 2


async def test_partitions_are_counted_anew_after_a_change_only(
    mock_clock: trio.testing.MockClock,
) -> None:
    one = Observed(topics=2500)
    under = "kafka_server_replicamanager_underreplicatedpartitions"
    found = await one.scraped()
    assert found[under] == found["kafka_server_replicamanager_leadercount"] / 2 == 2500
    assert found["kafka_server_replicamanager_underminisrpartitioncount"] == 1
    one.image.asked.clear()
    one.image.topics.popitem()
    mock_clock.jump(10)
    assert (await one.scraped())[under] == 2500
    assert one.image.asked == []
    one.image.version += 1
    mock_clock.jump(10)
    assert (await one.scraped())[under] == 2499


async def test_what_a_reassignment_adds_is_counted_without_a_change_of_metadata(
    mock_clock: trio.testing.MockClock,
) -> None:
    one = Observed()
    under = "kafka_server_replicamanager_underreplicatedpartitions"
    assert (await one.scraped())[under] == 3
    one.adding["t0", 1] = (2,)
    one.adding_changes += 1
    mock_clock.jump(10)
    found = await one.scraped()
    assert (found[under], found["kafka_server_replicamanager_reassigningpartitions"]) == (2, 1)


async def test_what_this_broker_has_done_as_leader_and_controller_is_counted() -> None:
    found = await Observed().scraped()
    assert found["kafka_server_replicamanager_isrexpands_total"] == 5
    assert found["kafka_server_replicamanager_isrshrinks_total"] == 7
    assert found["kafka_controller_controllerstats_uncleanleaderelections_total"] == 3


async def test_partial_replicas_are_not_counted_for_the_least_isr(
    mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REST", 0)
    one = Observed()
    below = "kafka_server_replicamanager_underminisrpartitioncount"

    async def kinds() -> list[str]:
        return [reason["kind"] for reason in (await one.observer.cluster()).body["reasons"]]

    assert (await one.scraped())[below] == 1
    assert "below_min_isr" in await kinds()
    one.partial["t0", 1] = (2,)
    one.adding_changes += 1
    mock_clock.jump(10)
    assert (await one.scraped())[below] == 0
    assert "below_min_isr" not in await kinds()


async def test_a_broker_that_was_not_told_since_it_registered_takes_none_for_safe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "REST", 0)
    one = Observed(topics=0)
    one.image.brokers = [SimpleNamespace(id=n, endpoints=[], rack=None) for n in (1, 2)]
    for is_told, kinds in ((False, ["metadata_old"]), (True, [])):
        one.is_told = is_told
        for answer in (
            await one.observer.restart_safe(),
            await one.observer.restart_safe(2),
            await one.observer.cluster(),
        ):
            assert [reason["kind"] for reason in answer.body["reasons"]] == kinds
            assert answer.status == (200 if is_told else 503)
        examined = await one.observer.examined(2, "::1")
        assert examined.restart is not None
        assert examined.restart.is_safe is is_told


async def test_the_other_thread_rests_after_its_work(
    mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Observed()
    work_takes_a_second(monkeypatch, own=False)
    answered = 0

    async def ask() -> None:
        nonlocal answered
        await one.observer.cluster()
        answered += 1

    async with trio.open_nursery() as nursery:
        await ask()
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(REST - 0.1)
        await trio.testing.wait_all_tasks_blocked()
        assert answered == 1
        assert one.observer.ready().status == 200
        mock_clock.jump(0.2)
        with trio.fail_after(30):
            while answered == 1:
                await trio.lowlevel.checkpoint()


async def test_reading_on_the_own_thread_earns_a_rest_too(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Observed()
    work_takes_a_second(monkeypatch, own=True)
    asked = (
        one.observer.cluster,
        one.observer.samples,
        lambda: one.detail("t0", None),
        lambda: one.detail(None, "g"),
        lambda: one.observer.latencies(""),
    )
    for ask in asked:
        await ask()
        began = trio.current_time()
        with trio.fail_after(1000):
            async with one.observer._turn.taken():
                pass
        assert trio.current_time() - began >= REST, ask


async def test_the_partitions_of_a_large_topic_are_walked_on_the_other_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Observed()
    partitions = {n: PartitionImage(n, 1, 0, (1,), (1,), ()) for n in reversed(range(3000))}
    one.image.topics["b"] = SimpleNamespace(partitions=partitions)
    threads: set[int] = set()
    for name in ("told_partitions", "uncommitted"):
        found = getattr(samples_module, name)

        def told(*arguments: Any, found: Any = found) -> Any:
            threads.add(threading.get_ident())
            return found(*arguments)

        monkeypatch.setattr(samples_module, name, told)
    lines = (await one.detail("b", "g")).splitlines()
    assert threads
    assert threading.get_ident() not in threads
    shown = [line for line in lines if line.startswith("kafka_topic_partition_leader{")]
    share = samples_module.share(("b", "g"), DETAIL_SERIES_MAX)
    assert len(shown) == (share - SERIES_A_TOPIC) // 9
    assert f'partition="{len(shown) - 1}"' in shown[-1]
    uncommitted = (share - 1 - 5 * SERIES_AN_OFFSET) // 2
    left_out = 9 * (3000 - len(shown)) + 2 * (3000 - 5 - uncommitted)
    assert lines[-1] == f"pyrklog_metrics_left_out_series {float(left_out)}"


async def test_only_a_topics_offsets_are_read_with_both() -> None:
    one = Observed()
    one.image.topics["b"] = one.image.topics["t0"]
    told = await one.detail("b", "g")
    offsets = [line for line in told.splitlines() if "group_current_offset{" in line]
    assert len(offsets) == 5
    assert all('topic="b"' in line for line in offsets)
    assert (await one.detail(None, "g")).count("group_current_offset{") == len(TABLE)


async def test_details_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DETAIL_SERIES_MAX", 10)
    told = (await Observed().detail(None, "g")).splitlines()
    series = [line for line in told if not line.startswith("#")]
    assert len(series) == 10
    assert series[-1] == "pyrklog_metrics_left_out_series 52.0"


async def test_before_lag_is_known_offsets_are_left_out() -> None:
    one = Observed()
    one.lag = None
    told = (await one.detail(None, "g")).splitlines()
    assert "group_current_offset{" not in told
    assert told[-1] == f"pyrklog_metrics_left_out_series {4.0 * len(TABLE)}"


async def test_histograms_are_scraped_and_all_of_them_apart() -> None:
    one = Observed()
    found = await one.observer.samples()
    values = {(sample.metric.name, *sample.labels): sample.value for sample in found}
    assert values["pyrklog_request_seconds_count", "Produce"] == 1
    assert values["pyrklog_request_seconds_bucket", "Produce", "0.0005"] == 0
    assert values["pyrklog_request_seconds_bucket", "Produce", "0.001"] == 1
    told = (await one.observer.latencies("")).body.decode()
    assert 'phase_seconds_count{phase="served",request="Produce"} 1.0' in told
    assert 'phase_seconds_count{phase="total",request="JoinGroup"} 0.0' in told
    assert told.endswith("pyrklog_metrics_left_out_series 0.0\n")


async def test_lag_is_scraped() -> None:
    found = await Observed().observer.samples()
    values = {(one.metric.name, *one.labels): one.value for one in found}
    assert values["pyrklog_group_lag_seconds", "g"] == 41
    assert values["pyrklog_lag_histories",] == 7


async def test_a_large_topic_is_cut_and_leaves_a_group_its_half(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Observed()
    partitions = {n: PartitionImage(n, 1, 0, (1, 2), (1, 2), ()) for n in range(100)}
    partitions[99] = PartitionImage(99, 2, 0, (2, 3), (2, 3), ())
    one.image.topics["b"] = SimpleNamespace(partitions=partitions)

    async def counted(group: str | None) -> tuple[int, int, int, float]:
        """Series of partitions, log ends among them, committed offsets, and what is left out."""
        lines = (await one.detail("b", group)).splitlines()
        found = [line for line in lines if not line.startswith("#")]
        assert len(found) <= bound
        # Without partitions in which the group has committed nothing.
        found = [line for line in found if not ("group" in line and line.endswith(" -1.0"))]
        left_out = float(found[-1].removeprefix("pyrklog_metrics_left_out_series "))
        committed = sum("group_current_offset{" in line for line in found)
        ends = sum("log_end_offset{" in line for line in found)
        partitions = sum('partition="' in line for line in found) - 4 * committed
        return partitions, ends, committed, left_out

    bound = DETAIL_SERIES_MAX
    # The last one is another broker's: it has no series here.
    assert await counted("g") == (891, 99, 5, 0)
    bound = 63
    monkeypatch.setattr(module, "DETAIL_SERIES_MAX", bound)
    assert await counted(None) == (54, 6, 0, 93 * 9)
    assert await counted("g") == (27, 3, 5, 96 * 9 + 90 * 2)
    bound = 9
    monkeypatch.setattr(module, "DETAIL_SERIES_MAX", bound)
    assert await counted("g") == (0, 0, 0, 99 * 9 + 5 * 4)


async def test_each_partition_is_told_by_one_broker() -> None:
    """Of a scrape of all brokers: the leader, else a live replica, else the controller."""
    one = Observed()
    one.image.brokers = [SimpleNamespace(id=1), SimpleNamespace(id=2)]
    one.image.controller_id = 2
    partitions = {
        0: PartitionImage(0, 1, 0, (1, 2), (1, 2), ()),
        1: PartitionImage(1, 2, 0, (1, 2), (1, 2), ()),
        2: PartitionImage(2, -1, 0, (3, 1), (3,), ()),
        3: PartitionImage(3, -1, 0, (3,), (3,), ()),
    }
    one.image.topics["b"] = SimpleNamespace(partitions=partitions)

    async def told(broker: int) -> dict[str, list[str]]:
        one.metadata.node_id = broker
        one.plane.hosted = {n for n in partitions if broker in partitions[n].replicas}
        found: dict[str, list[str]] = {}
        for line in (await one.detail("b", None)).splitlines():
            name, _, labels = line.partition("{")
            found.setdefault(name, []).extend(re.findall(r'partition="(.)"', labels))
        return found

    first, second = await told(1), await told(2)
    assert first["kafka_topic_partition_leader"] == ["0", "2"]
    assert second["kafka_topic_partition_leader"] == ["1", "3"]
    for name in ("current", "oldest"):
        key = f"kafka_topic_partition_{name}_offset"
        assert (first[key], second[key]) == (["0"], ["1"])
    own = "pyrklog_partition_log_end_offset"
    assert (first[own], second[own]) == (["0", "1", "2"], ["0", "1"])
    assert ("kafka_topic_partitions" in first, "kafka_topic_partitions" in second) == (False, True)


async def test_a_partition_without_a_commit_is_told_where_its_topic_is_consumed() -> None:
    one = Observed()
    partitions = {n: PartitionImage(n, 1, 0, (1,), (1,), ()) for n in range(7)}
    one.image.topics["b"] = SimpleNamespace(partitions=partitions)
    told = [line for line in (await one.detail(None, "g")).splitlines() if line.endswith(" -1.0")]
    labels = [f'consumergroup="g",partition="{n}",topic="b"' for n in (5, 6)]
    assert told == [
        f"kafka_consumergroup_{name}{{{one}}} -1.0"
        for name in ("current_offset", "lag")
        for one in labels
    ]


async def test_unknown_names_are_told() -> None:
    with pytest.raises(DetailUnknownError, match="no topic x"):
        await Observed().detail("x", None)
    with pytest.raises(DetailUnknownError, match="no group x"):
        await Observed().detail("t0", "x")


async def test_kafkas_clients_delay_no_probe_and_no_scrape(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has the rest of its own kind before it."""
    one = Observed()
    work_takes_a_second(monkeypatch, own=False)
    began = trio.current_time()
    await one.observer.examined(None, "10.0.0.1")
    assert (await one.observer.cluster()).status == 503
    assert trio.current_time() == began
    await one.observer.samples()
    rested = trio.current_time()
    assert rested == pytest.approx(began + REST)
    await one.observer.examined(2, "10.0.0.1")
    assert trio.current_time() == rested


async def test_questions_of_kafkas_clients_are_bounded_by_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Observed()
    refused: list[str] = []
    answered: list[str] = []

    async def ask(address: str, restarted: int | None) -> None:
        try:
            await one.observer.examined(restarted, address)
        except NoPlaceError:
            refused.append(address)
        else:
            answered.append(address)

    async with trio.open_nursery() as nursery:
        async with one.observer._turn_of_clients.taken():
            for number in range(HEALTHS_WAITING_MAX // CLIENT_SHARE + 3):
                nursery.start_soon(ask, "10.0.0.1", number)
            nursery.start_soon(ask, "10.0.0.2", None)
            await trio.testing.wait_all_tasks_blocked()
            assert refused == ["10.0.0.1"] * 3
            assert (await one.observer.cluster()).status == 503
        monkeypatch.setattr(module, "REST", 0)
    assert len(answered) == HEALTHS_WAITING_MAX // CLIENT_SHARE + 1
    assert "10.0.0.2" in answered


def test_memory_is_read_without_a_descriptor_to_spare() -> None:
    memory_file()  # as at the start
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.open("/proc/self/statm", os.O_RDONLY)
        found = resident_bytes()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert found > 1 << 20
