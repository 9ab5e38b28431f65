"""Waiting requests: their effect on others, their time limit, and their end."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from pyrklog.base.pending import Pending
from pyrklog.errors import ErrorCode
from pyrklog.groups.messages import JoinRequest
from pyrklog.groups.options import GroupSettings
from pyrklog.handlers.context import LIMIT_SECONDS
from pyrklog.handlers.dispatch import Handlers
from pyrklog.handlers.events import EventHandler
from pyrklog.handlers.requests_waiting import PLACE_SECONDS, WaitingRequests
from pyrklog.protocol.configs import DescribeConfigsRequest, DescribeConfigsResource
from pyrklog.protocol.groups import HeartbeatRequest, JoinGroupRequest, JoinGroupRequestProtocol
from pyrklog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyrklog.protocol.registry import find_api
from pyrklog.protocol.topics import CreatableTopic, CreateTopicsRequest
from pyrklog.testing.fake_plane import FakePlane, FakeRequest
from tests.unit.groups.rig import PROTOCOLS, Rig, running
from tests.unit.handlers.fake_service import FakeService, make_handlers
from tests.unit.handlers.test_groups import Client

COMMIT, JOIN, HEARTBEAT, CREATE_TOPICS, DESCRIBE_CONFIGS = 8, 11, 12, 19, 32
PLACES = 50
MANY = 60
AT_ONCE = GroupSettings(initial_rebalance_delay_ms=0)


class AbsentStore(FakeService):
    def _answer(self, name: str, argument: Any) -> Any:
        raise AssertionError("it is asked for what needs no store")

    async def create_topics(self, *_specs: Any, **_terms: Any) -> Any:
        await trio.sleep_forever()

    async def describe_configs(self, *_resources: Any, **_terms: Any) -> Any:
        await trio.sleep_forever()


class Stage:
    """A plane with few places, and the handlers of its events."""

    def __init__(self, rig: Rig, handlers: Handlers, nursery: trio.Nursery) -> None:
        self.rig = rig
        self.plane = FakePlane()
        self.plane.places = PLACES
        nothing: Any = None
        self.events = EventHandler(
            node_id=1,
            plane=self.plane,
            store=nothing,
            service=nothing,
            replication=nothing,
            load_handlers=lambda: handlers,
            log_dir_count=1,
            on_all_log_dirs_failed=lambda: None,
            nursery=nursery,
        )
        self._ids = itertools.count(1)

    def send(self, key: int, version: int, message: Any) -> int:
        number = next(self._ids)
        body = find_api(key).encode_request(message, version)
        request: Any = FakeRequest(number, key, version, body)
        self.plane.request(request)
        return number

    async def answer(self, key: int, version: int, number: int) -> Any:
        await self.plane.wait_until(lambda: number in self.plane.replies)
        return find_api(key).decode_response(self.plane.replies[number], version)

    async def heartbeat(self, member_id: str, group: str = "bystander") -> ErrorCode:
        """From a member of the first generation; must be answered at once."""
        before = trio.current_time()
        number = self.send(HEARTBEAT, 0, HeartbeatRequest(group, 1, member_id))
        answer = await self.answer(HEARTBEAT, 0, number)
        assert trio.current_time() == before
        return ErrorCode(answer.error_code)

    def leave_all(self, numbers: list[int]) -> None:
        for number in numbers:
            self.plane.client_gone(number)

    async def nothing_waits(self) -> None:
        await self.plane.wait_until(lambda: self.plane.unanswered() == 0)
        await trio.testing.wait_all_tasks_blocked()
        assert len(self.events._waiting) == 0
        assert self.rig.coordinator._pending == {}


@asynccontextmanager
async def staged(service: FakeService | None = None) -> AsyncIterator[Stage]:
    async with running(settings=AT_ONCE) as rig, trio.open_nursery() as nursery:
        handlers = make_handlers(service or Client(rig).service, rig.coordinator)
        stage = Stage(rig, handlers, nursery)
        stage.events.preload()
        nursery.start_soon(stage.plane.run, stage.events)
        yield stage
        nursery.cancel_scope.cancel()


def commit_of(number: int) -> OffsetCommitRequest:
    offsets = [OffsetCommitRequestTopic("t", [OffsetCommitRequestPartition(0, number)])]
    return OffsetCommitRequest(f"group-{number}", topics=offsets)


def create_topics(number: int) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(f"t{number}", 1, 1)], timeout_ms=30_000)


def describe_configs(_number: int) -> DescribeConfigsRequest:
    return DescribeConfigsRequest([DescribeConfigsResource(2, "t")])


ADMINISTRATION: list[tuple[int, int, Callable[[int], Any], float, ErrorCode]] = [
    (CREATE_TOPICS, 5, create_topics, 32, ErrorCode.REQUEST_TIMED_OUT),
    (DESCRIBE_CONFIGS, 2, describe_configs, LIMIT_SECONDS, ErrorCode.REQUEST_TIMED_OUT),
]


async def test_commits_that_wait_for_replication_keep_no_heartbeat_out(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with staged() as stage:
        me = await stage.rig.enter("bystander")
        stage.rig.log.hold()
        numbers = [stage.send(COMMIT, 2, commit_of(i)) for i in range(MANY)]
        await stage.plane.wait_until(lambda: len(stage.plane.parked) == MANY)
        assert await stage.heartbeat(me.member_id) is ErrorCode.NONE
        late = stage.send(JOIN, 1, JoinGroupRequest("g", 10_000, 9_000, "x"))
        answer = await stage.answer(JOIN, 1, late)
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID, "others are served, too"
        began = trio.current_time()
        timed_out = await stage.answer(COMMIT, 2, numbers[-1])
        assert timed_out.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert trio.current_time() - began <= 5
        await stage.nothing_waits()


@pytest.mark.parametrize(("key", "version", "make", "limit", "code"), ADMINISTRATION)
async def test_requests_that_wait_for_the_store_let_heartbeats_through_and_time_out(
    key: int,
    version: int,
    make: Callable[[int], Any],
    limit: float,
    code: ErrorCode,
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with staged(AbsentStore()) as stage:
        me = await stage.rig.enter("bystander", session_timeout_ms=100_000)
        began = trio.current_time()
        numbers = [stage.send(key, version, make(i)) for i in range(MANY)]
        await trio.testing.wait_all_tasks_blocked()
        assert len(stage.plane.parked) == 0
        assert await stage.heartbeat(me.member_id) is ErrorCode.NONE
        # All are in, though there are fewer places.
        await stage.plane.wait_until(lambda: len(stage.plane.parked) == MANY)
        assert trio.current_time() - began <= 2 * PLACE_SECONDS + 0.01
        answer = await stage.answer(key, version, numbers[-1])
        assert trio.current_time() - began == pytest.approx(limit, abs=1)
        [result] = answer.topics if key == CREATE_TOPICS else answer.results
        assert result.error_code == code
        await stage.nothing_waits()


@pytest.mark.parametrize("key", [COMMIT, JOIN, CREATE_TOPICS])
async def test_waiting_request_ends_with_its_connection(
    key: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with staged(None if key != CREATE_TOPICS else AbsentStore()) as stage:
        stage.rig.log.hold()
        protocols = [JoinGroupRequestProtocol("range", b"")]
        # Nobody is answered before the first member joins again, which it does not.
        first = stage.rig.coordinator.join(
            JoinRequest("g", "", None, "c", "/h", 100_000, 100_000, "consumer", PROTOCOLS)
        )
        await first.wait()
        make: dict[int, Callable[[int], Any]] = {
            COMMIT: commit_of,
            CREATE_TOPICS: create_topics,
            JOIN: lambda _: JoinGroupRequest(
                "g", 100_000, 100_000, "", None, "consumer", protocols
            ),
        }
        version = {COMMIT: 2, CREATE_TOPICS: 5, JOIN: 1}[key]
        numbers = [stage.send(key, version, make[key](i)) for i in range(MANY)]
        await stage.plane.wait_until(lambda: len(stage.plane.parked) == MANY)
        began = trio.current_time()
        stage.leave_all(numbers)
        await stage.nothing_waits()
        assert trio.current_time() == began
        assert sorted(stage.plane.closed) == numbers


async def test_request_of_a_client_that_leaves_still_has_time_to_finish(
    autojump_clock: trio.testing.MockClock,
) -> None:
    done = []

    class Slow(FakeService):
        async def create_topics(self, *_specs: Any, **_terms: Any) -> Any:
            await trio.sleep(PLACE_SECONDS / 2)
            done.append("created")
            await trio.sleep_forever()

    async with staged(Slow()) as stage:
        number = stage.send(CREATE_TOPICS, 5, create_topics(1))
        stage.plane.client_gone(number)
        await stage.nothing_waits()
        assert done == ["created"]
        assert trio.current_time() == pytest.approx(PLACE_SECONDS)


async def test_memory_of_waiting_requests_is_bounded(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with staged(AbsentStore()) as stage:
        stage.plane.waiting_room = 3
        numbers = [stage.send(CREATE_TOPICS, 5, create_topics(i)) for i in range(5)]
        for number in numbers[3:]:
            answer = await stage.answer(CREATE_TOPICS, 5, number)
            assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert trio.current_time() == pytest.approx(PLACE_SECONDS)
        assert stage.plane.parked == numbers[:3]
        stage.leave_all(numbers[:3])
        await stage.nothing_waits()


@pytest.mark.parametrize("is_loaded", [True, False])
async def test_joins_are_taken_in_the_order_of_their_arrival(
    is_loaded: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """The group's first member leads it. Trio starts tasks of one moment in any order."""
    protocols = [JoinGroupRequestProtocol("range", b"")]
    settings = GroupSettings(initial_rebalance_delay_ms=100)
    async with running(settings=settings) as rig, trio.open_nursery() as nursery:
        stage = Stage(rig, make_handlers(Client(rig).service, rig.coordinator), nursery)
        if is_loaded:
            stage.events.preload()
        nursery.start_soon(stage.plane.run, stage.events)
        request = JoinGroupRequest("g", 10_000, 9_000, "", None, "consumer", protocols)
        numbers = [stage.send(JOIN, 1, request) for _ in range(20)]
        answers = [await stage.answer(JOIN, 1, number) for number in numbers]
        # Ids are numbered as they are handed out.
        assert [answer.member_id for answer in answers] == [f"test-{i}" for i in range(1, 21)]
        assert {answer.leader for answer in answers} == {"test-1"}
        nursery.cancel_scope.cancel()


class Waiter:
    """One request that waits for a result."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.pending: Pending[int] = Pending(lambda: self.told.append("abandoned"))

    def start(self, waiting: WaitingRequests, request_id: int, seconds: float | None) -> None:
        def tell(what: str) -> Callable[[], None]:
            return lambda: self.told.append(what)

        limit = None if seconds is None else (seconds, tell("late"))
        waiting.start_pending(request_id, self.pending, tell("answer"), tell("no room"), limit)


@asynccontextmanager
async def waiting_requests() -> AsyncIterator[tuple[WaitingRequests, FakePlane]]:
    async with trio.open_nursery() as nursery:
        plane = FakePlane()
        yield WaitingRequests(plane, nursery), plane
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def test_a_result_becomes_the_answer_without_a_task(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with waiting_requests() as (waiting, plane):
        one = Waiter()
        one.start(waiting, 1, None)
        assert plane.parked == [1]
        one.pending.answer(5)
        assert one.told == ["answer"]
        assert len(waiting) == 0


async def test_a_result_that_comes_too_late_is_not_waited_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with waiting_requests() as (waiting, _):
        early, late, later, without = (Waiter() for _ in range(4))
        early.start(waiting, 1, 20)
        late.start(waiting, 2, 20)
        without.start(waiting, 3, None)
        await trio.sleep(5)
        later.start(waiting, 4, 20)
        early.pending.answer(1)
        await trio.sleep(15.1)
        assert late.told == ["abandoned", "late"]
        assert (early.told, later.told, without.told) == (["answer"], [], [])
        late.pending.answer(1)
        assert late.told == ["abandoned", "late"]
        await trio.sleep(5)
        assert later.told == ["abandoned", "late"]
        # The next one has its whole time.
        last = Waiter()
        last.start(waiting, 5, 20)
        await trio.sleep(19.9)
        assert last.told == []
        await trio.sleep(0.2)
        assert last.told == ["abandoned", "late"]
        assert len(waiting) == 1


async def test_a_result_is_given_up_with_its_client_or_without_room(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with waiting_requests() as (waiting, plane):
        gone, refused = Waiter(), Waiter()
        gone.start(waiting, 1, 20)
        waiting.client_gone(1)
        assert gone.told == ["abandoned"]
        assert plane.closed == [1]
        plane.waiting_room = 0
        refused.start(waiting, 2, 20)
        assert refused.told == ["abandoned", "no room"]
        assert len(waiting) == 0
        await trio.sleep(30)
        assert (gone.told, refused.told) == (["abandoned"], ["abandoned", "no room"])


async def test_an_answer_that_fails_hurts_nobody_else(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def fail() -> None:
        raise RuntimeError("planted")

    async with waiting_requests() as (waiting, _):
        pending: Pending[int] = Pending()
        waiting.start_pending(1, pending, fail, fail, (20, fail))
        pending.answer(1)
        late: Pending[int] = Pending()
        waiting.start_pending(2, late, fail, fail, (20, fail))
        next_one = Waiter()
        next_one.start(waiting, 3, 21)
        await trio.sleep(30)
        assert next_one.told == ["abandoned", "late"]
        assert len(waiting) == 0
