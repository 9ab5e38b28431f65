"""The controller's queue to one other broker, with one request at a time.

Requests about a partition arrive in the order of the decisions. What waits for the broker's disk,
as new replicas do, and those that stop, lets others go first: producers may wait for these. A
failed delivery is retried until it succeeds or the broker is given up. What cannot be encoded is
left out and logged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import trio

from pyrklog.base.logs import get_logger
from pyrklog.cluster import wire
from pyrklog.cluster.requests import (
    ControlRequest,
    ControlResponse,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from pyrklog.peers.connection import PeerConnection, PeerError
from pyrklog.protocol import DecodeError
from pyrklog.protocol.inter_broker import TopicPartitions

RETRY_SECONDS = 0.1

log = get_logger("peers")

Answered = Callable[[ControlResponse], None]
Encode = Callable[[ControlRequest], Awaitable[bytes]]


class SendQueue:
    """A :class:`pyrklog.cluster.requests.BrokerChannel`."""

    def __init__(self, broker: int, connection: PeerConnection, encode: Encode) -> None:
        """``encode`` makes a request's body when its turn comes."""
        self.broker = broker
        self._connection = connection
        self._encode = encode
        self._waiting: deque[tuple[ControlRequest, Answered]] = deque()
        self._posted = trio.Event()
        self._is_reachable = True

    def __len__(self) -> int:
        return len(self._waiting)

    def post(self, request: ControlRequest, answered: Answered) -> None:
        """See ``BrokerChannel``."""
        self._waiting.append((request, answered))
        self._posted.set()

    async def run(self) -> None:
        """Sends until cancelled; what waits then is never answered."""
        try:
            while True:
                while not self._waiting:
                    self._posted = trio.Event()
                    await self._posted.wait()
                position = self._next()
                request, answered = self._waiting[position]
                try:
                    response = await self._exchange(request)
                except Exception as error:
                    # The next request may succeed.
                    kind = type(request).__name__.removesuffix("Request")
                    log.error(
                        "control_request_failed", broker=self.broker, request=kind, exc_info=error
                    )
                    del self._waiting[position]
                    continue
                del self._waiting[position]
                answered(response)
        finally:
            with trio.CancelScope(shield=True):
                await self._connection.close()

    def _next(self) -> int:
        """The position of the first request that waits for no disk, and is about nothing that an
        earlier one is about; else of the first one."""
        held: set[TopicPartition] = set()
        for position, (request, _) in enumerate(self._waiting):
            if not (held or _is_slow(request)):
                return position
            keys = _subjects(request)
            is_full = isinstance(request, UpdateMetadataRequest) and request.is_full
            if not (_is_slow(request) or is_full) and held.isdisjoint(keys):
                return position
            held.update(keys)
        return 0

    async def _exchange(self, request: ControlRequest) -> ControlResponse:
        api = wire.api_of(request)
        body = await self._encode_what_can_be(request)
        while True:
            try:
                answer = await self._connection.call(api, api.versions[1], body)
                response = wire.decode_response(request, answer)
            except (PeerError, DecodeError) as error:
                self._failed(error)
                await trio.sleep(RETRY_SECONDS)
                continue
            if not self._is_reachable:
                self._is_reachable = True
                log.info("broker_reached_again", broker=self.broker)
            return response

    async def _encode_what_can_be(self, request: ControlRequest) -> bytes:
        """Leaves out and logs topics that cannot be encoded."""
        try:
            return await self._encode(request)
        except Exception:
            if isinstance(request, StopReplicaRequest):
                raise
        good = [topic for topic in request.topics if await self._is_sendable(request, topic)]
        if isinstance(request, UpdateMetadataRequest):
            # A full message would delete the topics left out.
            return await self._encode(request._replace(topics=good, is_full=False))
        return await self._encode(request._replace(topics=good))

    async def _is_sendable(
        self, request: LeaderAndIsrRequest | UpdateMetadataRequest, topic: TopicPartitions
    ) -> bool:
        try:
            await self._encode(request._replace(topics=[topic]))
        except Exception as error:
            log.error("topic_set_aside", broker=self.broker, topic=topic.topic, reason=str(error))
            return False
        return True

    def _failed(self, error: Exception) -> None:
        """Logs once, not at each try."""
        if self._is_reachable:
            self._is_reachable = False
            log.warning(
                "broker_unreachable",
                broker=self.broker,
                reason=str(error),
                waiting=len(self._waiting),
            )


_METADATA: TopicPartition = ("", -1)
"""Each UpdateMetadata is about this: a broker ignores one that comes after its successor."""


def _subjects(request: ControlRequest) -> list[TopicPartition]:
    if isinstance(request, StopReplicaRequest):
        return [(one.topic, one.partition) for one in request.replicas]
    found = [(topic.topic, one.partition) for topic in request.topics for one in topic.partitions]
    return [_METADATA, *found] if isinstance(request, UpdateMetadataRequest) else found


def _is_slow(request: ControlRequest) -> bool:
    if isinstance(request, LeaderAndIsrRequest):
        return all(one.is_new for topic in request.topics for one in topic.partitions)
    return isinstance(request, StopReplicaRequest)
