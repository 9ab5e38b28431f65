"""Pushes that were answered and are not yet read, within bounds for a client's address and all."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import trio

from pyrklog.base.client_places import CLIENT_SHARE
from pyrklog.telemetry.instances import ClientInstance

PUSHES_MAX = 128
BYTES_MAX = 16 << 20
"""As pushed; more than the largest push."""


class WaitingPush(NamedTuple):
    instance: ClientInstance
    client: str
    """As :func:`pyrklog.base.client_places.client_of` tells it; it has a share of both bounds."""
    codec: int
    metrics: bytes
    round: int = 0
    """Of the instance when it pushed."""


class PushQueue:
    def __init__(self) -> None:
        self._waiting: deque[WaitingPush] = deque()
        self._bytes = 0
        self._of_client: dict[str, tuple[int, int]] = {}
        """Pushes and bytes of those that have some."""
        self._put = trio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, push: WaitingPush) -> bool:
        """False without room. A client may have one of any size."""
        size = len(push.metrics)
        count, of_client = self._of_client.get(push.client, (0, 0))
        if len(self._waiting) >= PUSHES_MAX or self._bytes + size > BYTES_MAX:
            return False
        pushes_max, bytes_max = PUSHES_MAX // CLIENT_SHARE, BYTES_MAX // CLIENT_SHARE
        if count >= pushes_max or (count and of_client + size > bytes_max):
            return False
        self._waiting.append(push)
        self._bytes += size
        self._of_client[push.client] = count + 1, of_client + size
        self._put.set()
        return True

    async def take(self) -> WaitingPush:
        """The first, once there is one. For one task."""
        while not self._waiting:
            self._put = trio.Event()
            await self._put.wait()
        push = self._waiting.popleft()
        size = len(push.metrics)
        self._bytes -= size
        count, of_client = self._of_client.pop(push.client)
        if count > 1:
            self._of_client[push.client] = count - 1, of_client - size
        return push
