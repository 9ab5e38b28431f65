"""A request that the data plane answers by itself: ApiVersions, version 0.

Neither a disk nor the control plane takes part, so a hanging or busy one does not silence a broker.
"""

from __future__ import annotations

import struct

import trio

ANSWER_BYTES_MAX = 1 << 20
_API_VERSIONS = 18
_VERSION = 0
_RECEIVE_BYTES = 4096


class ProbeError(Exception):
    """The connection has ended, or the answer is wrong."""


async def probe(stream: trio.SocketStream, number: int, client_id: str) -> None:
    """Asks and waits for the answer. Raises :class:`ProbeError`.

    ``number`` is the question's correlation id; ``client_id`` names this broker.
    """
    name = client_id.encode()
    header = struct.pack(">hhih", _API_VERSIONS, _VERSION, number, len(name)) + name
    try:
        await stream.send_all(struct.pack(">i", len(header)) + header)
        length, answered = struct.unpack(">ii", await _receive(stream, 8))
        if answered != number or not 4 <= length <= ANSWER_BYTES_MAX:
            raise ProbeError(f"answer {answered} of {length} bytes to question {number}")
        await _receive(stream, length - 4)
    except trio.BrokenResourceError:
        raise ProbeError("the connection was reset") from None


async def _receive(stream: trio.SocketStream, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        chunk = await stream.receive_some(min(count - len(received), _RECEIVE_BYTES))
        if not chunk:
            raise ProbeError("the connection has ended")
        received += chunk
    return bytes(received)
