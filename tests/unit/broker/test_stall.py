"""After a stall a broker handles what arrived meanwhile before it expires sessions."""

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
async def test_heartbeats_received_during_a_stall_keep_members(
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
            # No task has run since they arrived.
            autojump_clock.jump(6 * SESSION_SECONDS)
            for number in numbers:
                answer = await stage.answer(HEARTBEAT, 0, number)
                assert answer.error_code == ErrorCode.NONE
        await trio.sleep(SESSION_SECONDS / 2)
        states = {stage.rig.coordinator.manager.describe_group(name).state for name in groups}
        assert states == {"Stable"}
        # A member that stays silent afterwards is still removed.
        await trio.sleep(SESSION_SECONDS + 2)
        states = {stage.rig.coordinator.manager.describe_group(name).state for name in groups}
        assert states == {"Empty"}


async def test_silent_member_expires_despite_repeated_stalls(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with staged() as stage:
        await stage.rig.enter("g")
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(20):
            autojump_clock.jump(SESSION_SECONDS)
            await trio.sleep(0.5)
        assert stage.rig.coordinator.manager.describe_group("g").state == "Empty"
