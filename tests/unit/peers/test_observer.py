"""What a broker's port tells of its process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from pyrklog.peers import observer
from pyrklog.peers.connection import Address
from pyrklog.peers.observer import Observer
from tests.unit.peers.fake_peer import FakePeer, free_address

TRUSTED, SUSPECTED = True, False


class Told:
    """What the observer said."""

    def __init__(self) -> None:
        self.said: list[bool] = []
        self._changed = trio.Event()

    def __call__(self, is_trusted: bool) -> None:
        self.said.append(is_trusted)
        self._changed.set()
        self._changed = trio.Event()

    async def wait(self, *said: bool) -> None:
        with trio.fail_after(30):
            while self.said != list(said):
                await self._changed.wait()


@asynccontextmanager
async def observing(address: Address | None) -> AsyncIterator[Told]:
    told = Told()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Observer(lambda: address, told).run)
        yield told
        nursery.cancel_scope.cancel()


async def nothing(_frame: bytes) -> bytes | None:
    return None


async def test_a_port_that_refuses_twice_makes_a_suspect() -> None:
    async with observing(await free_address()) as told:
        await told.wait(SUSPECTED)


async def test_a_process_that_ends_is_suspected_and_trusted_again_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observer, "LATER_SECONDS", 0.1)
    monkeypatch.setattr(observer, "TRUST_SECONDS", 0.3)
    address = await free_address()
    async with observing(address) as told:
        await told.wait(SUSPECTED)
        async with FakePeer(nothing).listening(address[1]):
            await told.wait(SUSPECTED, TRUSTED)
        await told.wait(SUSPECTED, TRUSTED, SUSPECTED)


async def test_a_broker_that_ends_connections_and_takes_new_ones_is_no_suspect() -> None:
    enough = trio.Event()

    class Restless(FakePeer):
        async def _serve(self, stream: trio.SocketStream) -> None:
            self.connections += 1
            await stream.aclose()
            if self.connections == 4:
                enough.set()

    peer = Restless(nothing)
    async with peer.listening(), observing(peer.address) as told:
        with trio.fail_after(30):
            await enough.wait()
        assert told.said == []


async def test_a_broker_without_an_address_is_no_suspect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "LATER_SECONDS", 0.0)
    asked = 0
    enough = trio.Event()

    def address() -> Address | None:
        nonlocal asked
        asked += 1
        if asked == 5:
            enough.set()
        return None

    told = Told()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Observer(address, told).run)
        with trio.fail_after(30):
            await enough.wait()
        nursery.cancel_scope.cancel()
    assert told.said == []
