"""The controller's ways to all brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from pyrklog.cluster.requests import BrokerChannel, LiveBroker, OnTrust

if TYPE_CHECKING:
    import trio


class Channels(Protocol):
    """One :class:`BrokerChannel` for each live broker, as long as a term lasts."""

    async def run(self, told: OnTrust, task_status: trio.TaskStatus[None]) -> None:
        """Sends what is posted until cancelled; what waits then is gone. Observes the brokers."""

    def live(self, brokers: Mapping[int, LiveBroker]) -> None:
        """The brokers that live now. One that has come back under another epoch begins with an
        empty queue."""

    def to(self, broker: int) -> BrokerChannel:
        """The way to a broker that lives."""


class LocalChannel:
    """The channels of a controller that is the only broker."""

    def __init__(self, own: BrokerChannel) -> None:
        self._own = own

    async def run(self, told: OnTrust, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()

    def live(self, brokers: Mapping[int, LiveBroker]) -> None:
        """Nobody else can be reached."""

    def to(self, broker: int) -> BrokerChannel:
        return self._own
