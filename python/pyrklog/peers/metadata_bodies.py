"""The bodies of UpdateMetadata: made once for all brokers, with turns for others in between.

What brokers are told differs in the broker epoch only. With many partitions making it takes longer
than anybody else on this thread should wait.
"""

from __future__ import annotations

from collections import deque

import trio

from pyrklog.cluster import wire
from pyrklog.cluster.requests import UpdateMetadataRequest

KEPT = 4
"""Messages that are kept for the brokers that have yet to be sent them."""


class _Body:
    """One message, which may be being made."""

    def __init__(self, request: UpdateMetadataRequest) -> None:
        self.request = request
        self.turn = trio.Lock()
        self.body: bytes | None = None

    def is_of(self, request: UpdateMetadataRequest) -> bool:
        # Equal ones are one: a message's lists are made for it.
        same = self.request
        return (
            same.topics is request.topics
            and same.brokers is request.brokers
            and same._replace(topics=[], brokers=[], broker_epoch=0)
            == request._replace(topics=[], brokers=[], broker_epoch=0)
        )


class MetadataBodies:
    """See the module."""

    def __init__(self) -> None:
        self._kept: deque[_Body] = deque(maxlen=KEPT)

    async def body_of(self, request: UpdateMetadataRequest) -> bytes:
        """The body of a request. Raises what encoding it does."""
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
