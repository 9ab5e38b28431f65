"""What producers write, and that no log is read for it where brokers keep histories."""

import time
from collections.abc import Callable, Collection, Mapping
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from pyrklog.balance.model import Partition, PartitionKey
from pyrklog.cli import write_rates
from pyrklog.cli.connection import Connection
from pyrklog.cli.options import Settings
from pyrklog.cli.topic_measures import RATE_WINDOW_S
from pyrklog.cli.write_rates import Growth, Look, add_write_rates, growths_in, rates_of
from pyrklog.protocol.lag import (
    PartitionOffsetsRequest,
    PartitionOffsetsResponse,
    PartitionOffsetsResult,
    PartitionOffsetsTopicResult,
    PastEnd,
)
from pyrklog.protocol.list_offsets import EARLIEST, LATEST

A, B, C = ("t", 0), ("t", 1), ("u", 0)
ADDRESSES = {1: ("h", 1), 2: ("h", 2)}
CONNECTION = cast(Connection, SimpleNamespace(settings=Settings("h:1", timeout_s=1.0)))


class FakeLogs:
    """Records of a hundred bytes, until a minute ago; of a thousand since. Broker 1 is one of
    pyrklog's. ``asked``: the times of ListOffsets, by broker; ``histories``: what broker 1 tells of
    a minute ago."""

    def __init__(self, ends: Mapping[PartitionKey, int], rates: Mapping[PartitionKey, int]) -> None:
        self.ends = dict(ends)
        self.rates = dict(rates)
        self.sizes = {key: 100 * end for key, end in ends.items()}
        self.asked: list[tuple[int, int]] = []
        self.histories: dict[PartitionKey, PastEnd] = {
            key: PastEnd(60_000, end - 60 * self.rates.get(key, 0), end)
            for key, end in ends.items()
        }
        self.slept_s = 0.0
        self.back_ms = 0
        self.fails: OSError | None = None
        """How broker 1 answers the request that only pyrklog's know."""

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        for key, rate in self.rates.items():
            more = int(rate * seconds)
            self.ends[key] += more
            self.sizes[key] += 1000 * more

    def offsets_at(
        self, connection: Any, states: Any, led: Mapping[PartitionKey, int], at: int
    ) -> dict[PartitionKey, int]:
        self.asked += [(leader, at) for leader in sorted(set(led.values()))]
        if at == EARLIEST:
            return dict.fromkeys(led, 0)
        if at == LATEST:
            return {key: self.ends[key] for key in led}
        return {key: self.ends[key] - 60 * self.rates.get(key, 0) for key in led}

    def replica_bytes(self, requests: Any, leaders: Collection[int], wanted: Any) -> Any:
        found = {(*key, leader): size for key, size in self.sizes.items() for leader in leaders}
        return found, []

    def ask(self, api: Any, version: int, request: PartitionOffsetsRequest) -> Any:
        self.back_ms = request.back_ms
        if self.fails is not None:
            raise self.fails
        topics = []
        for topic in request.topics:
            results = []
            for one in topic.partitions:
                key = topic.name, one.partition_index
                past = self.histories.get(key)
                known = None if past is None else [past]
                results.append(
                    PartitionOffsetsResult(one.partition_index, 0, 0, self.ends[key], [], known)
                )
            topics.append(PartitionOffsetsTopicResult(topic.name, results))
        return PartitionOffsetsResponse(topics=topics)


class FakeConnection:
    def __init__(self, logs: FakeLogs, address: tuple[str, int], timeout_s: float) -> None:
        self.number = address[1]
        self.ask = logs.ask

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


Logs = Callable[..., FakeLogs]


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    def make(ends: Mapping[PartitionKey, int], rates: Mapping[PartitionKey, int]) -> FakeLogs:
        found = FakeLogs(ends, rates)
        monkeypatch.setattr(write_rates, "offsets_at", found.offsets_at)
        monkeypatch.setattr(write_rates, "replica_bytes", found.replica_bytes)
        monkeypatch.setattr("pyrklog.cli.write_rates.time.sleep", found.sleep)
        monkeypatch.setattr(write_rates, "is_ours", lambda _, number: number == 1)
        monkeypatch.setattr(
            write_rates,
            "BrokerConnection",
            lambda address, timeout_s: FakeConnection(found, address, timeout_s),
        )
        return found

    return make


def partitions_of(leaders: Mapping[PartitionKey, int], size: int) -> dict[PartitionKey, Partition]:
    return {key: Partition((leader,), size, leader=leader) for key, leader in leaders.items()}


def test_our_brokers_read_no_log_and_records_have_their_length_of_now(logs: Logs) -> None:
    found = logs({A: 100_000, B: 100_000}, {A: 500})
    partitions = partitions_of({A: 1, B: 1}, 10_000_000)
    firsts = add_write_rates(CONNECTION, ADDRESSES, partitions, partitions.keys())
    assert firsts == {A: 70_000}
    assert partitions[A].rate_in == 500_000.0
    assert partitions[B].rate_in == 0.0
    assert {at for _, at in found.asked} == {EARLIEST, LATEST}, "these are in memory"
    assert found.slept_s == write_rates.LOOKS_APART_S
    assert found.back_ms == RATE_WINDOW_S * 1000


def test_idle_brokers_are_not_waited_for(logs: Logs) -> None:
    found = logs({A: 100_000, B: 100_000}, {})
    partitions = partitions_of({A: 1, B: 1}, 10_000_000)
    assert add_write_rates(CONNECTION, ADDRESSES, partitions, partitions.keys()) == {}
    assert (found.asked, found.slept_s) == ([], 0.0)


def test_other_brokers_are_asked_by_timestamps(logs: Logs) -> None:
    found = logs({A: 100_000, C: 100_000}, {A: 500, C: 50})
    partitions = partitions_of({A: 1, C: 2}, 10_000_000)
    firsts = add_write_rates(CONNECTION, ADDRESSES, partitions, partitions.keys())
    assert firsts == {A: 70_000, C: 97_000}
    assert (partitions[A].rate_in, partitions[C].rate_in) == (500_000.0, 50_000.0)
    assert {leader for leader, at in found.asked if at not in (EARLIEST, LATEST)} == {2}


def test_broker_without_histories_is_looked_at_twice(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = logs({A: 100_000, B: 100_000}, {A: 500})
    found.histories.clear()
    partitions = partitions_of({A: 1, B: 1}, 10_000_000)
    monkeypatch.setattr("pyrklog.cli.write_rates.time.monotonic", lambda: found.slept_s)
    firsts = add_write_rates(CONNECTION, ADDRESSES, partitions, partitions.keys())
    assert firsts == {A: 70_000}
    assert partitions[A].rate_in == pytest.approx(500_000.0)
    assert {at for _, at in found.asked} == {EARLIEST, LATEST}


def test_what_goes_on_is_what_came_last(logs: Logs) -> None:
    found = logs({A: 100_000, C: 100_000}, {A: 500, C: 50})
    partitions = partitions_of({A: 1, C: 2}, 10_000_000)
    began_ms = time.time_ns() // 1_000_000
    window_s = write_rates.GOING_ON_S
    add_write_rates(CONNECTION, ADDRESSES, partitions, partitions.keys(), window_s)
    assert found.back_ms == window_s * 1000
    [since_ms] = {at for _, at in found.asked if at not in (EARLIEST, LATEST)}
    assert began_ms - since_ms <= window_s * 1000
    assert partitions[C].rate_in == 50_000.0 * RATE_WINDOW_S / window_s, "the fake tells a minute's"


def test_broker_from_before_the_request_is_asked_by_timestamps(logs: Logs) -> None:
    found = logs({A: 100_000}, {A: 500})
    found.fails = ConnectionResetError("the connection was closed")
    partitions = partitions_of({A: 1}, 10_000_000)
    assert add_write_rates(CONNECTION, ADDRESSES, partitions, partitions.keys()) == {A: 70_000}
    assert partitions[A].rate_in == 500_000.0


def test_broker_that_is_late_has_no_log_to_read(logs: Logs) -> None:
    found = logs({A: 100_000, C: 100_000}, {A: 500, C: 50})
    found.fails = TimeoutError("timed out")
    partitions = partitions_of({A: 1, C: 2}, 10_000_000)
    assert add_write_rates(CONNECTION, ADDRESSES, partitions, partitions.keys()) == {C: 97_000}
    assert 1 not in {leader for leader, _ in found.asked}


def test_what_a_log_has_grown_by() -> None:
    told = PartitionOffsetsResponse(
        topics=[
            PartitionOffsetsTopicResult(
                "t",
                [
                    PartitionOffsetsResult(0, 0, 5, 700, [], [PastEnd(60_000, 100, 700)]),
                    PartitionOffsetsResult(1, 0, 5, 700, [], [PastEnd(1_000, 100, 700)]),
                    PartitionOffsetsResult(2, 0, 5, 700),
                    PartitionOffsetsResult(3, 6),
                ],
            )
        ]
    )
    unknown = Growth(5, 700)
    assert growths_in(told) == {
        ("t", 0): Growth(5, 700, 10.0, 100),
        ("t", 1): unknown,
        ("t", 2): unknown,
    }


def test_where_the_looks_tell_no_length_the_whole_log_does() -> None:
    growth = Growth(0, 1000, 10.0, 400)
    before = Look(0.0, 0, 1000, 50_000)
    assert rates_of(growth, before, before, 50_000) == (400, 500.0)
    deleted = Look(2.0, 300, 1020, 40_000)
    assert rates_of(growth, before, deleted, 50_000) == (400, 500.0)
    assert rates_of(growth, None, None, 50_000) == (400, 500.0)
    assert rates_of(growth, before, Look(2.0, 0, 1020, 90_000), 50_000) == (400, 20_000.0)
    assert rates_of(Growth(700, 1000, 10.0, 400), None, None, 0) == (700, 0.0), "it was deleted"
    assert rates_of(Growth(0, 1000), before, before, 50_000) is None
    assert rates_of(Growth(0, 0, 0.0, 0), None, None, 0) is None
