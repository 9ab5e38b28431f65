"""A connection to another broker, to a correct one and to faulty ones."""

import errno
import struct
from collections.abc import Sequence

import pytest
import trio

from pyrklog.peers.connection import (
    ANSWER_BYTES_MAX,
    Address,
    PeerConnection,
    PeerError,
    PeerRefusedError,
)
from pyrklog.protocol.to_controller import ALTER_PARTITION
from tests.unit.peers.fake_peer import Answer, FakePeer, echo, free_address

TIMEOUT_S = 20.0


def connection(address: Address | None, timeout_s: float = TIMEOUT_S) -> PeerConnection:
    return PeerConnection(lambda: address, client_id="broker-1", timeout_seconds=timeout_s)


async def call(peer: PeerConnection, body: bytes) -> bytes:
    return await peer.call(ALTER_PARTITION, 3, body)


async def echoing(frame: bytes) -> bytes:
    return echo(frame)


async def test_requests_go_over_one_connection_and_are_answered() -> None:
    frames = []

    async def answer(frame: bytes) -> bytes:
        frames.append(frame)
        return echo(frame)

    peer = FakePeer(answer)
    async with peer.listening():
        sender = connection(peer.address)
        large = bytes(1_000_000)
        assert [await call(sender, body) for body in (b"one", b"", large)] == [b"one", b"", large]
        await sender.close()
    assert peer.connections == 1
    head = struct.pack(">hhih8sb", 56, 3, 1, 8, b"broker-1", 0)
    assert frames[0] == head + b"one"


async def test_tagged_fields_of_the_header_are_skipped() -> None:
    async def answer(frame: bytes) -> bytes:
        return frame[4:8] + b"\x02\x00\x03abc\x07\x00" + b"body"

    peer = FakePeer(answer)
    async with peer.listening():
        sender = connection(peer.address)
        assert await call(sender, b"") == b"body"
        await sender.close()


async def test_request_to_a_closed_port_is_refused() -> None:
    sender = connection(await free_address())
    with pytest.raises(PeerRefusedError, match="refuses connections"):
        await call(sender, b"")


def failing(number: int) -> OSError:
    return OSError(number, "one address")  # of the number's class


@pytest.mark.parametrize(
    ("numbers", "is_refused"),
    [
        ([errno.ECONNREFUSED], True),
        ([errno.ECONNREFUSED, errno.ECONNREFUSED], True),
        # No IPv6 on this machine.
        ([errno.EADDRNOTAVAIL, errno.ECONNREFUSED], True),
        ([errno.ENETUNREACH, errno.ECONNREFUSED], True),
        ([errno.ENETUNREACH], False),
        # A slow or distant broker may listen at the other address.
        ([errno.ETIMEDOUT, errno.ECONNREFUSED], False),
        ([errno.ECONNREFUSED, errno.EHOSTUNREACH], False),
        ([errno.ETIMEDOUT], False),
    ],
)
async def test_a_host_refuses_when_all_of_its_addresses_do(
    numbers: Sequence[int], is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_host: str, _port: int) -> trio.SocketStream:
        await trio.lowlevel.checkpoint()
        group = ExceptionGroup("all attempts failed", [failing(number) for number in numbers])
        raise OSError("all attempts failed") from group

    monkeypatch.setattr(trio, "open_tcp_stream", fail)
    with pytest.raises(PeerError) as raised:
        await call(connection(("host", 9092)), b"")
    assert isinstance(raised.value, PeerRefusedError) is is_refused


async def test_request_without_an_address_fails_as_unreachable() -> None:
    with pytest.raises(PeerError, match="not known"):
        await call(connection(None), b"")


async def close(_frame: bytes) -> None:
    return None


async def another_id(frame: bytes) -> bytes:
    return b"\0\0\0\x63" + echo(frame)[4:]


async def no_header(_frame: bytes) -> bytes:
    return b"\0\0"


async def lying_tags(frame: bytes) -> bytes:
    return frame[4:8] + b"\x01\x00\x7fabc"


@pytest.mark.parametrize("bad", [close, another_id, no_header, lying_tags])
async def test_bad_answer_makes_the_connection_reconnect(bad: Answer) -> None:
    answers = [bad, echoing]

    async def answer(frame: bytes) -> bytes | None:
        return await answers.pop(0)(frame)

    peer = FakePeer(answer)
    async with peer.listening():
        sender = connection(peer.address)
        with pytest.raises(PeerError):
            await call(sender, b"one")
        assert await call(sender, b"two") == b"two"
        await sender.close()
    assert peer.connections == 2


@pytest.mark.parametrize("length", [-1, ANSWER_BYTES_MAX + 1])
async def test_impossible_frame_length_is_refused_at_once(length: int) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some(1000)
        await stream.send_all(struct.pack(">i", length))
        await stream.receive_some(1)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        sender = connection(("127.0.0.1", listeners[0].socket.getsockname()[1]))
        with pytest.raises(PeerError, match=str(length)):
            await call(sender, b"")
        nursery.cancel_scope.cancel()


async def test_request_times_out_without_an_answer() -> None:
    async def answer(frame: bytes) -> bytes:
        if frame.endswith(b"slow"):
            await trio.sleep_forever()
        return echo(frame)

    peer = FakePeer(answer)
    async with peer.listening():
        sender = connection(peer.address, timeout_s=0.05)
        with pytest.raises(PeerError, match="no answer"):
            await call(sender, b"slow")
        sender = connection(peer.address)
        assert await call(sender, b"fast") == b"fast"
        await sender.close()


async def test_a_cancelled_call_leaves_no_answer_for_the_next_one() -> None:
    seen = trio.Event()

    async def answer(frame: bytes) -> bytes:
        if frame.endswith(b"slow"):
            seen.set()
            await trio.sleep_forever()
        return echo(frame)

    peer = FakePeer(answer)
    async with peer.listening():
        sender = connection(peer.address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, sender, b"slow")
            await seen.wait()
            nursery.cancel_scope.cancel()
        assert await call(sender, b"fast") == b"fast"
        await sender.close()
    assert peer.connections == 2


@pytest.mark.parametrize(
    "address", [("a..b", 9092), ("x" * 70, 9092), ("a\0b", 9092), ("", 70_000)]
)
async def test_malformed_address_is_an_unreachable_broker(address: Address) -> None:
    """A broker may advertise anything; others must survive connecting to it."""
    with pytest.raises(PeerError):
        await call(connection(address), b"")
