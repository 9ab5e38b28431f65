"""The controller's channels to a cluster's brokers, as brokers come and go."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio
import trio.testing

from pyrklog.cluster import wire
from pyrklog.cluster.requests import (
    ControlRequest,
    ControlResponse,
    LiveBroker,
    StopReplica,
    StopReplicaRequest,
    StopReplicaResponse,
)
from pyrklog.errors import ErrorCode
from pyrklog.peers.channels import PeerChannels, address_of
from pyrklog.peers.connection import Address
from pyrklog.plane.values import BrokerImage
from pyrklog.protocol.inter_broker import STOP_REPLICA
from pyrklog.protocol.observation import OBSERVE_BROKER, ObserveBrokerResponse, Outcome
from tests.unit.peers.fake_peer import FakePeer, free_address, with_probes

LISTENER = "INTERNAL"


class Own:
    def __init__(self) -> None:
        self.asked: list[ControlRequest] = []

    def post(self, request: ControlRequest, answered: Callable[[ControlResponse], None]) -> None:
        self.asked.append(request)


class Obedient:
    def __init__(self) -> None:
        self.broker_epochs: list[int] = []

    async def answer(self, frame: bytes) -> bytes | None:
        client_id_len = int.from_bytes(frame[8:10], "big")
        order = wire.request_of(STOP_REPLICA.decode_request(frame[11 + client_id_len :], 4))
        assert isinstance(order, StopReplicaRequest)
        self.broker_epochs.append(order.broker_epoch)
        message = wire.response_message(order, StopReplicaResponse(ErrorCode.NONE, {}))
        return frame[4:8] + b"\0" + STOP_REPLICA.encode_response(message, 4)


def live(broker: int, epoch: int, address: Address | None) -> LiveBroker:
    endpoints = [("CLIENTS", "nowhere", 1)]
    if address is not None:
        endpoints.append((LISTENER, *address))
    return LiveBroker(BrokerImage(broker, None, endpoints), epoch)


def stop(broker_epoch: int) -> StopReplicaRequest:
    return StopReplicaRequest(1, 1, broker_epoch, [StopReplica("t", 0, 0, False)])


@asynccontextmanager
async def running(own: Own) -> AsyncIterator[PeerChannels]:
    channels = PeerChannels(1, own, LISTENER)
    async with trio.open_nursery() as nursery:
        await nursery.start(channels.run, lambda broker, is_trusted: None)
        yield channels
        nursery.cancel_scope.cancel()


async def answer_to(channels: PeerChannels, broker: int, request: ControlRequest) -> None:
    done = trio.Event()
    channels.to(broker).post(request, lambda _: done.set())
    with trio.fail_after(10):
        await done.wait()


async def test_control_requests_go_to_the_broker_listener_or_locally() -> None:
    own, obedient = Own(), Obedient()
    peer = FakePeer(with_probes(obedient.answer))
    async with peer.listening(), running(own) as channels:
        channels.live({1: live(1, 10, None), 2: live(2, 20, peer.address)})
        channels.to(1).post(stop(10), lambda _: None)
        assert own.asked == [stop(10)]
        await answer_to(channels, 2, stop(20))
        assert obedient.broker_epochs == [20]


async def test_a_broker_that_comes_back_begins_with_an_empty_queue() -> None:
    obedient = Obedient()
    peer = FakePeer(with_probes(obedient.answer))
    async with running(Own()) as channels:
        channels.live({2: live(2, 20, await free_address())})
        before = channels.to(2)
        before.post(stop(20), lambda _: None)
        await trio.testing.wait_all_tasks_blocked()
        async with peer.listening():
            channels.live({2: live(2, 21, peer.address)})
            assert channels.to(2) is not before
            await answer_to(channels, 2, stop(21))
            assert obedient.broker_epochs == [21], "what was for its earlier life is gone"


async def test_a_broker_that_stays_keeps_its_queue_and_may_move() -> None:
    obedient = Obedient()
    peer = FakePeer(with_probes(obedient.answer))
    async with running(Own()) as channels:
        channels.live({2: live(2, 20, await free_address())})
        queue = channels.to(2)
        channels.live({2: live(2, 20, None), 3: live(3, 30, None)})
        assert channels.to(2) is queue
        async with peer.listening():
            channels.live({2: live(2, 20, peer.address)})
            await answer_to(channels, 2, stop(20))


def test_a_broker_without_that_listener_has_no_address() -> None:
    broker = live(2, 20, None).image
    assert address_of(broker, LISTENER) is None
    assert address_of(broker, "CLIENTS") == ("nowhere", 1)


async def test_a_broker_that_two_get_no_answer_from_is_suspected_and_no_other() -> None:
    """The controller and one other are a majority of three."""
    told: list[tuple[int, bool]] = []
    suspected = trio.Event()

    def tell(broker: int, is_trusted: bool) -> None:
        told.append((broker, is_trusted))
        suspected.set()

    async def stands_still(_frame: bytes) -> bytes | None:
        await trio.sleep_forever()

    async def has_no_answer_either(frame: bytes) -> bytes | None:
        answer = OBSERVE_BROKER.encode_response(ObserveBrokerResponse(outcome=Outcome.SILENT), 0)
        return frame[4:8] + b"\0" + answer

    silent, other = FakePeer(stands_still), FakePeer(with_probes(has_no_answer_either))
    async with silent.listening(), other.listening(), trio.open_nursery() as nursery:
        channels = PeerChannels(1, Own(), LISTENER)
        await nursery.start(channels.run, tell)
        addresses = {1: None, 2: silent.address, 3: other.address}
        channels.live({broker: live(broker, 10, at) for broker, at in addresses.items()})
        with trio.fail_after(30):
            await suspected.wait()
        nursery.cancel_scope.cancel()
    assert told == [(2, False)]
