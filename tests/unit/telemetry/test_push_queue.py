"""Pushes that wait to be read."""

import pytest
import trio
import trio.testing

from pyrklog.base.client_places import CLIENT_SHARE
from pyrklog.telemetry.instances import ClientInstance
from pyrklog.telemetry.push_queue import BYTES_MAX, PUSHES_MAX, PushQueue, WaitingPush
from pyrklog.telemetry.subscriptions import Terms

INSTANCE = ClientInstance(bytes(16), {}, Terms([], 1), 0, 0, "192.0.2.1")
OF_CLIENT = PUSHES_MAX // CLIENT_SHARE


def push(client: str, size: int = 1) -> WaitingPush:
    return WaitingPush(INSTANCE, client, 0, bytes(size))


async def test_pushes_are_taken_in_their_order() -> None:
    queue = PushQueue()
    given = [push(client) for client in "abab"]
    assert all(map(queue.put, given))
    assert [await queue.take() for _ in given] == given


async def test_taking_waits_for_a_push(nursery: trio.Nursery) -> None:
    queue = PushQueue()
    taken = []

    async def take() -> None:
        taken.extend([await queue.take(), await queue.take()])

    nursery.start_soon(take)
    await trio.testing.wait_all_tasks_blocked()
    assert taken == []
    assert queue.put(push("a"))
    await trio.testing.wait_all_tasks_blocked()
    assert queue.put(push("b"))
    await trio.testing.wait_all_tasks_blocked()
    assert [one.client for one in taken] == ["a", "b"]


async def test_the_number_is_bounded_for_an_client_and_all() -> None:
    queue = PushQueue()
    for client in "abcd":
        assert all(queue.put(push(client)) for _ in range(OF_CLIENT))
        assert not queue.put(push(client))
    assert len(queue) == PUSHES_MAX
    assert not queue.put(push("e"))
    await queue.take()
    assert not queue.put(push("b"))
    assert queue.put(push("a"))


async def test_the_bytes_are_bounded_for_an_client_and_all() -> None:
    queue = PushQueue()
    quarter = BYTES_MAX // CLIENT_SHARE
    for client in "abcd":
        assert queue.put(push(client, quarter))
        assert not queue.put(push(client))
    assert not queue.put(push("e"))
    for _ in range(CLIENT_SHARE):
        await queue.take()
    assert queue._of_client == {}
    assert queue.put(push("a", BYTES_MAX)), "one of any size"


@pytest.mark.parametrize("size", [0, 1, BYTES_MAX // CLIENT_SHARE])
async def test_what_is_taken_gives_its_place_back(size: int) -> None:
    queue = PushQueue()
    for _ in range(3 * PUSHES_MAX):
        assert queue.put(push("a", size))
        assert (await queue.take()).client == "a"
    assert (len(queue), queue._bytes, queue._of_client) == (0, 0, {})
