"""Questions to leaders: here, elsewhere, silent, of another kind."""

from typing import Any

import pytest
import trio
import trio.testing

from pyrklog.coordinators.calls import PeerUnreachableError
from pyrklog.errors import ErrorCode
from pyrklog.lag.history import Age
from pyrklog.lag.leader_offsets import (
    ANSWER_SECONDS,
    GONE,
    OFFSETS_A_TURN,
    SILENT_SECONDS,
    LeaderOffsets,
)
from pyrklog.lag.pace import OFFSET_SECONDS, REST, Pace
from pyrklog.protocol.lag import (
    PARTITION_OFFSETS,
    OffsetAge,
    PartitionOffsetsRequest,
    PartitionOffsetsResponse,
    PartitionOffsetsResult,
    PartitionOffsetsTopicResult,
)
from tests.unit.lag.rig import Broker


class Calls:
    """Other brokers; each answers all partitions alike, fails, or never answers."""

    def __init__(self, **kinds: str) -> None:
        self.kinds = {int(name.removeprefix("b")): kind for name, kind in kinds.items()}
        self.asked: list[tuple[int, PartitionOffsetsRequest]] = []

    async def call(self, broker: int, api: Any, version: int, message: Any) -> Any:
        assert (api, version) == (PARTITION_OFFSETS, 0)
        self.asked.append((broker, message))
        match self.kinds[broker]:
            case "silent":
                await trio.sleep_forever()
            case "gone":
                raise PeerUnreachableError("it closed the connection")
            case "wrong":
                return PartitionOffsetsResponse(
                    topics=[
                        PartitionOffsetsTopicResult("x", [PartitionOffsetsResult(0)]),
                        PartitionOffsetsTopicResult("t", [PartitionOffsetsResult(2)]),
                    ]
                )
            case "throttled":
                return PartitionOffsetsResponse(int(ErrorCode.THROTTLING_QUOTA_EXCEEDED))
            case "late leader":
                error = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                return _answered(message, PartitionOffsetsResult(0, error))
        return _answered(message, PartitionOffsetsResult(0, 0, 5, 900))


def _answered(
    request: PartitionOffsetsRequest, like: PartitionOffsetsResult
) -> PartitionOffsetsResponse:
    return PartitionOffsetsResponse(
        topics=[
            PartitionOffsetsTopicResult(
                topic.name,
                [
                    PartitionOffsetsResult(
                        one.partition_index,
                        like.error_code,
                        like.log_start_offset,
                        like.log_end_offset,
                        [OffsetAge(1000 + offset) for offset in one.offsets],
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def broker() -> Broker:
    """Partition 0 is led here, 1 at broker 2, 2 at broker 3, 3 nowhere."""
    found = Broker()
    found.image.put("t", {0: 1, 1: 2, 2: 3, 3: -1})
    found.plane.led.add(("t", 0))
    found.plane.ends["t", 0] = 10
    return found


ALL = {("t", index): [7] for index in range(4)}


async def test_each_leader_is_asked_for_its_own() -> None:
    calls = Calls(b2="well", b3="well")
    found = await broker().all_offsets(calls).ask(ALL)
    assert sorted(found) == [("t", 0), ("t", 1), ("t", 2)]
    assert found["t", 0].log_end == 10
    assert found["t", 1] == LeaderOffsets(ErrorCode.NONE, 5, 900, [Age(1007)])
    assert sorted(number for number, _ in calls.asked) == [2, 3]


@pytest.mark.parametrize("kind", ["silent", "gone", "wrong", "late leader"])
async def test_what_a_leader_does_not_tell_is_unknown(
    kind: str, autojump_clock: trio.testing.MockClock
) -> None:
    began = trio.current_time()
    found = await broker().all_offsets(Calls(b2="well", b3=kind)).ask(ALL)
    assert sorted(found) == [("t", 0), ("t", 1)]
    assert trio.current_time() - began <= ANSWER_SECONDS


async def test_a_silent_leader_is_left_alone_for_a_while(
    autojump_clock: trio.testing.MockClock,
) -> None:
    calls = Calls(b2="well", b3="silent")
    offsets = broker().all_offsets(calls)
    for _ in range(3):
        await offsets.ask(ALL)
    assert [number for number, _ in calls.asked].count(3) == 1
    await trio.sleep(SILENT_SECONDS)
    await offsets.ask(ALL)
    assert [number for number, _ in calls.asked].count(3) == 2


async def test_what_there_is_not_is_no_lack_of_an_answer() -> None:
    calls = Calls()
    asked = {("gone", 0): [7], ("t", 9): [7, 8], ("t", 3): [7]}
    found = await broker().all_offsets(calls).ask(asked)
    assert found == {("gone", 0): GONE, ("t", 9): GONE}
    assert calls.asked == []


async def test_a_lone_broker_asks_nobody() -> None:
    assert sorted(await broker().all_offsets().ask(ALL)) == [("t", 0)]


async def test_a_partition_that_is_led_here_no_more_is_an_error() -> None:
    one = broker()
    one.plane.led.clear()
    found = await one.led.answer({("t", 0): [1, 2]})
    assert found["t", 0] == LeaderOffsets(ErrorCode.NOT_LEADER_OR_FOLLOWER, ages=[None, None])


async def test_without_a_history_only_zero_is_known() -> None:
    found = await broker().led.answer({("t", 0): [9, 10]})
    assert found["t", 0].ages == [None, (0, False)]


async def test_the_offsets_of_one_partition_are_several_turns() -> None:
    one = broker()
    offsets = [number % 11 for number in range(2 * OFFSETS_A_TURN + 1)]
    found = await one.led.answer({("t", 0): offsets, ("t", 9): [], ("t", 8): []})
    assert one.plane.looks == [[("t", 0)], [("t", 0)], [("t", 0), ("t", 9), ("t", 8)]]
    expected = [Age(0) if offset == 10 else None for offset in offsets]
    assert found["t", 0] == LeaderOffsets(ErrorCode.NONE, 0, 10, expected)
    assert found["t", 9].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_partition_that_is_lost_between_two_turns_is_an_error() -> None:
    one = broker()
    look = one.plane.log_ends

    def lose(partitions: list[tuple[str, int]]) -> list[tuple[int, int] | None]:
        one.plane.led.clear()
        return look(partitions)

    one.plane.log_ends = lose  # type: ignore[method-assign]
    found = await one.led.answer({("t", 0): [10] * (OFFSETS_A_TURN + 1)})
    unknown = [None] * (OFFSETS_A_TURN + 1)
    assert found["t", 0] == LeaderOffsets(ErrorCode.NOT_LEADER_OR_FOLLOWER, ages=unknown)


async def test_a_pace_has_one_turn_at_a_time_and_a_rest_after_each(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """So a small question waits for one turn of a large one."""
    one, pace = broker(), Pace()
    ended: dict[str, float] = {}

    async def ask(name: str, count: int) -> None:
        await one.led.answer({("t", 0): [10] * count}, pace)
        ended[name] = trio.current_time() - began

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "large", 10 * OFFSETS_A_TURN)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ask, "small", 1)
    rest = REST * OFFSET_SECONDS * OFFSETS_A_TURN
    assert ended["small"] == pytest.approx(2 * rest)
    assert ended["large"] == pytest.approx(9 * rest, rel=0.02)


async def test_a_leader_that_refuses_leaves_its_part_unknown_and_is_asked_again() -> None:
    calls = Calls(b2="throttled", b3="well")
    offsets = broker().all_offsets(calls)
    for _ in range(2):
        assert sorted(await offsets.ask(ALL)) == [("t", 0), ("t", 2)]
    assert [number for number, _ in calls.asked].count(2) == 2


async def test_a_group_before_transaction_markers_is_not_behind() -> None:
    """It has committed the offset behind the last record, as librdkafka and Java do by hand."""
    one = broker()
    one.plane.markers["t", 0] = 2
    found = await one.led.answer({("t", 0): [10, 9, 8]})
    assert found["t", 0] == LeaderOffsets(ErrorCode.NONE, 0, 10, [Age(0)] * 3)
    assert (await one.led.answer({("t", 0): [7]}))["t", 0].ages == [None]


async def test_the_age_of_records_begins_with_them_and_not_with_the_marker_before() -> None:
    one = Broker()
    one.lead("t", {0: 0})
    await one.second(t=10)
    one.plane.markers["t", 0] = 1
    await one.second(t=1)
    for _ in range(100):
        await one.second()
    found = await one.led.answer({("t", 0): [10]})
    assert (found["t", 0].log_end, found["t", 0].ages) == (11, [Age(0)])
    one.plane.markers["t", 0] = 0
    await one.second(t=5)
    for _ in range(3):
        await one.second()
    (age,) = (await one.led.answer({("t", 0): [10]}))["t", 0].ages
    assert age is not None
    assert 3000 <= age.ms <= 5000
