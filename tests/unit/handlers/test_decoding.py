"""The control plane's decoded requests take bounded memory, however many arrive."""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing

from pyrklog.handlers import decoding
from pyrklog.handlers.decoding import EXPANSION, SMALL_BYTES, Decoding
from pyrklog.protocol.primitives import DecodeError

BODY = 10_000
ROOM = 3 * BODY * EXPANSION


class Requests:
    def __init__(self) -> None:
        self.decoding = Decoding(ROOM)
        self.decoded: list[int] = []
        self.ended = 0
        self.go = trio.Event()

    async def hold(self, number: int, body_bytes: int = BODY) -> None:
        found = await self.decoding.decode(body_bytes, partial(self.decode, number))
        if found is None:
            self.ended += 1
            return
        _, size = found
        await self.go.wait()
        self.decoding.give_back(size)
        self.ended += 1

    def decode(self, number: int) -> None:
        self.decoded.append(number)


async def test_decoding_waits_for_memory(autojump_clock: object) -> None:
    requests = Requests()
    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(requests.hold, number)
        await trio.testing.wait_all_tasks_blocked()
        assert len(requests.decoded) == 3
        nursery.start_soon(requests.hold, 77, SMALL_BYTES)
        await trio.testing.wait_all_tasks_blocked()
        assert requests.decoded[3:] == [77]
        requests.go.set()
        await trio.testing.wait_all_tasks_blocked()
    assert len(requests.decoded) == 11
    assert requests.decoding._held_bytes == 0


async def test_request_larger_than_the_memory_is_decoded_alone(autojump_clock: object) -> None:
    requests = Requests()
    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(requests.hold, number, ROOM)
        await trio.testing.wait_all_tasks_blocked()
        assert len(requests.decoded) == 1
        requests.go.set()
    assert len(requests.decoded) == 2


async def test_other_tasks_run_between_two_decodings(autojump_clock: object) -> None:
    """A hundred requests handed over together do not block the loop."""
    order: list[str] = []
    requests = Requests()
    requests.go.set()

    async def beside() -> None:
        while requests.ended < 20:
            order.append("beside")
            await trio.lowlevel.checkpoint()

    def decode(number: int) -> None:
        order.append("decode")

    requests.decode = decode  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(beside)
        for number in range(20):
            nursery.start_soon(requests.hold, number)
    # Tasks run in any order within a turn of the loop.
    assert "decode decode decode" not in " ".join(order)
    assert order.count("decode") == 20


async def test_request_without_memory_in_time_is_dropped(autojump_clock: object) -> None:
    requests = Requests()
    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(requests.hold, number)
        await trio.sleep(decoding.ROOM_SECONDS + 1)
        assert (len(requests.decoded), requests.ended) == (3, 1)
        requests.go.set()
    assert requests.decoding._held_bytes == 0


async def test_malformed_request_releases_its_memory() -> None:
    def fail() -> None:
        raise DecodeError("planted")

    room = Decoding(ROOM)
    for _ in range(5):
        with pytest.raises(DecodeError):
            await room.decode(ROOM, fail)
    assert room._held_bytes == 0
