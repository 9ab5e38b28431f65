"""Gives out producer ids from blocks of the controller (KIP-730).

A block is taken durably before its first id is given out, and its rest is never used after a
restart: no id is given twice, whatever crashes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from pyrklog.cluster.requests import ProducerIdsResponse
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.metastore.znodes import ProducerIdBlock

TRIES = 10
RETRY_SECONDS = 0.1
"""While the controller changes."""
LIMIT_SECONDS = 5.0
"""Shorter than any request time-out of clients."""

Ask = Callable[[], Awaitable[ProducerIdsResponse]]
"""Asks the controller for the next block. Raises ``MetastoreError``."""


class ProducerIds:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._next = 0
        self._last = -1
        self._turn = trio.Lock()

    async def next(self) -> int:
        """A new id.

        Raises :class:`ApiError` (COORDINATOR_LOAD_IN_PROGRESS, which clients retry) if no
        controller answers or has ids left, and ``MetastoreError``.
        """
        with trio.move_on_after(LIMIT_SECONDS):
            async with self._turn:
                if self._next > self._last:
                    block = await self._take_block()
                    self._next, self._last = block.first, block.last
                given = self._next
                self._next += 1
                return given
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The controller does not answer.")

    async def _take_block(self) -> ProducerIdBlock:
        for _ in range(TRIES):
            response = await self._ask()
            if response.block is not None:
                return response.block
            if response.error is ErrorCode.UNKNOWN_SERVER_ERROR:
                raise ApiError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    "The controller has no producer ids to give; its log says why.",
                )
            await trio.sleep(RETRY_SECONDS)
        raise ApiError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "No controller gives producer ids now."
        )
