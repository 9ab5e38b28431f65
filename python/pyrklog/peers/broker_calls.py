"""Coordinators' requests to other brokers: a few connections to each."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import trio

from pyrklog.cluster.metadata import Metadata
from pyrklog.coordinators.calls import PeerUnreachableError
from pyrklog.peers.channels import find_address
from pyrklog.peers.connection import Address, PeerConnection, PeerError
from pyrklog.protocol import DecodeError
from pyrklog.protocol.api import Api

CONNECTIONS_MAX = 4
"""To one broker: a request that waits for a slow partition must not hold all others."""
ANSWER_TIMEOUT_SECONDS = 30.0


class _Broker:
    def __init__(self) -> None:
        self.limit = trio.CapacityLimiter(CONNECTIONS_MAX)
        self.idle: list[PeerConnection] = []


class PeerCalls:
    """Implements :class:`pyrklog.coordinators.calls.BrokerCalls`."""

    def __init__(
        self,
        node_id: int,
        address_of: Callable[[int], Address | None],
        patience_seconds: float = math.inf,
    ) -> None:
        """``address_of`` gives a broker's address for other brokers, None without one. A call ends
        after ``patience_seconds``, the time that it waits for a connection included."""
        self._patience_seconds = patience_seconds
        self._client_id = f"broker-{node_id}"
        self._address_of = address_of
        self._brokers: dict[int, _Broker] = {}

    async def call(self, broker: int, api: Api[Any, Any], version: int, message: Any) -> Any:
        """Raises :class:`PeerUnreachableError`."""
        with trio.move_on_after(self._patience_seconds):
            return await self._call(broker, api, version, message)
        raise PeerUnreachableError(f"no answer within {self._patience_seconds:g} s")

    async def _call(self, broker: int, api: Api[Any, Any], version: int, message: Any) -> Any:
        known = self._brokers.setdefault(broker, _Broker())
        body = api.encode_request(message, version)
        async with known.limit:
            connection = known.idle.pop() if known.idle else self._connection(broker)
            try:
                answer = await connection.call(api, version, body)
                decoded = api.decode_response(answer, version)
            except (PeerError, DecodeError) as error:
                raise PeerUnreachableError(str(error)) from None
            finally:
                # A failed connection is closed, and connects again at its next use.
                known.idle.append(connection)
            return decoded

    def _connection(self, broker: int) -> PeerConnection:
        return PeerConnection(
            partial(self._address_of, broker),
            client_id=self._client_id,
            timeout_seconds=ANSWER_TIMEOUT_SECONDS,
        )

    async def close(self) -> None:
        for known in self._brokers.values():
            for connection in known.idle:
                await connection.close()
            known.idle.clear()


def calls_of(metadata: Metadata, patience_seconds: float = math.inf) -> PeerCalls:
    """To the brokers that this one knows, on the listener between brokers."""
    listener = metadata.config.listeners.inter_broker
    return PeerCalls(
        metadata.node_id,
        lambda broker: find_address(metadata.image.brokers, broker, listener),
        patience_seconds,
    )
