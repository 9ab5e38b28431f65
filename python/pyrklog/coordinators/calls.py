"""Coordinators' requests to other brokers. Tests implement it."""

from __future__ import annotations

from typing import Any, Protocol

from pyrklog.protocol.api import Api


class PeerUnreachableError(Exception):
    """A broker cannot be reached, or gave no readable answer in time."""


class BrokerCalls(Protocol):
    """Requests to other brokers."""

    async def call(self, broker: int, api: Api[Any, Any], version: int, message: Any) -> Any:
        """Raises :class:`PeerUnreachableError`; the broker may have seen the request."""
