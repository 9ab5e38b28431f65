"""Coordinators' requests to other brokers, over real sockets."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from pyrklog.coordinators.calls import PeerUnreachableError
from pyrklog.peers.broker_calls import CONNECTIONS_MAX, PeerCalls
from pyrklog.protocol.transactions import (
    WRITE_TXN_MARKERS,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

ANSWER = WRITE_TXN_MARKERS.encode_response(WriteTxnMarkersResponse(), 1)


class Peer:
    """Answers each request once it may; ``most`` is the number of requests held at once."""

    def __init__(self) -> None:
        self.may_answer = trio.Event()
        self.connections = 0
        self.held = 0
        self.most = 0
        self.full = trio.Event()

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        while head := await _exactly(stream, 4):
            frame = await _exactly(stream, int.from_bytes(head, "big"))
            self.held += 1
            self.most = max(self.most, self.held)
            if self.held == CONNECTIONS_MAX:
                self.full.set()
            await self.may_answer.wait()
            self.held -= 1
            body = frame[4:8] + b"\0" + ANSWER  # correlation id, no tags
            await stream.send_all(len(body).to_bytes(4, "big") + body)


async def _exactly(stream: trio.SocketStream, count: int) -> bytes:
    found = b""
    while len(found) < count:
        some = await stream.receive_some(count - len(found))
        if not some:
            return b""
        found += some
    return found


async def test_a_slow_answer_holds_up_no_other_request(nursery: trio.Nursery) -> None:
    peer = Peer()
    serve = partial(trio.serve_tcp, peer.serve, 0, host="127.0.0.1")
    [listener] = await nursery.start(serve)
    port = listener.socket.getsockname()[1]
    calls = PeerCalls(1, lambda broker: ("127.0.0.1", port) if broker == 2 else None)
    answered = 0

    async def ask() -> None:
        nonlocal answered
        found = await calls.call(2, WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest([]))
        assert found == WriteTxnMarkersResponse()
        answered += 1

    with trio.fail_after(30):
        async with trio.open_nursery() as clients:
            for _ in range(3 * CONNECTIONS_MAX):
                clients.start_soon(ask)
            await peer.full.wait()
            assert answered == 0
            peer.may_answer.set()
    assert answered == 3 * CONNECTIONS_MAX
    assert peer.most == CONNECTIONS_MAX
    assert peer.connections == CONNECTIONS_MAX, "kept for the next requests"
    await calls.close()


async def test_a_call_ends_when_its_patience_does(nursery: trio.Nursery) -> None:
    """Those too that wait for a connection."""
    peer = Peer()
    [listener] = await nursery.start(partial(trio.serve_tcp, peer.serve, 0, host="127.0.0.1"))
    port = listener.socket.getsockname()[1]
    calls = PeerCalls(1, lambda broker: ("127.0.0.1", port), patience_seconds=0.1)
    given_up = 0

    async def ask() -> None:
        nonlocal given_up
        with pytest.raises(PeerUnreachableError, match="no answer within"):
            await calls.call(2, WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest([]))
        given_up += 1

    with trio.fail_after(30):
        async with trio.open_nursery() as clients:
            for _ in range(3 * CONNECTIONS_MAX):
                clients.start_soon(ask)
    assert given_up == 3 * CONNECTIONS_MAX
    peer.may_answer.set()
    await calls.close()


async def test_an_unknown_broker_cannot_be_reached() -> None:
    calls = PeerCalls(1, lambda broker: None)
    for _ in range(2 * CONNECTIONS_MAX):
        with pytest.raises(PeerUnreachableError):
            await calls.call(3, WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest([]))
