"""The controller's queue to one broker: in order, until delivered."""

import struct

import pytest
import trio
import trio.testing

from pyrklog.cluster import wire
from pyrklog.cluster.requests import (
    ControlRequest,
    ControlResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplica,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)
from pyrklog.errors import ErrorCode
from pyrklog.peers.connection import Address, PeerConnection
from pyrklog.peers.send_queue import SendQueue
from pyrklog.protocol.inter_broker import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    PartitionInfo,
    TopicPartitions,
)
from tests.unit.peers.fake_peer import FakePeer, free_address


def stop(partition: int) -> StopReplicaRequest:
    return StopReplicaRequest(1, 1, 1, [StopReplica("t", partition, 0, False)])


class Obedient:
    def __init__(self, failures: int = 0) -> None:
        self.partitions: list[int] = []
        self._failures = failures

    async def answer(self, frame: bytes) -> bytes | None:
        (client_id_len,) = struct.unpack_from(">h", frame, 8)
        request = wire.request_of(STOP_REPLICA.decode_request(frame[11 + client_id_len :], 4))
        assert isinstance(request, StopReplicaRequest)
        if self._failures:
            self._failures -= 1
            return None
        key = request.replicas[0].topic, request.replicas[0].partition
        self.partitions.append(key[1])
        response = StopReplicaResponse(ErrorCode.NONE, {key: ErrorCode.NONE})
        return (
            frame[4:8]
            + b"\0"
            + STOP_REPLICA.encode_response(wire.response_message(request, response), 4)
        )


class Controller:
    def __init__(self, address: Address | None) -> None:
        self.address = address
        connection = PeerConnection(lambda: self.address, client_id="1", timeout_seconds=20)
        self.queue = SendQueue(2, connection, self._encode)
        self.answers: list[ControlResponse] = []
        self._answered = trio.Event()

    async def _encode(self, request: ControlRequest) -> bytes:
        return wire.encode_request(request, {}, "PLAINTEXT")

    def order(self, request: ControlRequest) -> None:
        self.queue.post(request, self._take)

    def post(self, partition: int) -> None:
        self.queue.post(stop(partition), self._take)

    def _take(self, response: ControlResponse) -> None:
        self.answers.append(response)
        self._answered.set()
        self._answered = trio.Event()

    async def wait_for(self, count: int) -> None:
        with trio.fail_after(20):
            while len(self.answers) < count:
                await self._answered.wait()


@pytest.mark.parametrize("failures", [0, 2])
async def test_requests_are_delivered_in_order_despite_failures(failures: int) -> None:
    broker = Obedient(failures)
    peer = FakePeer(broker.answer)
    async with peer.listening(), trio.open_nursery() as nursery:
        controller = Controller(peer.address)
        for partition in range(5):
            controller.post(partition)
        nursery.start_soon(controller.queue.run)
        await controller.wait_for(5)
        controller.post(5)
        await controller.wait_for(6)
        nursery.cancel_scope.cancel()
    assert broker.partitions == list(range(6))
    last = StopReplicaResponse(ErrorCode.NONE, {("t", 5): ErrorCode.NONE})
    assert controller.answers[-1] == last
    assert peer.connections == 1 + failures


async def test_late_broker_gets_its_queued_requests() -> None:
    broker = Obedient()
    peer = FakePeer(broker.answer)
    controller = Controller(await free_address())
    controller.post(0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(controller.queue.run)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(controller.queue) == 1
        async with peer.listening():
            controller.address = peer.address
            await controller.wait_for(1)
            nursery.cancel_scope.cancel()
    assert (broker.partitions, len(controller.queue)) == ([0], 0)


def infos(*partitions: int, is_new: bool = False) -> list[TopicPartitions]:
    found = [PartitionInfo(one, 1, 1, 5, (1,), 3, (1, 2), is_new=is_new) for one in partitions]
    return [TopicPartitions("t", b"1" * 16, found)]


def lead(*partitions: int, is_new: bool = False) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(1, 1, 1, infos(*partitions, is_new=is_new))


def metadata(*partitions: int, is_full: bool = False) -> UpdateMetadataRequest:
    topics = [] if is_full else infos(*partitions)
    return UpdateMetadataRequest(1, 1, 1, topics, [], number=1, is_full=is_full)


class Slow:
    """Answers its first request, of new replicas, once it may."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.is_asked = trio.Event()
        self.may_answer = trio.Event()

    async def answer(self, frame: bytes) -> bytes:
        (api_key, version) = struct.unpack_from(">hh", frame, 0)
        (client_id_len,) = struct.unpack_from(">h", frame, 8)
        api = next(
            api for api in (LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA) if api.key == api_key
        )
        request = wire.request_of(api.decode_request(frame[11 + client_id_len :], version))
        response: ControlResponse = ErrorCode.NONE
        if isinstance(request, LeaderAndIsrRequest):
            led = request.topics[0].partitions
            new = " new" if led[0].is_new else ""
            self.told.append(f"lead {[one.partition for one in led]}{new}")
            response = LeaderAndIsrResponse(ErrorCode.NONE, {})
        elif isinstance(request, StopReplicaRequest):
            self.told.append(f"stop {[one.partition for one in request.replicas]}")
            response = StopReplicaResponse(ErrorCode.NONE, {})
        else:
            named = [one.partition for topic in request.topics for one in topic.partitions]
            self.told.append(f"metadata {named}")
        if len(self.told) == 1:
            self.is_asked.set()
            await self.may_answer.wait()
        return (
            frame[4:8]
            + b"\0"
            + api.encode_response(wire.response_message(request, response), version)
        )


async def test_what_waits_for_a_disk_lets_others_go_first_but_not_those_about_its_replicas() -> (
    None
):
    broker = Slow()
    peer = FakePeer(broker.answer)
    async with peer.listening(), trio.open_nursery() as nursery:
        controller = Controller(peer.address)
        requests: list[ControlRequest] = [
            lead(0, 1, is_new=True),
            lead(2, 3, is_new=True),
            stop(4),
            lead(3, 5),
            lead(5),
            metadata(6),
            lead(1, 6),
            metadata(4, 6),
            metadata(6),
            metadata(is_full=True),
            lead(7),
        ]
        controller.order(requests[0])
        nursery.start_soon(controller.queue.run)
        with trio.fail_after(20):
            await broker.is_asked.wait()
        for request in requests[1:]:
            controller.order(request)
        broker.may_answer.set()
        await controller.wait_for(len(requests))
        nursery.cancel_scope.cancel()
    assert broker.told == [
        "lead [0, 1] new",
        "metadata [6]",
        "lead [1, 6]",
        "lead [7]",
        "lead [2, 3] new",
        # It waited for 3, and the next one for it.
        "lead [3, 5]",
        "lead [5]",
        "stop [4]",
        "metadata [4, 6]",
        "metadata [6]",
        "metadata []",
    ]
    assert len(controller.queue) == 0


class Told:
    def __init__(self) -> None:
        self.requests: list[UpdateMetadataRequest] = []

    async def answer(self, frame: bytes) -> bytes:
        (client_id_len,) = struct.unpack_from(">h", frame, 8)
        body = frame[11 + client_id_len :]
        request = wire.request_of(UPDATE_METADATA.decode_request(body, 8))
        assert isinstance(request, UpdateMetadataRequest)
        self.requests.append(request)
        message = wire.response_message(request, ErrorCode.NONE)
        return frame[4:8] + b"\0" + UPDATE_METADATA.encode_response(message, 8)


def metadata_of(*names: str) -> UpdateMetadataRequest:
    topics = [TopicPartitions(name, b"1" * 16, []) for name in names]
    return UpdateMetadataRequest(1, 1, 1, topics, [], number=1, is_full=True)


async def test_request_part_beyond_message_bounds_is_left_out() -> None:
    broker = Told()
    peer = FakePeer(broker.answer)
    async with peer.listening(), trio.open_nursery() as nursery:
        controller = Controller(peer.address)
        nursery.start_soon(controller.queue.run)
        # No part can be left out to fix an epoch of more than 32 bits: none of that request is
        # sent.
        controller.order(metadata_of("never")._replace(controller_epoch=2**40))
        controller.order(metadata_of("good", "half a \ud800 character"))
        controller.order(metadata_of("good"))
        await controller.wait_for(2)
        nursery.cancel_scope.cancel()
    assert [[topic.topic for topic in told.topics] for told in broker.requests] == [["good"]] * 2
    # A message with all topics would delete the one left out.
    assert [told.is_full for told in broker.requests] == [False, True]
    assert controller.answers == [ErrorCode.NONE] * 2
    assert len(controller.queue) == 0
