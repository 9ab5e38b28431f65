"""The cluster's view of an internal topic. Tests implement it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from pyrklog.errors import ErrorCode


class BrokerEndpoint(NamedTuple):
    """A broker as advertised on a listener."""

    node_id: int
    host: str
    port: int


class InternalTopic(Protocol):
    """The partitions of an internal topic in this broker's view."""

    def partition_count(self) -> int | None:
        """None while the topic does not exist."""

    def led_partitions(self) -> Mapping[int, int]:
        """Partitions led and served here, with the epoch of the leadership. Another epoch: another
        broker has led in between."""

    def assigned_partitions(self) -> Collection[int]:
        """Partitions that this broker is to lead, served or not."""

    def leader_endpoint(self, partition: int, listener: str) -> BrokerEndpoint | None:
        """The partition's leader as advertised on a listener; None without a live one."""

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Returns once a condition over the above holds."""

    async def create(self) -> ErrorCode:
        """Creates the topic from the broker's options; NONE if it exists."""
