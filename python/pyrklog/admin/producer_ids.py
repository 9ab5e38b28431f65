"""Producer ids: blocks of 1,000 from /latest_producer_id_block, handed out one by one.

A block is taken durably before its first id is given away, and what is left of it is never used
after a restart: no id is given twice, whatever dies when.
"""

from __future__ import annotations

import trio

from pyrklog.errors import ApiError, ErrorCode
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import BadVersionError, Metastore, NodeExistsError, NoNodeError

BLOCK_SIZE = 1000
PRODUCER_ID_MAX = 2**63 - 1


class ProducerIds:
    """Gives ids away."""

    def __init__(self, node_id: int, store: Metastore) -> None:
        self._node_id = node_id
        self._store = store
        self._next = 0
        self._last = -1
        self._turn = trio.Lock()

    async def next(self) -> int:
        """A new id; raises :class:`ApiError` when there are none left, ``MetastoreError``."""
        async with self._turn:
            if self._next > self._last:
                block = await self._take_block()
                self._next, self._last = block.first, block.last
            given = self._next
            self._next += 1
            return given

    async def _take_block(self) -> znodes.ProducerIdBlock:
        while True:
            try:
                node = await self._store.get(znodes.PRODUCER_ID_BLOCK)
                first = znodes.decode_producer_ids(node.data).last + 1
                version = node.stat.version
            except NoNodeError:
                first, version = 0, None
            if first > PRODUCER_ID_MAX - BLOCK_SIZE:
                raise ApiError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been given away."
                )
            block = znodes.ProducerIdBlock(self._node_id, first, first + BLOCK_SIZE - 1)
            data = znodes.encode_producer_ids(block)
            try:
                if version is None:
                    await self._store.create(znodes.PRODUCER_ID_BLOCK, data)
                else:
                    await self._store.set(znodes.PRODUCER_ID_BLOCK, data, version)
            except (BadVersionError, NodeExistsError):
                continue  # another broker took that block
            return block
