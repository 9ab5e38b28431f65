"""The groups' totals: sums, what is unknown, pages, bounds."""

from collections.abc import Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from pyrklog.lag import group_lags as module
from pyrklog.lag.group_lags import (
    NEW_MAX,
    ROUND_SECONDS,
    SLICE_MAX,
    SLICE_SECONDS,
    WORST_MAX,
    GroupLags,
)
from pyrklog.lag.trends import WINDOW_SECONDS
from pyrklog.protocol.lag import UNKNOWN, Trend
from tests.unit.lag.rig import Broker


class Grouped:
    """A broker that has led ``t-0`` at ten records a second for 100 s; ``u-0`` is elsewhere."""

    def __init__(self, groups_max: int = 1000) -> None:
        self.broker = Broker(partitions_max=5000)
        self.manager = self.broker.manager
        offsets = self.broker.all_offsets()
        self.asked: list[int] = []

        async def ask(questions: Any) -> Any:
            self.asked.append(sum(map(len, questions.values())))
            return await offsets.ask(questions)

        self.lags = GroupLags(self.manager, ask, groups_max=groups_max)

    async def begin(self) -> None:
        self.broker.lead("t", {0: 0, 1: 0})
        self.broker.image.put("u", {0: 2})
        await self.broker.sampler.look()
        for _ in range(100):
            await self.broker.second(t=10)


@pytest.fixture
async def grouped(autojump_clock: MockClock) -> Grouped:
    found = Grouped()
    await found.begin()
    return found


async def test_totals_are_of_what_is_known(grouped: Grouped, autojump_clock: MockClock) -> None:
    grouped.manager.put("g", {("t", 0): 700, ("t", 1): 0, ("u", 0): 5})
    totals, rows, left_out = (await grouped.lags.look_at("g", 10))[:3]
    assert (totals.lag, totals.lost, left_out) == (300, 0, 0)
    assert totals.lag_ms / 1000 == pytest.approx(30, abs=0.3)
    assert [(one.topic, one.lag, round(one.lag_ms / 1000)) for one in rows] == [
        ("t", 300, 30),
        ("t", 0, 0),
        ("u", UNKNOWN, 0),
    ]
    assert rows[2].lag_ms == rows[2].lost == rows[2].log_end_offset == UNKNOWN


async def test_all_unknown_is_unknown(grouped: Grouped, autojump_clock: MockClock) -> None:
    grouped.manager.put("g", {("u", 0): 5})
    totals, _, _ = (await grouped.lags.look_at("g", 10))[:3]
    assert (totals.lag, totals.lag_ms, totals.lost) == (UNKNOWN, UNKNOWN, UNKNOWN)


async def test_an_offset_in_a_deleted_topic_hides_no_trend(
    grouped: Grouped, autojump_clock: MockClock
) -> None:
    """It may stay for days, and nobody ever tells more of it."""
    grouped.manager.put("g", {("t", 0): 700, ("gone", 0): 5})
    for _ in range(3):
        totals, rows, left_out = (await grouped.lags.look_at("g", 10))[:3]
        await trio.sleep(WINDOW_SECONDS)
    assert (totals.lag, totals.trend, left_out) == (300, Trend.FLAT, 0)
    assert [(one.topic, one.lag) for one in rows] == [("gone", UNKNOWN), ("t", 300)]
    grouped.manager.put("g", {("t", 0): 700, ("gone", 0): 5, ("u", 0): 5})
    totals = (await grouped.lags.look_at("g", 10)).totals
    assert (totals.lag, totals.trend) == (300, Trend.UNKNOWN), "a leader that does not answer"


async def test_records_that_retention_took_are_counted(
    grouped: Grouped, autojump_clock: MockClock
) -> None:
    grouped.broker.plane.starts["t", 0] = 750
    grouped.manager.put("g", {("t", 0): 700})
    totals, [row], _ = (await grouped.lags.look_at("g", 10))[:3]
    assert (totals.lost, row.lost, row.lag) == (50, 50, 300)


async def test_an_offset_beyond_the_end_is_told_and_no_negative_lag(
    grouped: Grouped, autojump_clock: MockClock
) -> None:
    grouped.manager.put("g", {("t", 0): 5000})
    totals, [row], _ = (await grouped.lags.look_at("g", 10))[:3]
    assert (totals.lag, row.lag, row.lag_ms) == (0, 0, 0)
    assert (totals.ahead, row.ahead) == (4000, 4000)


async def test_a_partition_that_is_ahead_hides_no_lag_of_another(
    grouped: Grouped, autojump_clock: MockClock
) -> None:
    grouped.manager.put("g", {("t", 0): 700, ("t", 1): 2**63 - 1, ("u", 0): 5})
    totals, rows, _ = (await grouped.lags.look_at("g", 10))[:3]
    assert (totals.lag, totals.ahead) == (300, 2**63 - 1)
    assert [one.ahead for one in rows] == [0, 2**63 - 1, 0]


async def test_any_number_may_be_committed(grouped: Grouped, autojump_clock: MockClock) -> None:
    least, most = -(2**63), 2**63 - 1
    grouped.manager.put("g", {("t", 0): least, ("t", 1): least})
    totals, rows, _ = (await grouped.lags.look_at("g", 10))[:3]
    assert (totals.lag, totals.lost, [one.lag for one in rows]) == (most, most, [most, most])


async def test_rows_are_bounded_and_counted(grouped: Grouped, autojump_clock: MockClock) -> None:
    grouped.manager.put("g", {("t", 0): 0, ("t", 1): 0, ("u", 0): 5})
    _, rows, left_out = (await grouped.lags.look_at("g", 2))[:3]
    assert (len(rows), left_out) == (2, 1)
    _, rows, left_out = (await grouped.lags.look_at("g", 10, "u"))[:3]
    assert ([one.topic for one in rows], left_out) == (["u"], 0)


async def test_a_large_group_is_looked_at_in_slices(
    grouped: Grouped, autojump_clock: MockClock
) -> None:
    grouped.manager.put("g", {("t", index): 0 for index in range(2 * SLICE_MAX + 1)})
    grouped.manager.put("h", {("t", 0): 900})
    began = trio.current_time()
    await grouped.lags.look_at_all()
    assert grouped.asked == [SLICE_MAX, SLICE_MAX, 2]
    assert trio.current_time() - began == pytest.approx(3 * SLICE_SECONDS)
    found, after = grouped.lags.page("", 10, -1, -1)
    assert ([one.lag for one in found], after) == ([1000, 100], None)


async def test_pages(grouped: Grouped, autojump_clock: MockClock) -> None:
    for number in range(10):
        grouped.manager.put(f"g{number}", {("t", 0): number * 100})
    await grouped.lags.look_at_all()

    def names(after: str, limit: int, records: int, ms: int) -> tuple[list[str], str | None]:
        found, further = grouped.lags.page(after, limit, records, ms)
        return [one.group_id for one in found], further

    assert names("", 3, -1, -1) == (["g0", "g1", "g2"], "g2")
    assert names("g7", 3, -1, -1) == (["g8", "g9"], None)
    assert names("", 9, 750, -1) == (["g0", "g1", "g2"], None)
    assert names("", 9, -1, 75_500) == (["g0", "g1", "g2"], None)
    assert names("", 9, 950, 75_500) == (["g0", "g1", "g2"], None)
    assert names("", 2, 750, -1) == (["g0", "g1"], "g1")
    assert names("", 10, 0, -1)[0][-1] == "g9"
    assert [one.group_id for one in grouped.lags.worst] == [f"g{n}" for n in range(10)]


async def test_groups_that_were_abandoned_hide_none_with_members(
    grouped: Grouped, autojump_clock: MockClock
) -> None:
    """Metrics have the worst ones only."""
    for number in range(WORST_MAX + 5):
        grouped.manager.put(f"old{number:02}", {("t", 0): number})
    grouped.manager.put("live", {("t", 0): 900}, members=2)
    await grouped.lags.look_at_all()
    found = [one.group_id for one in grouped.lags.worst]
    assert found == ["live", *(f"old{number:02}" for number in range(WORST_MAX - 1))]


async def test_groups_beyond_the_bound_are_counted_and_asked_for_by_name(
    autojump_clock: MockClock,
) -> None:
    grouped = Grouped(groups_max=2)
    await grouped.begin()
    for name in ("a", "b", "c", "d"):
        grouped.manager.put(name, {("t", 0): 0})
    await grouped.lags.look_at_all()
    assert grouped.lags.left_out == 2
    found, _ = grouped.lags.page("", 10, -1, -1)
    assert [one.group_id for one in found] == ["a", "b"]
    totals, _, _ = (await grouped.lags.look_at("d", 10))[:3]
    assert totals.lag == 1000
    del grouped.manager.groups["a"], grouped.manager.groups["b"]
    await grouped.lags.look_at_all()
    assert grouped.lags.left_out == 0


async def test_trends_of_partitions_and_groups(grouped: Grouped, autojump_clock: MockClock) -> None:
    offsets = grouped.manager.put("g", {("t", 0): 900, ("t", 1): 0})
    totals, rows, _ = (await grouped.lags.look_at("g", 10))[:3]
    assert [one.trend for one in rows] == [Trend.UNKNOWN, Trend.UNKNOWN]
    assert totals.trend is Trend.UNKNOWN
    await trio.sleep(WINDOW_SECONDS)
    for _ in range(30):
        await grouped.broker.second(t=10)
    totals, rows, _ = (await grouped.lags.look_at("g", 10))[:3]
    assert [one.trend for one in rows] == [Trend.UP, Trend.FLAT]
    assert totals.trend is Trend.UP
    await trio.sleep(WINDOW_SECONDS)
    offsets.committed["t", 0] = 1300
    totals, rows, _ = (await grouped.lags.look_at("g", 10))[:3]
    assert [one.trend for one in rows] == [Trend.DOWN, Trend.FLAT]
    assert totals.trend is Trend.DOWN


async def test_a_group_that_is_known_in_part_has_no_trend(
    grouped: Grouped, autojump_clock: MockClock
) -> None:
    grouped.manager.put("g", {("t", 0): 0, ("u", 0): 5})
    for _ in range(3):
        totals, rows, _ = (await grouped.lags.look_at("g", 10))[:3]
        await trio.sleep(WINDOW_SECONDS)
    assert [one.trend for one in rows] == [Trend.FLAT, Trend.UNKNOWN]
    assert totals.trend is Trend.UNKNOWN


async def test_trends_are_bounded(
    grouped: Grouped, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LAGS_MAX", 3)
    for name in ("a", "b"):
        grouped.manager.put(name, {("t", 0): 0, ("t", 1): 0})
    for _ in range(3):
        await grouped.lags.look_at_all()
        await trio.sleep(WINDOW_SECONDS)
    _, rows, _ = (await grouped.lags.look_at("a", 10))[:3]
    assert [one.trend for one in rows] == [Trend.FLAT, Trend.FLAT]
    _, rows, _ = (await grouped.lags.look_at("b", 10))[:3]
    assert [one.trend for one in rows] == [Trend.FLAT, Trend.UNKNOWN]


async def test_rounds_come_every_ten_seconds(grouped: Grouped, autojump_clock: MockClock) -> None:
    grouped.manager.put("g", {("t", 0): 0})
    with trio.move_on_after(3.5 * ROUND_SECONDS):
        await grouped.lags.run()
    assert len(grouped.asked) == 4
    assert grouped.lags.is_whole


async def test_a_round_that_fails_is_not_the_last(
    grouped: Grouped, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    grouped.manager.put("g", {("t", 0): 0})
    failures = [RuntimeError("once")]
    whole = grouped.lags.look_at_all

    async def look() -> None:
        if failures:
            raise failures.pop()
        await whole()

    monkeypatch.setattr(grouped.lags, "look_at_all", look)
    with trio.move_on_after(2.5 * ROUND_SECONDS):
        await grouped.lags.run()
    assert len(grouped.asked) == 2


class Counted(dict[str, Any]):
    """Counts the names that are looked through."""

    passed = 0

    def __iter__(self) -> Iterator[str]:
        for name in super().__iter__():
            self.passed += 1
            yield name


async def test_planted_groups_cost_no_more_than_the_bound(autojump_clock: MockClock) -> None:
    """And leave none out that was there before."""
    grouped = Grouped(groups_max=5)
    await grouped.begin()
    groups = grouped.manager.groups = Counted()
    for name in ("n", "m"):
        grouped.manager.put(name, {("t", 0): 0})
    await grouped.lags.look_at_all()
    for number in range(1000):
        grouped.manager.put(f"a{number:04}", {("t", 0): 0})
    groups.passed = 0
    await grouped.lags.look_at_new(10_000)
    assert groups.passed == 5
    found, _ = grouped.lags.page("", 10, -1, -1)
    assert [one.group_id for one in found] == ["a0000", "a0001", "a0002", "m", "n"]
    groups.passed = 0
    await grouped.lags.look_at_new(10_000)
    assert groups.passed == 0, "there is no room"
    await grouped.lags.look_at_all()
    assert groups.passed == 5
    found, _ = grouped.lags.page("", 10, -1, -1)
    assert [one.group_id for one in found] == ["a0000", "a0001", "a0002", "m", "n"]
    assert grouped.lags.left_out == 997


async def test_new_groups_are_looked_at_within_bounds(
    grouped: Grouped, autojump_clock: MockClock
) -> None:
    for number in range(NEW_MAX + 1):
        grouped.manager.put(f"g{number:03}", {("t", 0): 0, ("t", 1): 0})
    assert await grouped.lags.look_at_new(5) == 5
    assert len(grouped.lags.page("", 1000, -1, -1)[0]) == 2, "the third one in part only"
    assert await grouped.lags.look_at_new(10_000) == 2 * NEW_MAX - 2
    assert len(grouped.lags.page("", 1000, -1, -1)[0]) == NEW_MAX + 1


async def test_a_group_that_is_looked_at_in_part_has_the_totals_of_the_last_round(
    grouped: Grouped, autojump_clock: MockClock
) -> None:
    grouped.manager.put("g", {("t", index): 0 for index in range(SLICE_MAX + 10)})
    grouped.manager.put("h", {("t", 0): 700})
    before = await grouped.lags.look_at("g", 3, offsets_max=SLICE_MAX + 1)
    assert (before.totals.lag, before.totals.lag_ms, before.is_whole) == (UNKNOWN, UNKNOWN, False)
    assert (len(before.rows), before.left_out) == (3, SLICE_MAX + 7)
    assert grouped.asked == [SLICE_MAX, 1]
    await grouped.lags.look_at_all()
    after = await grouped.lags.look_at("g", 3, offsets_max=0)
    assert (after.totals.lag, after.looked, after.rows) == (1000, 0, [])
    assert after.left_out == SLICE_MAX + 10
    whole = await grouped.lags.look_at("h", 3, offsets_max=1)
    assert (whole.totals.lag, whole.is_whole, whole.left_out) == (300, True, 0)
