"""The controller's ways to all brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import trio

from pyrklog.controller.requests import BrokerChannel
from pyrklog.controller.state import LiveBroker

Told = Callable[[int, bool], None]
"""Called with a broker and False when it is suspected to be dead, True when it is trusted again."""


class Channels(Protocol):
    """One :class:`BrokerChannel` for each live broker, as long as a term lasts."""

    async def run(
        self, told: Told, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Sends what is posted until cancelled; what waits then is gone. Observes the brokers."""

    def live(self, brokers: Mapping[int, LiveBroker]) -> None:
        """The brokers that live now. One that has come back under another epoch begins with an
        empty queue."""

    def to(self, broker: int) -> BrokerChannel:
        """The way to a broker that lives."""


class OwnChannel:
    """The channels of a controller that is the only broker."""

    def __init__(self, own: BrokerChannel) -> None:
        self._own = own

    async def run(
        self, told: Told, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        task_status.started()

    def live(self, brokers: Mapping[int, LiveBroker]) -> None:
        """Nobody else can be reached."""

    def to(self, broker: int) -> BrokerChannel:
        return self._own


def _are_channels(channels: OwnChannel) -> Channels:
    return channels  # the type checker holds the class to the interface
