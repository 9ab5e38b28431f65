"""The coordinator's driver on a clock that jumps, over a log in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from pyrklog.base.logs import Logger
from pyrklog.coordinators.interfaces import BrokerEndpoint
from pyrklog.errors import ErrorCode
from pyrklog.groups.driver import EXAMPLES_MAX
from pyrklog.groups.messages import CommitRequest, JoinResult, LeavingMember, Offset
from pyrklog.groups.options import GroupOptions, GroupSettings
from pyrklog.groups.partitioner import partition_for
from pyrklog.plane.internal_log import (
    InternalBatch,
    InternalRecord,
    Producer,
)
from pyrklog.testing.fake_offsets import FakeLog, FakeTopic
from tests.unit.groups.rig import NONE, Rig, running


async def test_the_first_member_waits_for_others(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as rig:
        began = trio.current_time()
        results = []

        async def member() -> None:
            results.append(await rig.join())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(member)
            await trio.sleep(1)
            nursery.start_soon(member)
        # The second one doubled the wait of 3 s.
        assert trio.current_time() - began == pytest.approx(6)
        assert [result.generation for result in results] == [1, 1]
        assert sum(len(result.members) for result in results) == 2


async def test_a_silent_member_is_taken_out(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as rig:
        me = await rig.enter()
        for _ in range(5):
            await trio.sleep(9)
            assert await rig.heartbeat(me) is NONE
        await trio.sleep(10.1)
        assert await rig.heartbeat(me) is ErrorCode.UNKNOWN_MEMBER_ID
        assert rig.coordinator.manager.describe_group("g").state == "Empty"


async def test_unused_member_id_does_not_block_the_rebalance(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running() as rig:
        me = await rig.enter()
        lost = await rig.join(member_id_required=True)
        assert lost.error is ErrorCode.MEMBER_ID_REQUIRED
        began = trio.current_time()
        again = await rig.join(me.member_id)
        assert again.generation == 2
        assert trio.current_time() - began == pytest.approx(10)


async def test_a_commit_is_answered_when_it_is_safe(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running() as rig:
        rig.log.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.commit, 5)
            await rig.log.changes.wait_until(lambda: bool(rig.log.records(0)))
            await trio.sleep(1)
            assert rig.committed() == -1
            _, unstable = rig.coordinator.manager.fetch_offsets(
                "g", [("t", 0)], require_stable=True
            )
            assert unstable[("t", 0)].error is ErrorCode.UNSTABLE_OFFSET_COMMIT
            rig.log.release()
        assert rig.committed() == 5


async def test_a_commit_that_takes_too_long_times_out(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running() as rig:
        rig.log.hold()
        began = trio.current_time()
        assert await rig.commit(5) is ErrorCode.REQUEST_TIMED_OUT
        assert trio.current_time() - began == pytest.approx(5)


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
async def test_a_commit_that_cannot_be_written_says_so(
    failure: ErrorCode, answer: ErrorCode, autojump_clock: trio.testing.MockClock
) -> None:
    async with running() as rig:
        rig.log.failing.append(failure)
        assert await rig.commit(5) is answer
        assert rig.committed() == -1
        assert await rig.commit(6) is NONE


async def test_commits_of_one_moment_share_a_batch_and_keep_their_order(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(options=GroupOptions(codec=3)) as rig:

        async def commit(number: int) -> None:
            await rig.commit(number, group=f"g{number}")

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(commit, number)
        assert len(rig.log.records(0)) == 100
        assert len(rig.log.batches[0]) < 5
        assert set(rig.log.codecs) == {3}
        assert [rig.committed(f"g{n}") for n in range(100)] == list(range(100))


async def test_another_broker_takes_over_without_a_rebalance(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running() as rig:
        me = await rig.enter()
        assert await rig.commit(7, me=me) is NONE
        rig.coordinator = rig.make()
        async with trio.open_nursery() as nursery:
            await nursery.start(rig.coordinator.run)
            await rig.loaded()
            assert await rig.heartbeat(me) is NONE
            assert rig.committed() == 7
            assert (await rig.sync(me)).assignment == me.member_id.encode()
            nursery.cancel_scope.cancel()


async def test_loading_coordinator_expires_no_member(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(FakeTopic(1, {})) as rig:
        assert (await rig.join()).error is ErrorCode.NOT_COORDINATOR
        assert rig.coordinator.manager.list_groups([], []) == (NONE, [])
        rig.topic.opening = {0}
        assert (await rig.join()).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (
            rig.coordinator.manager.list_groups([], [])[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        )
        rig.topic.opening = set()
        assert (await rig.join()).error is ErrorCode.NOT_COORDINATOR
        rig.log.hold()
        rig.topic.lead(0)
        await trio.testing.wait_all_tasks_blocked()
        ghost = JoinResult(NONE, "x", 3)
        assert (await rig.join()).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await rig.commit(1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await rig.heartbeat(ghost) is NONE
        assert (await rig.sync(ghost)).error is ErrorCode.REBALANCE_IN_PROGRESS
        assert (
            rig.coordinator.manager.list_groups([], [])[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        )
        rig.log.release()
        await rig.loaded()
        assert await rig.heartbeat(ghost) is ErrorCode.UNKNOWN_MEMBER_ID
        assert rig.coordinator.manager.list_groups([], []) == (NONE, [])


async def test_a_failing_read_is_tried_again(autojump_clock: trio.testing.MockClock) -> None:
    async with running(FakeTopic(1, {})) as rig:
        rig.log.reads_failing += [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3
        rig.topic.lead(0)
        await rig.loaded()
        assert await rig.commit(1) is NONE


async def test_partition_lost_during_its_load_is_not_served(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(FakeTopic(1, {})) as rig:
        rig.log.hold()
        rig.topic.lead(0, 1)
        await trio.testing.wait_all_tasks_blocked()
        rig.topic.resign(0)
        await trio.testing.wait_all_tasks_blocked()
        rig.log.release()
        await trio.testing.wait_all_tasks_blocked()
        assert (await rig.join()).error is ErrorCode.NOT_COORDINATOR
        rig.topic.lead(0, 2)
        await rig.loaded()
        assert await rig.commit(1) is NONE


async def joining_while(rig: Rig, moves: Callable[[], None]) -> ErrorCode:
    results = []

    async def member() -> None:
        results.append((await rig.join()).error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(member)
        await trio.testing.wait_all_tasks_blocked()
        moves()
    (result,) = results
    return result


async def test_waiting_join_gets_not_coordinator_when_the_coordinator_resigns(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running() as rig:
        told = await joining_while(rig, lambda: rig.topic.resign(0))
        assert told is ErrorCode.NOT_COORDINATOR
        assert len(rig.coordinator._timers) == 0


async def test_partition_with_a_gap_in_leadership_is_loaded_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running() as rig:
        told = await joining_while(rig, lambda: rig.topic.lead(0, 5))
        assert told is ErrorCode.NOT_COORDINATOR
        await rig.loaded()
        me = await rig.enter()
        assert await rig.commit(3, me=me) is NONE
        assert await rig.heartbeat(me) is NONE


async def test_the_offsets_topic_is_created_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(FakeTopic(None, {})) as rig:
        answers = []

        async def find(group: str) -> None:
            answers.append(await rig.coordinator.find(group, "PLAINTEXT"))

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(find, f"g{number}")
        assert answers == [(NONE, BrokerEndpoint(1, "plaintext.example", 9092))] * 10
        assert rig.topic.created == 1
        await rig.loaded()
        assert await rig.commit(1) is NONE


async def test_a_topic_that_cannot_be_created_is_tried_again_later(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(FakeTopic(None, {})) as rig:
        rig.topic.creation = ErrorCode.INVALID_REPLICATION_FACTOR
        unavailable = (ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
        assert await rig.coordinator.find("g", "PLAINTEXT") == unavailable
        assert await rig.coordinator.find("g", "PLAINTEXT") == unavailable
        assert rig.topic.created == 1
        rig.topic.creation = NONE
        await trio.sleep(1)
        assert (await rig.coordinator.find("g", "PLAINTEXT"))[0] is NONE


async def test_offsets_expire_and_then_the_group(autojump_clock: trio.testing.MockClock) -> None:
    settings = GroupSettings(retention_ms=60_000)
    options = GroupOptions(expiry_interval_ms=10_000)
    async with running(settings=settings, options=options) as rig:
        assert await rig.commit(5) is NONE
        await trio.sleep(55)
        assert rig.committed() == 5
        await trio.sleep(20)
        assert rig.committed() == -1
        assert rig.coordinator.manager.list_groups([], []) == (NONE, [])
        assert rig.log.records(0)[-1].value is None


async def test_offsets_of_deleted_topics_are_forgotten(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running() as rig:
        me = await rig.enter()
        assert await rig.commit(5, me=me) is NONE
        await rig.forget([("t", 0)])
        assert rig.committed() == -1
        await trio.testing.wait_all_tasks_blocked()
        assert rig.log.records(0)[-1].value is None


async def test_a_deleted_group_stays_deleted(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as rig:
        me = await rig.enter()
        assert await rig.commit(5, me=me) is NONE
        assert await rig.coordinator.delete_group("g") is ErrorCode.NON_EMPTY_GROUP
        await rig.coordinator.leave("g", [LeavingMember(me.member_id)]).wait()
        assert await rig.coordinator.delete_group("g") is NONE
        assert await rig.coordinator.delete_group("g") is ErrorCode.GROUP_ID_NOT_FOUND
        async with rig.made_anew():
            assert rig.coordinator.manager.list_groups([], []) == (NONE, [])
            assert rig.committed() == -1


async def test_an_empty_group_ends_with_the_last_of_its_offsets(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running() as rig:
        me = await rig.enter()
        assert await rig.commit(5, me=me) is NONE
        await rig.coordinator.leave("g", [LeavingMember(me.member_id)]).wait()
        deleted = await rig.coordinator.delete_offsets("g", [("t", 0)])
        assert (deleted.error, deleted.errors) == (NONE, {("t", 0): NONE})
        again = await rig.coordinator.delete_offsets("g", [("t", 0)])
        assert again.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert await rig.coordinator.delete_group("g") is ErrorCode.GROUP_ID_NOT_FOUND
        async with rig.made_anew():
            assert rig.coordinator.manager.list_groups([], []) == (NONE, [])


async def test_offsets_of_a_transaction_wait_for_its_marker(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running() as rig:
        producer = Producer(9, 0)
        assert await rig.commit(5, producer=producer) is NONE
        assert rig.committed() == -1
        _, found = rig.coordinator.manager.fetch_offsets("g", [("t", 0)], require_stable=True)
        assert found[("t", 0)].error is ErrorCode.UNSTABLE_OFFSET_COMMIT
        rig.log.end_transaction(0, 9, commit=True)
        rig.coordinator.transaction_completed(9, 0, 1, commit=True)
        assert rig.committed() == 5
        assert rig.log.batches[0][0].is_transactional


async def test_damaged_records_are_skipped(autojump_clock: trio.testing.MockClock) -> None:
    def damage(log: FakeLog) -> None:
        bad = InternalRecord(0, b"\x00\x01\x00", b"")
        log.batches[0] = [
            InternalBatch(0, 0, -1, False, False, [bad]),
            InternalBatch(1, 4, -1, False, False, [], damage="checksum mismatch"),
        ]

    async with running(prepare=damage) as rig:
        assert await rig.commit(5) is NONE
        assert rig.committed() == 5
        assert rig.log.records(0)[-1].offset == 5


async def test_groups_of_other_partitions_begin_anew_and_are_told_of(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else has enlarged the topic. What is in the log stays there."""
    told: list[tuple[str, Any]] = []
    monkeypatch.setattr(Logger, "warning", lambda _, event, **fields: told.append((event, fields)))
    names = [f"group-{number}" for number in range(12)]
    damaged = InternalBatch(0, 0, -1, False, False, [], damage="checksum mismatch")
    async with running() as rig:
        # What cannot be read is told of apart.
        rig.log.batches[0] = [damaged]
        for name in names:
            assert await rig.commit(5, group=name) is NONE
        rig.topic.count = 3
        rig.topic.lead(1)
        rig.topic.lead(2)
        async with rig.made_anew():
            found = {name: rig.committed(name) for name in names}
            left_out = [name for name, offset in found.items() if offset == -1]
            for name in left_out:
                assert await rig.commit(6, group=name) is NONE
        assert found == {name: 5 if partition_for(name, 3) == 0 else -1 for name in names}
        assert EXAMPLES_MAX < len(left_out) < len(names)
        [(event, fields)] = told
        assert (event, fields["partition"]) == ("groups_displaced", 0)
        assert (fields["count"], fields["examples"]) == (len(left_out), left_out[:EXAMPLES_MAX])
        assert len(rig.log.records(0)) == len(names)
        async with rig.made_anew():
            again = {name: rig.committed(name) for name in names}
        assert again == {name: 6 if name in left_out else 5 for name in names}


async def test_groups_stay_where_they_are_while_the_topic_is_enlarged(
    autojump_clock: trio.testing.MockClock,
) -> None:
    names = [f"group-{number}" for number in range(12)]
    async with running() as rig:
        rig.topic.count = 3
        rig.topic.lead(1)
        rig.topic.lead(2)
        await rig.loaded()
        for name in names:
            assert await rig.coordinator.find_partition(name) == 0
            assert await rig.commit(5, group=name) is NONE
        assert len(rig.log.records(0)) == len(names)
        assert await rig.make().find_partition("group-1") == partition_for("group-1", 3) > 0


async def test_a_cancelled_request_leaves_nothing_behind(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running() as rig:
        with trio.move_on_after(1):
            await rig.join()
        assert not rig.coordinator._pending
        await trio.sleep(400)
        assert rig.coordinator.manager.describe_group("g").state == "Empty"


async def test_offsets_of_a_topic_that_is_deleted_during_a_load_are_forgotten(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(FakeTopic(1, {0: 0})) as rig:
        assert await rig.commit(5) is NONE
        kept = CommitRequest("kept", -1, "", None, {("u", 0): Offset(6)})
        assert (await rig.coordinator.commit(kept).wait()).errors == {("u", 0): NONE}
        for is_open in (False, True):
            # Another broker led in between; the next load waits until the log is released.
            rig.log.hold()
            rig.topic.opening.add(0)
            rig.topic.resign(0)
            await trio.testing.wait_all_tasks_blocked()
            if is_open:
                rig.topic.lead(0, epoch=9)
                await trio.testing.wait_all_tasks_blocked()
                assert rig.coordinator.manager.is_loading
            await rig.forget([("t", 0)])
            if not is_open:
                rig.topic.lead(0, epoch=8)
            rig.log.release()
            await rig.loaded()
            assert rig.committed() == -1
            _, found = rig.coordinator.manager.fetch_offsets("kept", None, require_stable=False)
            assert [one.offset for one in found.values()] == [6]
            # It is recreated and loaded; earlier deletions do not affect it.
            assert await rig.commit(7) is NONE
            rig.topic.lead(0, epoch=10 + is_open)
            await trio.testing.wait_all_tasks_blocked()
            await rig.loaded()
            assert rig.committed() == 7


async def test_topic_deletion_skips_partitions_led_elsewhere(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(FakeTopic(1, {0: 0})) as rig:
        rig.topic.opening.add(0)
        rig.topic.resign(0)
        await trio.testing.wait_all_tasks_blocked()
        await rig.forget([("t", 0)])
        rig.topic.opening.clear()
        rig.topic.changes.notify()
        rig.topic.lead(0, epoch=1)
        await rig.loaded()
        rig.topic.resign(0)
        await trio.testing.wait_all_tasks_blocked()
        assert rig.coordinator.manager._deleted == {}
