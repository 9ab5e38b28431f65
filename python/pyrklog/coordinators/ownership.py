"""The life of a coordinator's partitions: led, loading, owned, unloaded.

A partition of the internal topic that this broker leads is loaded once; when the leadership ends,
or another broker has led in between (another epoch), it is unloaded. Loads run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

import trio

from pyrklog.base.logs import get_logger
from pyrklog.coordinators.interfaces import InternalTopic

FOLLOW_RETRY_SECONDS = 1.0
RELOAD_SECONDS = 1.0

log = get_logger("coordinators")

_Placement = tuple[int | None, dict[int, int]]
"""The number of partitions of the topic, and the epochs of those led here."""


class Coordinator(Protocol):
    """What owns partitions. Only :meth:`load` may wait."""

    def owned_epochs(self) -> Mapping[int, int]:
        """Partitions that are loading or owned, with the epochs of their leaderships."""

    def set_partition_count(self, count: int) -> None:
        """Called while nothing is owned: a growing topic must not move keys between partitions."""

    def begin_load(self, partition: int, epoch: int) -> bool:
        """False: it is owned."""

    async def load(self, partition: int) -> None:
        """Loads the partition, however often it has to try. Cancelled by an unload."""

    def unload(self, partition: int) -> None: ...


class Ownership:
    """Follows the leadership of an internal topic's partitions for a coordinator."""

    def __init__(
        self,
        topic: InternalTopic,
        coordinator: Coordinator,
        on_moved: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_moved`` is called at each look at the leadership, before loads begin."""
        self._topic = topic
        self._coordinator = coordinator
        self._on_moved = on_moved
        self._scopes: dict[int, trio.CancelScope] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            while True:
                try:
                    followed = self._follow()
                    await self._topic.wait_until(partial(self._has_moved_from, followed))
                except Exception as error:
                    log.error("leadership_not_followed", exc_info=error)
                    await trio.sleep(FOLLOW_RETRY_SECONDS)

    def reload(self, partition: int) -> None:
        """Forgets the partition and loads it again after a while."""
        if self._nursery is None or partition not in self._scopes:
            return
        self._unload(partition)
        self._nursery.start_soon(self._follow_later)

    async def _follow_later(self) -> None:
        await trio.sleep(RELOAD_SECONDS)
        self._follow()

    def _follow(self) -> _Placement:
        count, led = followed = self._placement()
        for partition, epoch in self._coordinator.owned_epochs().items():
            if led.get(partition) != epoch:
                self._unload(partition)
        if count is not None and not self._coordinator.owned_epochs():
            self._coordinator.set_partition_count(count)
        self._on_moved()
        for partition, epoch in led.items():
            if self._coordinator.begin_load(partition, epoch):
                scope = self._scopes[partition] = trio.CancelScope()
                assert self._nursery is not None
                self._nursery.start_soon(self._load, partition, scope)
        return followed

    def _placement(self) -> _Placement:
        return self._topic.partition_count(), dict(self._topic.led_partitions())

    def _has_moved_from(self, followed: _Placement) -> bool:
        return self._placement() != followed

    def _unload(self, partition: int) -> None:
        scope = self._scopes.pop(partition, None)
        if scope is not None:
            scope.cancel()
        self._coordinator.unload(partition)

    async def _load(self, partition: int, scope: trio.CancelScope) -> None:
        with scope:
            await self._coordinator.load(partition)
