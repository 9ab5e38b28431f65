"""Brokers' statements about a third one, and the controller's conclusion."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from pyrklog.peers import witness
from pyrklog.peers.channels import address_of
from pyrklog.peers.connection import Address
from pyrklog.peers.witness import Witness
from pyrklog.peers.witnesses import View, Witnesses, is_agreed
from pyrklog.plane.values import BrokerImage
from pyrklog.protocol.observation import (
    OBSERVE_BROKER,
    ObserveBrokerRequest,
    ObserveBrokerResponse,
    Outcome,
)
from tests.unit.peers.fake_peer import FakePeer, free_address, with_probes

LISTENER = "INTERNAL"
UNKNOWN, ANSWERED, SILENT = Outcome.UNKNOWN, Outcome.ANSWERED, Outcome.SILENT


async def nothing(_frame: bytes) -> bytes | None:
    return None


async def no_answer(_frame: bytes) -> bytes | None:
    await trio.sleep_forever()


def image(broker: int, address: Address | None) -> BrokerImage:
    endpoints = [("CLIENTS", "nowhere", 1)]
    if address is not None:
        endpoints.append((LISTENER, *address))
    return BrokerImage(broker, None, endpoints)


async def look(address: Address | None, seconds: float = 0.2) -> Outcome:
    with trio.fail_after(30):
        return await Witness(1, lambda: [image(2, address)], LISTENER).look(2, seconds)


async def test_a_broker_that_answers_has_answered() -> None:
    peer = FakePeer(with_probes(nothing))
    async with peer.listening():
        assert await look(peer.address, 20) is ANSWERED


async def test_a_broker_that_takes_connections_and_answers_nothing_is_silent() -> None:
    """Like a stopped process: the kernel still accepts its connections."""
    peer = FakePeer(no_answer)
    async with peer.listening():
        assert await look(peer.address) is SILENT


async def test_refused_closed_or_unknown_address_is_an_unknown_outcome() -> None:
    assert await look(await free_address()) is UNKNOWN
    assert await look(None) is UNKNOWN
    assert await Witness(1, list, LISTENER).look(2, 5) is UNKNOWN
    peer = FakePeer(nothing)
    async with peer.listening():
        assert await look(peer.address, 20) is UNKNOWN


async def test_concurrent_looks_share_one_probe() -> None:
    peer = FakePeer(no_answer)
    outcomes: list[Outcome] = []
    async with peer.listening():
        one = Witness(1, lambda: [image(2, peer.address)], LISTENER)

        async def ask() -> None:
            outcomes.append(await one.look(2, 0.3))

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(ask)
    assert outcomes == [SILENT] * 50
    assert peer.connections == 1


async def test_absurd_observation_time_is_bounded(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async def connect(_host: str, _port: int) -> trio.SocketStream:
        await trio.sleep_forever()

    monkeypatch.setattr(witness, "connect", connect)
    one = Witness(1, lambda: [image(2, ("somewhere", 1))], LISTENER)
    began = trio.current_time()
    assert await one.look(2, 1e9) is SILENT
    assert trio.current_time() - began < 2 * witness.WAIT_MAX_SECONDS
    assert await one.look(2, -5) is SILENT


async def test_stalled_witness_reports_an_unknown_outcome(
    monkeypatch: pytest.MonkeyPatch, mock_clock: trio.testing.MockClock
) -> None:
    async def connect(_host: str, _port: int) -> trio.SocketStream:
        await trio.sleep_forever()

    monkeypatch.setattr(witness, "connect", connect)
    outcomes: list[Outcome] = []
    one = Witness(1, lambda: [image(2, ("somewhere", 1))], LISTENER)

    async def ask() -> None:
        outcomes.append(await one.look(2, 0.25))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(9)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(1)
    assert outcomes == [UNKNOWN]


# --- the controller's side ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("registered", "answering", "expected"),
    [
        # Of two brokers either may be cut off.
        (2, [], False),
        (3, [], False),
        (3, [3], True),
        (4, [3], False),
        (4, [3, 4], True),
        (5, [3], False),
        (5, [3, 4], True),
        (1, [], True),
    ],
)
def test_a_majority_is_more_than_half_of_the_registered(
    registered: int, answering: Sequence[int], expected: bool
) -> None:
    assert View(registered, answering).is_of_a_majority is expected


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([], False),
        ([UNKNOWN], False),
        ([SILENT], True),
        ([SILENT, UNKNOWN, SILENT], True),
        ([SILENT, ANSWERED], False),
        ([ANSWERED], False),
    ],
)
def test_one_answered_witness_prevents_agreement(
    outcomes: Sequence[Outcome], expected: bool
) -> None:
    assert is_agreed(outcomes) is expected


class Asked:
    def __init__(self, outcome: int) -> None:
        self.outcome = outcome
        self.requests: list[ObserveBrokerRequest] = []

    async def __call__(self, frame: bytes) -> bytes | None:
        client_id_len = int.from_bytes(frame[8:10], "big")
        request = OBSERVE_BROKER.decode_request(frame[11 + client_id_len :], 0)
        self.requests.append(request)
        response = ObserveBrokerResponse(outcome=self.outcome)
        return frame[4:8] + b"\0" + OBSERVE_BROKER.encode_response(response, 0)


@asynccontextmanager
async def witnesses(
    registered: int, *outcomes: int
) -> AsyncIterator[tuple[Witnesses, list[Asked]]]:
    asked = [Asked(outcome) for outcome in outcomes]
    peers = {3 + i: FakePeer(with_probes(one)) for i, one in enumerate(asked)}
    async with trio.open_nursery() as nursery:
        started = []
        for peer in peers.values():
            up = trio.Event()
            started.append(up)
            nursery.start_soon(_listen, peer, up)
        for up in started:
            await up.wait()

        def finder(broker: int) -> object:
            return lambda: address_of(image(broker, peers[broker].address), LISTENER)

        yield Witnesses(lambda: View(registered, [2, *peers]), finder, "controller-1"), asked  # type: ignore[arg-type]
        nursery.cancel_scope.cancel()


async def _listen(peer: FakePeer, up: trio.Event) -> None:
    async with peer.listening():
        up.set()
        await trio.sleep_forever()


async def agree(one: Witnesses) -> bool:
    with trio.fail_after(30):
        return await one.agree(2, 20)


async def test_up_to_three_answering_brokers_are_asked() -> None:
    async with witnesses(6, SILENT, SILENT, UNKNOWN, ANSWERED) as (one, asked):
        assert await agree(one)
        assert [len(item.requests) for item in asked] == [1, 1, 1, 0]
        assert asked[0].requests == [ObserveBrokerRequest(2, 20_000)]


async def test_broker_in_a_minority_asks_no_witness() -> None:
    async with witnesses(7, SILENT) as (one, asked):
        assert not await agree(one)
        assert asked[0].requests == []


@pytest.mark.parametrize("outcome", [UNKNOWN, ANSWERED, 77])
async def test_outcome_other_than_silence_is_no_agreement(outcome: int) -> None:
    async with witnesses(3, outcome) as (one, asked):
        assert not await agree(one)
        assert len(asked[0].requests) == 1


async def test_witness_that_does_not_answer_gives_no_agreement() -> None:
    for answer in (nothing, no_answer):
        peer = FakePeer(answer)
        async with peer.listening():
            one = Witnesses(lambda: View(3, [2, 3]), lambda _: lambda: peer.address, "controller-1")  # noqa: B023
            with trio.fail_after(30):
                assert not await one.agree(2, 0.05)
