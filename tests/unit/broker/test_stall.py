"""A broker that stood still judges nobody before it has heard what came meanwhile."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from pyrklog.errors import ErrorCode
from pyrklog.protocol.groups import HeartbeatRequest
from tests.unit.handlers.test_requests_waiting import HEARTBEAT, staged

MEMBERS = 20
SESSION_SECONDS = 10


@pytest.mark.parametrize("stalls", [1, 3])
async def test_heartbeats_that_came_during_a_stall_count(
    stalls: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with staged() as stage:
        groups = {f"g{i}": await stage.rig.enter(f"g{i}") for i in range(MEMBERS)}
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(stalls):
            numbers = [
                stage.send(HEARTBEAT, 0, HeartbeatRequest(name, 1, me.member_id))
                for name, me in groups.items()
            ]
            # No task has run since they came.
            autojump_clock.jump(6 * SESSION_SECONDS)
            for number in numbers:
                answer = await stage.answer(HEARTBEAT, 0, number)
                assert answer.error_code == ErrorCode.NONE
        await trio.sleep(SESSION_SECONDS / 2)
        states = {stage.rig.coordinator.manager.describe_group(name).state for name in groups}
        assert states == {"Stable"}
        # Who is silent after it is still taken out.
        await trio.sleep(SESSION_SECONDS + 2)
        states = {stage.rig.coordinator.manager.describe_group(name).state for name in groups}
        assert states == {"Empty"}


async def test_who_was_silent_before_a_stall_does_not_live_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Also where the broker stalls again and again."""
    async with staged() as stage:
        await stage.rig.enter("g")
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(20):
            autojump_clock.jump(SESSION_SECONDS)
            await trio.sleep(0.5)
        assert stage.rig.coordinator.manager.describe_group("g").state == "Empty"
