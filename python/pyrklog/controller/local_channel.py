"""The controller's channels to all brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from pyrklog.cluster.requests import BrokerChannel, LiveBroker, OnTrust

if TYPE_CHECKING:
    import trio


class Channels(Protocol):
    """One :class:`BrokerChannel` for each live broker during a term."""

    async def run(self, told: OnTrust, task_status: trio.TaskStatus[None]) -> None:
        """Sends what is posted until cancelled, then drops what waits. Observes the brokers."""

    def live(self, brokers: Mapping[int, LiveBroker]) -> None:
        """Sets the live brokers. A broker with a new epoch starts with an empty queue."""

    def to(self, broker: int) -> BrokerChannel:
        """The channel to a live broker."""


class LocalChannel:
    def __init__(self, own: BrokerChannel) -> None:
        self._own = own

    async def run(self, told: OnTrust, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()

    def live(self, brokers: Mapping[int, LiveBroker]) -> None:
        """Ignored: there are no other brokers."""

    def to(self, broker: int) -> BrokerChannel:
        return self._own
