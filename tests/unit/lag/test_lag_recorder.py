"""Rounds of the coordinator, and the histories that they leave."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from pyrklog.base import logs
from pyrklog.errors import ErrorCode
from pyrklog.groups.messages import GroupDescription
from pyrklog.lag import lag_recorder as module
from pyrklog.lag.group_lags import OFFSETS_A_SECOND, ROUND_SECONDS, GroupLags
from pyrklog.lag.history_file import GROUPS, HistoryFile
from pyrklog.lag.history_saver import HistorySaver
from pyrklog.lag.lag_histories import SERIES_BYTES, SERIES_SHARE, LagHistories, SeriesKey
from pyrklog.lag.lag_recorder import LagRecorder
from pyrklog.lag.turns import in_turns
from tests.unit.lag.rig import START, Broker


class Coordinator:
    """Of a broker that leads ``t`` and ``u``; ``far-0`` is led by a broker that does not answer."""

    def __init__(self, bytes_max: int = 1 << 20) -> None:
        self.broker = Broker(partitions_max=5000)
        self.manager = self.broker.manager
        self.histories = LagHistories(bytes_max)
        self.recorder = LagRecorder(self.manager, self.histories, self.broker.clock)
        ask = self.broker.all_offsets().ask
        self.lags = GroupLags(self.manager, ask, self.recorder)

    async def begin(self) -> None:
        self.broker.lead("t", {0: 0, 1: 0})
        self.broker.lead("u", {0: 0})
        self.broker.image.put("far", {0: 2})
        await self.broker.sampler.look()

    async def second(self, **moved: int) -> None:
        await self.broker.second(**moved)
        await self.lags.look_at_all()

    def past(self, group: str, topic: str = "") -> list[tuple[int, float, float]]:
        """Seconds since the start, and the lag."""
        columns = self.histories.by_key[SeriesKey(group, topic)].columns(0)
        return [(at - START, lag, ms) for at, lag, ms in zip(*columns, strict=True)]


@pytest.fixture
async def coordinator(autojump_clock: MockClock) -> Coordinator:
    found = Coordinator()
    await found.begin()
    return found


async def test_a_deleted_topic_leaves_no_gap_in_the_past_of_a_group(
    coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    coordinator.manager.put("g", {("t", 0): 0, ("gone", 0): 5})
    coordinator.manager.put("h", {("t", 0): 0, ("far", 0): 5})
    coordinator.manager.put("i", {("gone", 0): 5})
    for _ in range(5):
        await coordinator.second(t=10)
    assert coordinator.past("g")[-1][1] == 50
    assert all(lag >= 0 for _, lag, _ in coordinator.past("g"))
    assert SeriesKey("h") not in coordinator.histories.by_key, "no leader of far-0 tells"
    names = {(one.group, one.topic) for one in coordinator.histories.by_key}
    assert {"gone"}.isdisjoint(topic for _, topic in names)
    assert "i" not in {group for group, _ in names}


async def test_a_group_of_a_known_rate(coordinator: Coordinator, autojump_clock: MockClock) -> None:
    """Ten records a second, and it stands still: the lag rises by ten and by a second."""
    coordinator.manager.put("g", {("t", 0): 0})
    for _ in range(60):
        await coordinator.second(t=10)
    past = coordinator.past("g")
    assert past[-1][:2] == (60_000, 600)
    assert past[-1][2] == pytest.approx(60_000, abs=300)
    assert coordinator.histories.by_key[SeriesKey("g")].points <= 6
    assert past[0][:2] == (1000, 10)


async def test_topics_have_histories_where_there_are_several(
    coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    coordinator.manager.put("one", {("t", 0): 0, ("t", 1): 0})
    coordinator.manager.put("two", {("t", 0): 0, ("u", 0): 0})
    for _ in range(10):
        await coordinator.second(t=10, u=1)
    assert set(coordinator.histories.by_key) == {
        SeriesKey("one"),
        SeriesKey("two"),
        SeriesKey("two", "t"),
        SeriesKey("two", "u"),
    }
    lags = [coordinator.past("two", topic)[-1][1] for topic in ("", "t", "u")]
    assert lags == [110, 100, 10]


async def test_few_topics_of_a_group_have_histories(
    coordinator: Coordinator, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOPICS_MAX", 1)
    coordinator.manager.put("two", {("u", 0): 0, ("t", 0): 0})
    await coordinator.second(t=10)
    assert {key.topic for key in coordinator.histories.by_key} == {"", "t"}


async def test_what_a_leader_does_not_tell_is_no_fall(
    coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    offsets = coordinator.manager.put("g", {("t", 0): 0, ("u", 0): 0})
    await coordinator.second(t=10)
    offsets.committed["far", 0] = 0
    await coordinator.second(t=10)
    del offsets.committed["far", 0]
    await coordinator.second(t=10)
    assert [lag for _, lag, _ in coordinator.past("g")] == [10, -1, 30]
    assert [lag for _, lag, _ in coordinator.past("g", "t")] == [10, 20, 30]


async def test_a_group_without_offsets_has_none(
    coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    coordinator.manager.put("g", {})
    await coordinator.second()
    assert not coordinator.histories.by_key


async def test_a_deleted_group_is_forgotten(
    coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    coordinator.manager.put("g", {("t", 0): 0, ("u", 0): 0})
    await coordinator.second(t=1)
    del coordinator.manager.groups["g"]
    await coordinator.second(t=1)
    assert not coordinator.histories.by_key
    assert coordinator.histories.points == 0


@pytest.mark.parametrize(
    "error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
async def test_a_group_that_is_elsewhere_is_kept_with_a_gap(
    coordinator: Coordinator,
    error: ErrorCode,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coordinator.manager.put("g", {("t", 0): 0})
    await coordinator.second(t=1)
    await coordinator.second(t=1)
    taken = coordinator.manager.groups.pop("g")

    def describe(group_id: str) -> GroupDescription:
        return GroupDescription(error, group_id, "")

    monkeypatch.setattr(coordinator.manager, "describe_group", describe)
    for _ in range(5):
        await coordinator.second(t=1)
    coordinator.manager.groups["g"] = taken
    await coordinator.second(t=1)
    assert [lag for _, lag, _ in coordinator.past("g")] == [1, 2, -1, 8]


async def test_groups_without_room_are_told_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = Coordinator(bytes_max=int(2.5 * SERIES_BYTES / SERIES_SHARE))
    await coordinator.begin()
    told: list[str] = []

    def tell(_: logs.Logger, level: str, event: str, fields: Mapping[str, Any]) -> None:
        told.append(event)

    monkeypatch.setattr(logs.Logger, "log", tell)
    for name in ("aaaa", "bbbb", "cccc"):
        coordinator.manager.put(name, {("t", 0): 0})
    for _ in range(3):
        await coordinator.second(t=1)
    assert (told, coordinator.recorder.left_out) == (["lag_group_histories_left_out"], 1)
    del coordinator.manager.groups["aaaa"]
    await coordinator.second(t=1)
    await coordinator.second(t=1)
    assert (coordinator.recorder.left_out, len(coordinator.histories)) == (0, 2)


@pytest.mark.parametrize(
    ("groups", "seconds"),
    [(1, 1), (OFFSETS_A_SECOND, 2), (10 * OFFSETS_A_SECOND, ROUND_SECONDS)],
)
async def test_the_pace_of_rounds(
    coordinator: Coordinator,
    groups: int,
    seconds: float,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many offsets and groups a second, ten seconds at most."""
    for number in range(groups):
        coordinator.manager.put(f"g{number:05}", {("t", 0): 0})
    begun: list[float] = []
    look = coordinator.lags.look_at_all

    async def counted() -> None:
        begun.append(trio.current_time())
        await look()

    monkeypatch.setattr(coordinator.lags, "look_at_all", counted)
    with trio.move_on_after(3.5 * seconds):
        await coordinator.lags.run()
    steps = [later - one for one, later in pairwise(begun)]
    assert steps == pytest.approx([seconds] * 3, rel=0.01)


async def test_a_jumping_wall_clock_moves_nothing(
    coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    """History time goes by another clock."""
    coordinator.manager.put("g", {("t", 0): 0})
    clock: Any = coordinator.broker.clock
    for wall_ms in (0, START * 2, START - 86_400_000):
        clock.wall_ms = lambda wall_ms=wall_ms: wall_ms
        await coordinator.second(t=10)
    assert [at for at, _, _ in coordinator.past("g")] == [1000, 2000, 3000]


class Life:
    """Of a coordinator with a file."""

    def __init__(self, folder: Path, now_ms: int = START) -> None:
        self.coordinator = Coordinator()
        self.coordinator.broker.now_ms = now_ms
        self.free = 1 << 40
        file = HistoryFile(folder, GROUPS, lambda _: self.free)
        self.file = file
        self.saver = HistorySaver(file, self.coordinator.histories, self.coordinator.broker.clock)

    async def begin(self) -> None:
        until_ms = await self.saver.load()
        await in_turns(self.coordinator.histories.begin(until_ms))
        await self.coordinator.begin()
        self.coordinator.manager.put("g", {("t", 0): 0})


async def test_kill_9_loses_what_was_not_saved(autojump_clock: MockClock, tmp_path: Path) -> None:
    """A save each ten seconds; then the process is gone, a minute long."""
    life = Life(tmp_path)
    await life.begin()
    for at in range(1, 58):
        await life.coordinator.second(t=10)
        if at % 10 == 0:
            await life.saver.save()
    life.file.close()
    again = Life(tmp_path, START + 117_000)
    await again.begin()
    await again.coordinator.second(t=5)
    past = again.coordinator.past("g")
    known = [(at, lag) for at, lag, _ in past if at <= 50_000]
    assert known[-1:] == [(50_000, 500)]
    assert [(at, lag) for at, lag, _ in past[-2:]] == [(50_001, -1), (118_000, 5)]


async def test_a_full_disk_costs_only_the_file(autojump_clock: MockClock, tmp_path: Path) -> None:
    life = Life(tmp_path)
    await life.begin()
    await life.coordinator.second(t=10)
    await life.saver.save()
    life.free = 0
    for _ in range(3):
        await life.coordinator.second(t=10)
        await life.saver.save()
    assert life.coordinator.past("g")[-1][1] == 40
    life.free = 1 << 40
    await life.saver.save()
    again = Life(tmp_path, START + 10_000)
    await again.begin()
    assert again.coordinator.past("g")[-1] == (4001, -1, -1)
    assert again.coordinator.past("g")[-2][:2] == (4000, 40)
    life.file.close()
