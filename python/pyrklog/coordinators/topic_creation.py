"""FindCoordinator: where a partition of an internal topic is led, after creating the topic."""

from __future__ import annotations

from collections.abc import Callable

import trio

from pyrklog.base.logs import get_logger
from pyrklog.coordinators.interfaces import BrokerEndpoint, InternalTopic
from pyrklog.errors import ErrorCode

CREATION_WAIT_SECONDS = 5.0
"""How long FindCoordinator waits for the topic's creation."""
CREATION_RETRY_SECONDS = 1.0

log = get_logger("coordinators")


class CoordinatorFinder:
    def __init__(self, topic: InternalTopic, name: str) -> None:
        self._topic = topic
        self._name = name
        self._creating: trio.Event | None = None
        self._creation_failed_at = float("-inf")

    async def find(
        self, partition_of: Callable[[int], int], listener: str
    ) -> tuple[ErrorCode, BrokerEndpoint | None]:
        """``partition_of`` gets the number of partitions. COORDINATOR_NOT_AVAILABLE: try again."""
        count = await self.partition_count()
        if count is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        endpoint = self._topic.leader_endpoint(partition_of(count), listener)
        if endpoint is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        return ErrorCode.NONE, endpoint

    async def partition_count(self) -> int | None:
        """Of the topic, which is created where it is missing; None: try again."""
        if self._topic.partition_count() is None:
            with trio.move_on_after(CREATION_WAIT_SECONDS):
                await self._create()
        return self._topic.partition_count()

    async def _create(self) -> None:
        """Creates the topic once for all callers; waits after a failure."""
        if self._creating is not None:
            await self._creating.wait()
            return
        if trio.current_time() < self._creation_failed_at + CREATION_RETRY_SECONDS:
            return
        self._creating = trio.Event()
        try:
            error = await self._topic.create()
            if error is not ErrorCode.NONE:
                self._creation_failed_at = trio.current_time()
                if error is not ErrorCode.INVALID_REPLICATION_FACTOR:
                    log.error("internal_topic_not_created", topic=self._name, error=error.name)
        finally:
            self._creating.set()
            self._creating = None
