"""Answers to GroupLag and PartitionOffsets, through their bytes, and their bounds."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from pyrklog.base.client_places import CLIENT_SHARE
from pyrklog.config.load import load_config
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.lag import service as module
from pyrklog.lag.pace import OFFSET_SECONDS, REST, Pace
from pyrklog.lag.service import GROUPS_AN_OFFSET, WAITING_MAX, LagService
from pyrklog.lag.start import Lag
from pyrklog.protocol.lag import (
    GROUP_LAG,
    GROUPS_MAX,
    OFFSETS_MAX,
    PARTITION_OFFSETS,
    GroupLagRequest,
    PartitionOffsetsPartition,
    PartitionOffsetsRequest,
    PartitionOffsetsTopic,
)
from tests.unit.lag import rig
from tests.unit.lag.rig import Broker

ADDRESS = "10.0.0.1"


class Served:
    """``t-0`` has had ten records a second for 20 s; nobody knows the past of ``t-1``."""

    def __init__(self, folder: Path | None = None) -> None:
        self.broker = Broker()
        broker: Any = self.broker
        self.service = LagService(
            broker.metadata,
            broker.plane,
            broker.manager,
            None,
            folder=folder,
            clock=broker.clock,
        )
        self.broker.sampler = self.service._sampler

    async def begin(self) -> None:
        self.broker.lead("t", {0: 0, 1: 7})
        await self.broker.sampler.look()
        for _ in range(20):
            await self.broker.second(t=10)

    async def group_lag(self, **asked: Any) -> Any:
        request = GROUP_LAG.encode_request(GroupLagRequest(**asked), 0)
        found = await self.service.group_lag(GROUP_LAG.decode_request(request, 0), ADDRESS)
        return GROUP_LAG.decode_response(GROUP_LAG.encode_response(found, 0), 0)

    async def partition_offsets(
        self, topics: dict[str, dict[int, list[int]]], back_ms: int = 0
    ) -> Any:
        asked = PartitionOffsetsRequest(
            [
                PartitionOffsetsTopic(
                    name, [PartitionOffsetsPartition(*one) for one in partitions.items()]
                )
                for name, partitions in topics.items()
            ],
            back_ms,
        )
        request = PARTITION_OFFSETS.encode_request(asked, 0)
        decoded = PARTITION_OFFSETS.decode_request(request, 0)
        found = await self.service.partition_offsets(decoded, ADDRESS)
        return PARTITION_OFFSETS.decode_response(PARTITION_OFFSETS.encode_response(found, 0), 0)


@pytest.fixture
async def served() -> Served:
    found = Served()
    await found.begin()
    return found


async def test_named_groups(served: Served) -> None:
    served.broker.manager.put("g", {("t", 0): 100, ("t", 1): 3}, members=2)
    found = await served.group_lag(groups=["g", "missing", "g"])
    known, missing = found.groups
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (known.group_id, known.members, known.lag, known.left_out) == ("g", 2, 104, 0)
    assert known.is_least
    first, second = known.partitions
    assert (first.committed_offset, first.log_end_offset, first.lag) == (100, 200, 100)
    assert (first.lag_ms / 1000, first.is_least) == (pytest.approx(10, abs=0.3), False)
    assert (second.lag, second.lag_ms, second.is_least) == (4, 20_000, True)


async def test_offsets_beyond_the_log_end_are_told(served: Served) -> None:
    served.broker.manager.put("g", {("t", 0): 100, ("t", 1): 12})
    [named] = (await served.group_lag(groups=["g"])).groups
    assert (named.lag, named.ahead) == (100, 5)
    assert [(one.lag, one.ahead) for one in named.partitions] == [(100, 0), (0, 5)]
    await served.service.groups.look_at_all()
    [paged] = (await served.group_lag()).groups
    assert (paged.lag, paged.ahead) == (100, 5)


async def test_rows_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARTITIONS_MAX", 3)
    served.broker.manager.put("g", {("t", 0): 100, ("t", 1): 3})
    served.broker.manager.put("h", {("t", 0): 100, ("t", 1): 3})
    first, second = (await served.group_lag(groups=["g", "h"])).groups
    assert (len(first.partitions), first.left_out) == (2, 0)
    assert (len(second.partitions), second.left_out, second.lag) == (1, 1, 104)


async def test_a_page(served: Served) -> None:
    for name in ("a", "b", "c"):
        served.broker.manager.put(name, {("t", 0): 100})
    before = await served.group_lag()
    assert ([one.lag for one in before.groups], before.is_whole) == ([100, 100, 100], False)
    await served.service.groups.look_at_all()
    page = await served.group_lag(limit=2)
    assert ([one.group_id for one in page.groups], page.after) == (["a", "b"], "b")
    assert page.is_whole
    page = await served.group_lag(after=page.after, limit=2)
    assert ([one.group_id for one in page.groups], page.after) == (["c"], None)
    assert not (await served.group_lag(over_records=100)).groups
    del served.broker.manager.groups["c"]
    assert len((await served.group_lag(over_ms=9000)).groups) == 2
    served.broker.manager.put("b2", {("t", 0): 1})
    found = (await served.group_lag(over_ms=9000)).groups
    assert [one.group_id for one in found] == ["a", "b", "b2"]


async def test_a_coordinator_that_loads_says_so(served: Served) -> None:
    served.broker.manager.is_loading = True
    found = await served.group_lag()
    assert found.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_where_logs_ended_so_long_ago(served: Served) -> None:
    asked: dict[str, dict[int, list[int]]] = {"t": {0: [], 1: [], 5: []}}
    [topic] = (await served.partition_offsets(asked)).topics
    assert [one.past for one in topic.partitions] == [None, None, None]
    [topic] = (await served.partition_offsets(asked, 10_000)).topics
    first, idle, unknown = topic.partitions
    [past] = first.past
    assert (past.age_ms, past.end_offset_now) == (10_000, 200)
    assert past.end_offset == pytest.approx(100, abs=3)
    [past] = idle.past
    assert (past.end_offset, past.end_offset_now) == (7, 7)
    assert unknown.past is None
    [topic] = (await served.partition_offsets(asked, 2**62)).topics
    [past] = topic.partitions[0].past
    assert (past.age_ms, past.end_offset) == (20_000, 0), "the history begins then"


async def test_markers_behind_the_data_are_no_growth(served: Served) -> None:
    served.broker.plane.ends["t", 0] += 3
    served.broker.plane.markers["t", 0] = 3
    [topic] = (await served.partition_offsets({"t": {0: []}}, 10_000)).topics
    [past] = topic.partitions[0].past
    assert (topic.partitions[0].log_end_offset, past.end_offset_now) == (203, 200)


async def test_log_ends_and_ages(served: Served) -> None:
    served.broker.plane.starts["t", 0] = 50
    found = await served.partition_offsets({"t": {0: [200, 100], 1: [], 5: [1]}})
    [topic] = found.topics
    first, second, unknown = topic.partitions
    assert (first.log_start_offset, first.log_end_offset) == (50, 200)
    assert [one.age_ms / 1000 for one in first.ages] == pytest.approx([0, 10], abs=0.3)
    assert (second.log_end_offset, second.ages) == (7, [])
    assert unknown.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [one.age_ms for one in unknown.ages] == [-1]


async def test_questions_are_bounded(served: Served) -> None:
    await served.partition_offsets({"t": {0: [1] * OFFSETS_MAX}})
    too_many: list[dict[int, list[int]]] = [
        {0: [1] * (OFFSETS_MAX + 1)},
        {index: [] for index in range(OFFSETS_MAX + 1)},
    ]
    for asked in too_many:
        with pytest.raises(ApiError) as refused:
            await served.partition_offsets({"t": asked})
        assert refused.value.code is ErrorCode.INVALID_REQUEST
    twice = PartitionOffsetsTopic("t", [PartitionOffsetsPartition(0), PartitionOffsetsPartition(0)])
    with pytest.raises(ApiError):
        await served.service.partition_offsets(PartitionOffsetsRequest([twice]), ADDRESS)
    for request in ({"groups": ["g"] + [f"g{n}" for n in range(GROUPS_MAX)]}, {"limit": 0}):
        with pytest.raises(ApiError):
            await served.group_lag(**request)


async def test_numbers(served: Served) -> None:
    served.broker.manager.put("g", {("t", 0): 100})
    await served.service.groups.look_at_all()
    numbers = served.service.numbers()
    [(group, lag_ms)] = numbers.worst
    assert group == "g"
    assert lag_ms / 1000 == pytest.approx(10, abs=0.3)
    assert (numbers.histories, numbers.histories_left_out, numbers.groups_left_out) == (2, 0, 0)
    assert numbers.history_points > 0


async def test_without_histories_there_are_records_only(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["pyrklog.lag.history.max.bytes=0"]
    monkeypatch.setattr(rig, "load_config", lambda: load_config(overrides=options))
    served = Served()
    served.broker.lead("t", {0: 200})
    served.broker.manager.put("g", {("t", 0): 100})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(served.service.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    [one] = (await served.group_lag(groups=["g"])).groups
    assert (one.lag, one.lag_ms) == (100, -1)


async def test_an_early_request_is_told_to_come_again() -> None:
    with pytest.raises(ApiError) as refused:
        await Lag().group_lag(GroupLagRequest(), ADDRESS)
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_offsets_that_are_looked_at_are_bounded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKED_MAX", 3)
    for name in ("g", "h", "i"):
        served.broker.manager.put(name, {("t", 0): 100, ("t", 1): 3})
    await served.service.groups.look_at_all()
    served.broker.manager.put("i", {("t", 0): 100, ("t", 1): 3, ("t", 2): 0})
    served.broker.plane.looks.clear()
    found = (await served.group_lag(groups=["g", "h", "i"])).groups
    assert [(one.lag, len(one.partitions), one.left_out) for one in found] == [
        (104, 2, 0),
        (104, 1, 1),
        (104, 0, 3),
    ]
    assert sum(map(len, served.broker.plane.looks)) == 3


async def test_requests_that_wait_are_bounded_by_address(
    served: Served, autojump_clock: MockClock
) -> None:
    served.broker.manager.put("g", {("t", 0): 100})
    kinds: list[tuple[Pace, Callable[[str], Awaitable[object]]]] = [
        (
            served.service._offset_pace,
            lambda address: served.service.partition_offsets(
                PartitionOffsetsRequest(
                    [PartitionOffsetsTopic("t", [PartitionOffsetsPartition(0, [1])])]
                ),
                address,
            ),
        ),
        (
            served.service._group_pace,
            lambda address: served.service.group_lag(GroupLagRequest(["g"]), address),
        ),
        (
            served.service._group_pace,
            lambda address: served.service.group_lag(GroupLagRequest(), address),
        ),
    ]
    for pace, ask in kinds:
        outcomes: list[ErrorCode] = []

        async def tell(
            ask: Callable[[str], Awaitable[object]], address: str, outcomes: list[ErrorCode]
        ) -> None:
            try:
                await ask(address)
            except ApiError as error:
                outcomes.append(error.code)
            else:
                outcomes.append(ErrorCode.NONE)

        async with trio.open_nursery() as nursery, pace.turn():
            for _ in range(WAITING_MAX // CLIENT_SHARE + 3):
                nursery.start_soon(tell, ask, ADDRESS, outcomes)
            nursery.start_soon(tell, ask, "10.0.0.2", outcomes)
            await trio.testing.wait_all_tasks_blocked()
            assert outcomes == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 3
        assert outcomes[3:] == [ErrorCode.NONE] * (WAITING_MAX // CLIENT_SHARE + 1)


async def test_lag_rests_after_its_work(served: Served, autojump_clock: MockClock) -> None:
    served.broker.manager.put("g", {("t", 0): 100, ("t", 1): 3})
    began = trio.current_time()
    for _ in range(3):
        await served.group_lag(groups=["g"])
    assert trio.current_time() - began == pytest.approx(2 * REST * OFFSET_SECONDS * 2)


async def test_going_through_groups_earns_a_rest_too(
    served: Served, autojump_clock: MockClock
) -> None:
    """Also where no group is over the limits."""
    count = 3 * GROUPS_AN_OFFSET
    for number in range(count):
        served.broker.manager.put(f"g{number}", {("t", 0): 100})
    await served.service.groups.look_at_all()
    began = trio.current_time()
    for _ in range(3):
        assert not (await served.group_lag(over_records=100)).groups
    assert trio.current_time() - began == pytest.approx(2 * REST * OFFSET_SECONDS * 3)


async def test_a_page_is_read_within_its_turn(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the pages of many who ask are not read all at once."""
    turns: list[bool] = []
    page = served.service.groups.page

    def read(*asked: Any) -> Any:
        turns.append(served.service._group_pace._lock.locked())
        return page(*asked)

    monkeypatch.setattr(served.service.groups, "page", read)
    await served.group_lag()
    assert turns == [True]
