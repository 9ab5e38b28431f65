"""Lag in seconds begins once clients are served: until then its code is not loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from pyrklog.base.logs import get_logger
from pyrklog.cluster.metadata import Metadata
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.plane.core_plane import Plane

if TYPE_CHECKING:
    from pyrklog.groups.group_manager import GroupManager
    from pyrklog.lag.service import LagService
    from pyrklog.protocol.lag import (
        GroupLagRequest,
        GroupLagResponse,
        PartitionOffsetsRequest,
        PartitionOffsetsResponse,
    )

log = get_logger("lag")


class Lag:
    def __init__(self) -> None:
        self.service: LagService | None = None
        """None: not yet, or no more."""

    async def run(self, metadata: Metadata, plane: Plane, manager: GroupManager) -> None:
        """Until cancelled. What fails here does not fail the broker."""
        try:
            await trio.to_thread.run_sync(_load)
            from pyrklog.lag.service import LagService

            calls = None
            if metadata.config.zookeeper is not None:
                from pyrklog.peers.broker_calls import calls_of

                calls = calls_of(metadata)
            folder = metadata.config.meta_dir
            self.service = LagService(metadata, plane, manager, calls, folder=folder)
            await self.service.run()
        except Exception as error:
            log.error("lag_failed", exc_info=error, consequence="lag is not told any more")
        finally:
            self.service = None

    def _running(self) -> LagService:
        if self.service is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "Lag is not looked at yet.")
        return self.service

    async def group_lag(self, request: GroupLagRequest, address: str) -> GroupLagResponse:
        """Answers GroupLag; COORDINATOR_NOT_AVAILABLE: not yet."""
        return await self._running().group_lag(request, address)

    async def partition_offsets(
        self, request: PartitionOffsetsRequest, address: str
    ) -> PartitionOffsetsResponse:
        """Answers PartitionOffsets; COORDINATOR_NOT_AVAILABLE: not yet."""
        return await self._running().partition_offsets(request, address)


def _load() -> None:
    import pyrklog.lag.service  # noqa: F401
