"""Others get turns during requests that name very many offsets, groups or keys.

One such request once held up heartbeats and the controller's requests for seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from pyrklog.errors import ErrorCode
from pyrklog.groups.messages import CommitRequest, Offset
from pyrklog.handlers.context import STEP_ITEMS, Later
from pyrklog.handlers.dispatch import LARGE_BYTES, Handlers
from pyrklog.handlers.offsets import FETCHED_AT_ONCE_MAX
from pyrklog.protocol.coordinators import FindCoordinatorRequest
from pyrklog.protocol.group_admin import DescribeGroupsRequest
from pyrklog.protocol.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from pyrklog.protocol.registry import find_api
from pyrklog.testing.fake_offsets import FakeTopic
from tests.unit.groups.rig import Rig, running
from tests.unit.groups.turns import counted, most_between_turns
from tests.unit.handlers.fake_service import FakeRequest, FakeService

FETCH, FIND, DESCRIBE = 9, 10, 15
MANY = 6 * STEP_ITEMS


def _handlers(rig: Rig) -> Handlers:
    service: Any = FakeService()
    return Handlers(service, rig.coordinator, service, service, service)


def _begin(rig: Rig, key: int, version: int, request: Any) -> Any:
    body = find_api(key).encode_request(request, version)
    return _handlers(rig).begin(FakeRequest(key, version, body))


def _named(*topics: OffsetFetchRequestTopic, group: str = "g") -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=list(topics))])


async def _answered(
    rig: Rig, key: int, version: int, request: Any, count: Callable[[], int]
) -> tuple[Any, int]:
    """The answer, and the largest growth of the count between two turns."""
    begun = _begin(rig, key, version, request)
    assert isinstance(begun, Later)
    assert count() == 0, "the loop has it in one turn"
    body = b""
    done = trio.Event()

    async def take() -> None:
        nonlocal body
        body = await begun.wait()
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        most = await most_between_turns(count, done)
    return find_api(key).decode_response(body, version), most


@pytest.mark.parametrize("spread", [False, True], ids=["one topic", "a topic each"])
async def test_offsets_that_are_named(spread: bool) -> None:
    async with running(FakeTopic(1, {0: 0})) as rig:
        offsets = {("t", 1): Offset(5), ("t-4999", 0): Offset(7)}
        committed = rig.coordinator.commit(CommitRequest("g", -1, "", None, offsets))
        assert set((await committed.wait()).errors.values()) == {ErrorCode.NONE}
        if spread:
            topics = [OffsetFetchRequestTopic(f"t-{i}", [0]) for i in range(MANY)]
        else:
            # A partition named twice is answered once.
            topics = [
                OffsetFetchRequestTopic("t", [*range(MANY), 1]),
                OffsetFetchRequestTopic("t", [1]),
            ]
        request = _named(*topics)
        assert len(find_api(FETCH).encode_request(request, 8)) > LARGE_BYTES
        with counted(rig.coordinator.manager, "fetch_offsets") as pages:
            response, most = await _answered(rig, FETCH, 8, request, pages)
        assert most <= 2
        [group] = response.groups
        found = {
            (topic.name, one.partition_index): one.committed_offset
            for topic in group.topics
            for one in topic.partitions
        }
        assert (group.error_code, len(found)) == (0, MANY)
        assert sum(len(topic.partitions) for topic in group.topics) == MANY
        shown = {key: value for key, value in found.items() if value >= 0}
        assert shown == ({("t-4999", 0): 7} if spread else {("t", 1): 5})


async def test_offsets_that_are_named_for_a_coordinator_that_has_moved() -> None:
    async with running(FakeTopic(1, {})) as rig:
        begun = _begin(rig, FETCH, 8, _named(OffsetFetchRequestTopic("t", list(range(MANY)))))
        response = find_api(FETCH).decode_response(await begun.wait(), 8)
        [group] = response.groups
        assert (group.topics, group.error_code) == ([], ErrorCode.NOT_COORDINATOR)


async def test_somewhat_more_offsets_than_a_step_in_a_small_request() -> None:
    async with running(FakeTopic(1, {0: 0})) as rig:
        named = _named(OffsetFetchRequestTopic("t", list(range(FETCHED_AT_ONCE_MAX + 1))))
        begun = _begin(rig, FETCH, 8, named)
        [group] = find_api(FETCH).decode_response(await begun.wait(), 8).groups
        assert len(group.topics[0].partitions) == FETCHED_AT_ONCE_MAX + 1


async def test_coordinators_of_many_groups() -> None:
    async with running(FakeTopic(1, {0: 0})) as rig:
        names = [f"group-{number}" for number in range(MANY)]
        with counted(rig.coordinator, "find") as found:
            request = FindCoordinatorRequest("", 0, names)
            response, most = await _answered(rig, FIND, 4, request, found)
        assert most <= 2 * STEP_ITEMS
        assert [one.key for one in response.coordinators] == names


async def test_descriptions_of_many_groups() -> None:
    async with running(FakeTopic(1, {0: 0})) as rig:
        names = [f"group-{number}" for number in range(MANY)]
        with counted(rig.coordinator.manager, "describe_group") as described:
            request = DescribeGroupsRequest(names)
            response, most = await _answered(rig, DESCRIBE, 5, request, described)
        assert most <= 2 * STEP_ITEMS
        assert [one.group_id for one in response.groups] == names
