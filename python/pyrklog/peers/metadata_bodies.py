"""Encodes UpdateMetadata once for all brokers, with pauses for other tasks.

The bodies differ only in the broker epoch. With many partitions encoding takes too long for one
turn of this thread.
"""

from __future__ import annotations

from collections import deque

import trio

from pyrklog.cluster import wire
from pyrklog.cluster.requests import UpdateMetadataRequest

KEPT = 4
"""Bodies kept for brokers that have not been sent them yet."""


class _Body:
    def __init__(self, request: UpdateMetadataRequest) -> None:
        self.request = request
        self.turn = trio.Lock()
        self.body: bytes | None = None

    def is_of(self, request: UpdateMetadataRequest) -> bool:
        # The lists are made for one message: the same lists mean the same message.
        same = self.request
        return (
            same.topics is request.topics
            and same.brokers is request.brokers
            and same._replace(topics=[], brokers=[], broker_epoch=0)
            == request._replace(topics=[], brokers=[], broker_epoch=0)
        )


class MetadataBodies:
    def __init__(self) -> None:
        self._kept: deque[_Body] = deque(maxlen=KEPT)

    async def body_of(self, request: UpdateMetadataRequest) -> bytes:
        """Raises what encoding raises."""
        item = next((one for one in self._kept if one.is_of(request)), None)
        if item is None:
            item = _Body(request)
            self._kept.append(item)
        async with item.turn:
            if item.body is None:
                item.body = await _make(request)
        return wire.with_broker_epoch(item.body, request.broker_epoch)


async def _make(request: UpdateMetadataRequest) -> bytes:
    pieces = wire.metadata_pieces(request)
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            body: bytes = end.value
            return body
        await trio.lowlevel.checkpoint()
