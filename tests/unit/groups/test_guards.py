"""A bug in one group, or in work for it, costs only that group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from pyrklog.base.pending import Pending, answered
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.groups.batching import AppendBatch, QueuedAppend
from pyrklog.groups.effects import Append
from pyrklog.groups.machine import GroupMachine
from pyrklog.groups.messages import JoinResult, MemberHeartbeat
from pyrklog.groups.options import GroupSettings
from pyrklog.plane.internal_log import AppendResult, InternalLoad
from pyrklog.testing.fake_offsets import FakeTopic
from tests.unit.groups.rig import NONE, Rig, running

BAD, GOOD = "bad", "good"
ASIDE = ErrorCode.COORDINATOR_NOT_AVAILABLE
AT_ONCE = GroupSettings(initial_rebalance_delay_ms=0)


@pytest.fixture
def break_group(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes events of the group BAD raise half-way."""

    def plant(name: str) -> None:
        real = getattr(GroupMachine, name)

        def event(machine: GroupMachine, *arguments: Any, **named: Any) -> Any:
            result = real(machine, *arguments, **named)
            if machine.group_id == BAD:
                raise RuntimeError(f"planted in {name}")
            return result

        monkeypatch.setattr(GroupMachine, name, event)

    return plant


async def refused(asking: Awaitable[Any]) -> ErrorCode:
    with pytest.raises(ApiError) as raised:
        await asking
    return raised.value.code


async def is_aside(rig: Rig) -> None:
    """BAD answers only that it has no coordinator; GOOD serves."""
    nobody = MemberHeartbeat(BAD, 1, "nobody")
    assert rig.coordinator.heartbeat(nobody) is ASIDE
    assert (await rig.join(group=BAD)).error is ASIDE
    assert await rig.commit(1, group=BAD) is ASIDE
    error, _ = rig.coordinator.manager.fetch_offsets(BAD, None, require_stable=False)
    assert error is ASIDE
    assert rig.coordinator.manager.describe_group(BAD).error is ASIDE
    await rig.enter("another")
    assert await rig.commit(9, group=GOOD) in (NONE, ErrorCode.UNKNOWN_MEMBER_ID)


async def test_failing_timer_sets_only_its_group_aside(
    break_group: Callable[[str], None], autojump_clock: trio.testing.MockClock
) -> None:
    async with running(settings=AT_ONCE) as rig:
        for group in (BAD, GOOD):
            await rig.enter(group)
        break_group("timer_fired")
        await trio.sleep(15)
        assert rig.coordinator.manager.describe_group(GOOD).state == "Empty", (
            "its member was silent"
        )
        await is_aside(rig)
        assert len(rig.coordinator._timers) == 1, "those of the group are gone"


@pytest.mark.parametrize("event", ["join", "sync", "heartbeat", "commit", "leave", "delete"])
async def test_failing_request_sets_only_its_group_aside(
    event: str, break_group: Callable[[str], None], autojump_clock: trio.testing.MockClock
) -> None:
    async with running(settings=AT_ONCE) as rig:
        me = await rig.enter(BAD)
        await rig.enter(GOOD)
        break_group(event)
        asking: dict[str, Callable[[], Awaitable[Any]]] = {
            "join": lambda: rig.join(me.member_id, group=BAD),
            "sync": lambda: rig.sync(me, BAD),
            "heartbeat": lambda: rig.heartbeat(me, BAD),
            "commit": lambda: rig.commit(1, group=BAD, me=me),
            "leave": lambda: _leave(rig, me),
            "delete": lambda: rig.coordinator.delete_group(BAD),
        }
        assert await refused(asking[event]()) is ASIDE
        await is_aside(rig)


async def _leave(rig: Rig, me: JoinResult) -> Any:
    return await rig.coordinator.leave(BAD, []).wait()


async def test_waiting_requests_of_a_group_set_aside_fail(
    break_group: Callable[[str], None], autojump_clock: trio.testing.MockClock
) -> None:
    async with running(settings=AT_ONCE) as rig:
        await rig.enter(BAD)
        codes: list[ErrorCode] = []

        async def wait() -> None:
            codes.append(await refused(rig.join(group=BAD)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            break_group("heartbeat")
            nobody = MemberHeartbeat(BAD, 1, "nobody")
            with pytest.raises(ApiError):
                rig.coordinator.heartbeat(nobody)
        assert codes == [ASIDE]
        assert rig.coordinator._pending == {}


async def test_failing_append_outcome_sets_only_its_group_aside(
    break_group: Callable[[str], None], autojump_clock: trio.testing.MockClock
) -> None:
    """Commits of both groups share a batch."""
    async with running(settings=AT_ONCE) as rig:
        break_group("append_finished")
        codes: dict[str, ErrorCode] = {}

        async def bad() -> None:
            codes[BAD] = await refused(rig.commit(1, group=BAD))

        async def good() -> None:
            codes[GOOD] = await rig.commit(2, group=GOOD)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(bad)
            nursery.start_soon(good)
        assert codes == {BAD: ASIDE, GOOD: NONE}
        assert len(rig.log.batches[0]) == 1
        assert rig.committed(GOOD) == 2
        await is_aside(rig)


async def test_failing_append_outcome_spares_a_reloaded_group(
    break_group: Callable[[str], None], autojump_clock: trio.testing.MockClock
) -> None:
    """The failure belongs to the state before another broker led in between."""
    async with running(settings=AT_ONCE) as rig:
        rig.log.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(rig.commit, 1, group=BAD))
            await trio.testing.wait_all_tasks_blocked()
            former = rig.coordinator.manager.groups[BAD]
            rig.topic.lead(0, epoch=1)
            await trio.testing.wait_all_tasks_blocked()
            rig.log.release()
            await rig.loaded()
            assert rig.coordinator.manager.groups[BAD] is not former
            nursery.cancel_scope.cancel()
        former.appends[77] = _raise
        append: Any = Append(77, [], None)
        done = rig.coordinator._await_append(
            AppendBatch([QueuedAppend(former, append)], None), answered(AppendResult(NONE, 0))
        )
        await done
        assert rig.committed(BAD) == 1


def _raise(*_: Any) -> None:
    raise RuntimeError("planted")


@pytest.mark.parametrize("when", ["handed on", "awaited"])
async def test_raising_append_fails_its_commits(
    when: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(settings=AT_ONCE) as rig:

        def append_internal(*_: Any, **__: Any) -> Pending[AppendResult]:
            if when == "handed on":
                raise RuntimeError("planted")
            failed: Pending[AppendResult] = Pending()
            failed.fail(RuntimeError("planted"))
            return failed

        with monkeypatch.context() as patch:
            patch.setattr(rig.log, "append_internal", append_internal)
            assert await rig.commit(1) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert await rig.commit(2) is NONE
        assert rig.committed() == 2


async def test_commits_that_cannot_be_appended_fail(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """Those that the data plane would answer."""

    class Commit:
        id = 77
        group_id = BAD

    async with running(settings=AT_ONCE) as rig:
        await rig.enter(BAD)
        await rig.enter(GOOD)
        commits: Any = [Commit()]
        rig.coordinator._give_up_commits(commits, RuntimeError("planted"))
        assert rig.log.closed == [77]
        await is_aside(rig)


async def test_failing_expiry_sets_only_its_group_aside(
    break_group: Callable[[str], None], autojump_clock: trio.testing.MockClock
) -> None:
    settings = GroupSettings(initial_rebalance_delay_ms=0, retention_ms=1000)
    async with running(settings=settings) as rig:
        for group in (BAD, GOOD):
            assert await rig.commit(1, group=group) is NONE
        break_group("expire")
        await trio.sleep(1300)
        assert GOOD not in rig.coordinator.manager.groups
        await is_aside(rig)


async def test_failing_topic_deletion_sets_only_its_group_aside(
    break_group: Callable[[str], None], autojump_clock: trio.testing.MockClock
) -> None:
    async with running(settings=AT_ONCE) as rig:
        for group in (BAD, GOOD):
            assert await rig.commit(1, group=group) is NONE
        break_group("partitions_deleted")
        await rig.forget([("t", 0)])
        assert rig.committed(GOOD) == -1
        await is_aside(rig)


@pytest.mark.parametrize("event", ["restore", "loaded"])
async def test_failing_load_sets_only_its_group_aside(
    event: str,
    break_group: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(settings=AT_ONCE) as rig:
        for group in (BAD, GOOD):
            assert await rig.commit(7, group=group) is NONE
        break_group(event)
        rig.topic.lead(0, epoch=1)
        await rig.coordinator.changes.wait_until(lambda: _owned_since(rig, 1))
        await rig.loaded()
        assert rig.committed(GOOD) == 7
        await is_aside(rig)
        # The next load, without the fault, brings it back.
        monkeypatch.undo()
        rig.topic.lead(0, epoch=2)
        await rig.coordinator.changes.wait_until(lambda: _owned_since(rig, 2))
        await rig.loaded()
        assert rig.committed(BAD) == 7


def _owned_since(rig: Rig, epoch: int) -> bool:
    owned = rig.coordinator.manager.partitions().get(0)
    return owned is not None and owned.epoch == epoch


async def test_a_read_of_the_log_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(FakeTopic(2, {0: 0}), AT_ONCE) as rig:
        real = rig.log.load_internal
        failures = [RuntimeError("planted")]

        async def load(topic: str, partition: int, **named: Any) -> InternalLoad:
            if partition == 1 and failures:
                raise failures.pop()
            return await real(topic, partition, **named)

        monkeypatch.setattr(rig.log, "load_internal", load)
        rig.topic.lead(1)
        await trio.testing.wait_all_tasks_blocked()
        assert not failures
        assert rig.coordinator.manager.is_loading
        groups = {rig.coordinator.manager.partition_for(f"g{i}"): f"g{i}" for i in range(10)}
        assert await rig.commit(1, group=groups[0]) is NONE
        assert await rig.commit(1, group=groups[1]) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await rig.loaded()
        assert await rig.commit(1, group=groups[1]) is NONE


async def test_failing_unload_sets_only_its_group_aside(
    break_group: Callable[[str], None], autojump_clock: trio.testing.MockClock
) -> None:
    async with running(settings=AT_ONCE) as rig:
        for group in (BAD, GOOD):
            await rig.enter(group)
        break_group("unload")
        rig.topic.resign(0)
        await rig.coordinator.changes.wait_until(lambda: not rig.coordinator.manager.partitions())
        assert rig.coordinator.manager.groups == {}
        assert (await rig.join(group=GOOD)).error is ErrorCode.NOT_COORDINATOR


async def test_failing_leadership_check_is_retried(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(FakeTopic(2, {0: 0}), AT_ONCE) as rig:
        real = rig.topic.led_partitions
        failures = [RuntimeError("planted")]

        def led() -> Any:
            if 1 in rig.topic.led and failures:
                raise failures.pop()
            return real()

        rig.topic.lead(1)
        monkeypatch.setattr(rig.topic, "led_partitions", led)
        await rig.loaded()
        assert set(rig.coordinator.manager.partitions()) == {0, 1}
