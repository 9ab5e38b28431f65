"""Others get turns while groups with very many offsets are answered, loaded or forgotten.

Nothing here is timed: the tests count the work between two turns of the loop.
"""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from pyrklog.errors import ErrorCode
from pyrklog.groups.messages import CommitRequest, Offset, TopicPartition
from pyrklog.handlers.context import Later
from pyrklog.handlers.dispatch import Handlers
from pyrklog.handlers.offsets import FETCHED_AT_ONCE_MAX
from pyrklog.protocol.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from pyrklog.protocol.registry import find_api
from pyrklog.testing.fake_offsets import FakeTopic
from tests.unit.groups.rig import Rig, running
from tests.unit.groups.turns import counted, most_between_turns
from tests.unit.handlers.fake_service import FakeRequest, FakeService

FETCH = 9
MANY = 5 * FETCHED_AT_ONCE_MAX
NONE = ErrorCode.NONE


async def _commit(rig: Rig, group: str, offsets: dict[TopicPartition, Offset]) -> None:
    request = CommitRequest(group, -1, "", None, offsets)
    result = await rig.coordinator.commit(request).wait()
    assert set(result.errors.values()) == {NONE}


def _offsets(count: int) -> dict[TopicPartition, Offset]:
    """Of two topics; the second begins in the middle of a page."""
    half = count // 2 + 7
    names = [("a", i) for i in range(half)] + [("b", i) for i in range(count - half)]
    return {name: Offset(number) for number, name in enumerate(names)}


def _handlers(rig: Rig, elements_max: int) -> Handlers:
    service: Any = FakeService()
    handlers = Handlers(service, rig.coordinator, service, service, service)
    handlers._elements_max = elements_max
    return handlers


def _begin(handlers: Handlers, *groups: str, require_stable: bool = False) -> Any:
    asked = [OffsetFetchRequestGroup(name, topics=None) for name in groups]
    request = OffsetFetchRequest(groups=asked, require_stable=require_stable)
    return handlers.begin(FakeRequest(FETCH, 8, find_api(FETCH).encode_request(request, 8)))


def _answer(body: bytes | None) -> dict[str, tuple[int, dict[TopicPartition, int]]]:
    assert body is not None
    response = find_api(FETCH).decode_response(body, 8)
    return {
        group.group_id: (
            group.error_code,
            {
                (topic.name, one.partition_index): one.committed_offset
                for topic in group.topics
                for one in topic.partitions
            },
        )
        for group in response.groups
    }


async def test_all_offsets_of_groups_are_fetched_in_steps() -> None:
    async with running(FakeTopic(1, {0: 0})) as rig:
        wanted = {"one": _offsets(MANY), "two": _offsets(3), "three": _offsets(MANY + 1)}
        for name, offsets in wanted.items():
            await _commit(rig, name, offsets)
        handlers = _handlers(rig, 4 * MANY)
        for require_stable in (False, True):
            begun = _begin(handlers, *wanted, "none", require_stable=require_stable)
            assert isinstance(begun, Later)
            answer = b""
            done = trio.Event()

            async def take(begun: Later[bytes], done: trio.Event) -> None:
                nonlocal answer
                answer = await begun.wait()
                done.set()

            with counted(rig.coordinator.manager, "fetch_page") as pages:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(take, begun, done)
                    assert await most_between_turns(pages, done) <= 2
                assert pages() > 10
            assert _answer(answer) == {
                **{
                    name: (0, {key: value.offset for key, value in offsets.items()})
                    for name, offsets in wanted.items()
                },
                "none": (0, {}),
            }


async def test_few_offsets_are_fetched_at_once() -> None:
    async with running(FakeTopic(1, {0: 0})) as rig:
        await _commit(rig, "g", _offsets(20))
        assert len(_answer(_begin(_handlers(rig, 100), "g"))["g"][1]) == 20


async def test_gathered_offsets_are_bounded_by_the_request_limit() -> None:
    async with running(FakeTopic(1, {0: 0})) as rig:
        for name in ("one", "two"):
            await _commit(rig, name, _offsets(MANY))
        begun = _begin(_handlers(rig, MANY + 1), "one", "two", "none")
        found = _answer(await begun.wait())
        assert (found["one"][0], len(found["one"][1])) == (0, MANY)
        assert found["two"] == (ErrorCode.UNKNOWN_SERVER_ERROR, {})
        assert found["none"] == (0, {})


async def test_requests_for_many_offsets_do_not_pile_up() -> None:
    async with running(FakeTopic(1, {0: 0})) as rig:
        await _commit(rig, "g", _offsets(MANY))
        handlers = _handlers(rig, MANY)
        async with trio.open_nursery() as nursery:
            begun = [_begin(handlers, "g") for _ in range(3)]
            for one in begun:
                nursery.start_soon(one.wait)
            while handlers._large_answers.statistics().tasks_waiting < 2:
                await trio.lowlevel.checkpoint()
            found = _answer(_begin(handlers, "g"))
            assert found == {"g": (ErrorCode.COORDINATOR_NOT_AVAILABLE, {})}
        assert len(_answer(await _begin(handlers, "g").wait())["g"][1]) == MANY


async def test_the_groups_of_a_partition_that_is_loaded_serve_a_few_at_a_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(FakeTopic(1, {0: 0})) as rig:
        for number in range(200):
            await _commit(rig, f"g{number}", {("t", 0): Offset(number)})
        await _commit(rig, "large", _offsets(MANY))
        rig.topic.resign(0)
        await trio.testing.wait_all_tasks_blocked()
        manager = rig.coordinator.manager
        assert not manager.groups
        done = trio.Event()
        rig.topic.lead(0, epoch=1)

        async def wait() -> None:
            await rig.loaded()
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            assert await most_between_turns(lambda: len(manager.groups), done) <= 40
        assert [rig.committed(f"g{number}") for number in range(200)] == list(range(200))
        _, found = rig.coordinator.manager.fetch_offsets("large", None, require_stable=False)
        assert len(found) == MANY


async def test_topics_that_are_deleted_one_after_the_other_are_forgotten_together(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(FakeTopic(1, {0: 0})) as rig:
        topics = [f"t{number}" for number in range(50)]
        for number in range(100):
            offsets = {(topic, 0): Offset(number) for topic in topics}
            await _commit(rig, f"g{number}", {**offsets, ("kept", 0): Offset(1)})
        manager = rig.coordinator.manager
        with counted(manager, "partitions_deleted") as told:
            async with trio.open_nursery() as nursery:
                for topic in topics:
                    nursery.start_soon(rig.forget, [(topic, 0)])
            assert told() <= 2 * 100, "the first topic, and all others"
        for number in range(100):
            _, found = rig.coordinator.manager.fetch_offsets(
                f"g{number}", None, require_stable=False
            )
            assert list(found) == [("kept", 0)]


async def test_waiting_topic_deletion_reaches_groups_loaded_meanwhile(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(FakeTopic(1, {0: 0})) as rig:
        for number in range(100):
            await _commit(rig, f"g{number}", {("t", 0): Offset(1), ("u", 0): Offset(2)})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.forget, [("other", 0)])
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            nursery.start_soon(rig.forget, [("t", 0)])
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            # Another broker led in between: the groups are loaded anew.
            rig.topic.lead(0, epoch=5)
        await trio.testing.wait_all_tasks_blocked()
        await rig.loaded()
        for number in range(100):
            _, found = rig.coordinator.manager.fetch_offsets(
                f"g{number}", None, require_stable=False
            )
            assert list(found) == [("u", 0)]


async def test_offsets_of_a_new_topic_are_not_forgotten_with_those_of_its_name(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(FakeTopic(1, {0: 0})) as rig:
        for number in range(100):
            await _commit(rig, f"g{number}", {("t", 0): Offset(1), ("u", 0): Offset(2)})

        async def try_commit() -> ErrorCode:
            request = CommitRequest("g50", -1, "", None, {("t", 0): Offset(7), ("u", 0): Offset(8)})
            result = await rig.coordinator.commit(request).wait()
            [code] = set(result.errors.values())
            return code

        rig.coordinator.note_deleted([("t", 0)])
        codes = [await try_commit()]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.coordinator.forget_deleted)
            while codes[-1] is not NONE:
                await trio.lowlevel.checkpoint()
                codes.append(await try_commit())
        assert len(codes) > 2, "it was not yet done"
        assert set(codes) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NONE}
        _, found = rig.coordinator.manager.fetch_offsets("g50", None, require_stable=False)
        assert {key: value.offset for key, value in found.items()} == {("t", 0): 7, ("u", 0): 8}
        _, found = rig.coordinator.manager.fetch_offsets("g51", None, require_stable=False)
        assert list(found) == [("u", 0)]


async def test_a_leadership_that_changes_at_once_is_loaded_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(FakeTopic(1, {0: 0})) as rig:
        await _commit(rig, "g", {("t", 0): Offset(1)})
        rig.topic.lead(0, epoch=1)
        rig.coordinator._ownership._follow()
        rig.topic.lead(0, epoch=2)
        rig.coordinator._ownership._follow()
        await trio.testing.wait_all_tasks_blocked()
        await rig.loaded()
        machine = rig.coordinator.manager.groups["g"]
        await trio.testing.wait_all_tasks_blocked()
        assert rig.coordinator.manager.groups["g"] is machine
        assert not rig.coordinator.manager.is_loading
        assert rig.committed() == 1
