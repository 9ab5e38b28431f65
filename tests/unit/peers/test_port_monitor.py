"""What a broker's port and answers show of its process."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from pyrklog.peers import port_monitor
from pyrklog.peers.connection import Address, PeerError
from pyrklog.peers.port_monitor import PortMonitor
from tests.unit.peers.fake_peer import FakePeer, free_address, with_probes

TRUSTED, SUSPECTED = True, False


class Told:
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
        nursery.start_soon(PortMonitor(lambda: address, told, client_id="broker-1").run)
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
    monkeypatch.setattr(port_monitor, "LATER_SECONDS", 0.1)
    monkeypatch.setattr(port_monitor, "TRUST_SECONDS", 0.3)
    address = await free_address()
    async with observing(address) as told:
        await told.wait(SUSPECTED)
        async with FakePeer(with_probes(nothing)).listening(address[1]):
            await told.wait(SUSPECTED, TRUSTED)
        await told.wait(SUSPECTED, TRUSTED, SUSPECTED)


async def test_broker_that_ends_connections_but_accepts_new_ones_is_not_suspected() -> None:
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
    monkeypatch.setattr(port_monitor, "LATER_SECONDS", 0.0)
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
        nursery.start_soon(PortMonitor(address, told, client_id="broker-1").run)
        with trio.fail_after(30):
            await enough.wait()
        nursery.cancel_scope.cancel()
    assert told.said == []


# --- silence --------------------------------------------------------------------------------------

LIMIT = 0.25


class Broker:
    """A broker on a clock that jumps: it answers at once unless it stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.questions = 0
        self.is_reached = True
        self._goes_on = trio.Event()
        self._goes_on.set()
        monkeypatch.setattr(port_monitor, "connect", self._connect)
        monkeypatch.setattr(port_monitor, "probe", self._probe)

    def stop(self) -> None:
        self._goes_on = trio.Event()

    def go_on(self) -> None:
        self._goes_on.set()

    async def _connect(self, _host: str, _port: int) -> "Broker":
        await trio.lowlevel.checkpoint()
        if not self.is_reached:
            await trio.sleep(5)
            raise PeerError("does not answer")
        return self

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *_error: object) -> None:
        return None

    async def _probe(self, _stream: object, _number: int, _client_id: str) -> None:
        self.questions += 1
        await self._goes_on.wait()


class Others:
    def __init__(self, agrees: bool) -> None:
        self.agrees = agrees
        self.asked_at: list[float] = []
        self.are_asked = trio.Event()

    async def __call__(self, seconds: float) -> bool:
        self.asked_at.append(trio.current_time())
        self.are_asked.set()
        await trio.sleep(seconds)
        return self.agrees


@asynccontextmanager
async def watching(
    agreed: Callable[[float], Awaitable[bool]] | None,
) -> AsyncIterator[tuple[port_monitor.PortMonitor, Told]]:
    told = Told()
    watcher = PortMonitor(lambda: ("somewhere", 1), told, agreed=agreed, client_id="broker-1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watcher.run)
        await trio.sleep(1)
        assert watcher.is_answering
        yield watcher, told
        nursery.cancel_scope.cancel()


async def test_a_broker_that_answers_is_asked_on_and_on(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    broker, others = Broker(monkeypatch), Others(True)
    async with watching(others) as (watcher, told):
        await trio.sleep(60)
        assert broker.questions > 300
        assert (told.said, others.asked_at, watcher.is_silent) == ([], [], False)


async def test_silence_heard_by_a_witness_makes_a_suspect_within_a_second(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    broker, others = Broker(monkeypatch), Others(True)
    async with watching(others) as (watcher, told):
        broker.stop()
        stopped = trio.current_time()
        await told.wait(SUSPECTED)
        assert trio.current_time() - stopped < 0.7
        assert not watcher.is_answering
        broker.go_on()
        await trio.sleep(port_monitor.TRUST_SECONDS - 1)
        assert told.said == [SUSPECTED]
        await told.wait(SUSPECTED, TRUSTED)
        # The silence before was not business, so the next one is noticed as fast.
        broker.stop()
        stopped = trio.current_time()
        await told.wait(SUSPECTED, TRUSTED, SUSPECTED)
        assert trio.current_time() - stopped < 0.7


async def test_cut_off_broker_is_silent_although_no_question_goes_out(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    broker, others = Broker(monkeypatch), Others(False)
    async with watching(others) as (watcher, told):
        broker.stop()
        broker.is_reached = False
        await trio.sleep(20)
        assert watcher.is_silent
        others.agrees = True
        await told.wait(SUSPECTED)


async def test_silence_heard_by_one_observer_makes_no_suspect(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    broker, others = Broker(monkeypatch), Others(False)
    async with watching(others) as (watcher, told):
        broker.stop()
        await trio.sleep(60)
        assert others.asked_at
        assert (told.said, watcher.is_silent) == ([], True)


async def test_answer_during_the_witness_round_ends_the_suspicion(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    broker, others = Broker(monkeypatch), Others(True)
    async with watching(others) as (_, told):
        broker.stop()
        with trio.fail_after(5):
            await others.are_asked.wait()
        broker.go_on()
        await trio.sleep(60)
        assert told.said == []


async def test_silence_without_witnesses_makes_no_suspect(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    broker = Broker(monkeypatch)
    async with watching(None) as (watcher, told):
        broker.stop()
        heard = []
        for _ in range(2):
            await trio.sleep(LIMIT)
            heard.append(watcher.is_silent)
        assert heard == [False, True]
        broker.go_on()
        await trio.sleep(0.5)
        assert (watcher.is_silent, told.said) == (False, [])


async def test_stalled_observer_suspects_nobody(
    monkeypatch: pytest.MonkeyPatch, mock_clock: trio.testing.MockClock
) -> None:
    """Its clock jumps by half a minute during a question; the unread answer comes after
    the check."""
    broker, others = Broker(monkeypatch), Others(True)
    told = Told()
    watcher = PortMonitor(lambda: ("somewhere", 1), told, agreed=others, client_id="broker-1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watcher.run)
        for _ in range(20):
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(0.03)
        broker.stop()
        for _ in range(10):
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(0.01)
        mock_clock.jump(30)
        await trio.testing.wait_all_tasks_blocked()
        assert (others.asked_at, watcher.is_silent) == ([], False)
        broker.go_on()
        await trio.testing.wait_all_tasks_blocked()
        assert told.said == []
        nursery.cancel_scope.cancel()
