"""Blocks of 1,000 producer ids, at /latest_producer_id_block."""

from __future__ import annotations

from pyrklog.base.logs import get_logger
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import BadVersionError, Metastore, NodeExistsError, NoNodeError

BLOCK_SIZE = 1000
PRODUCER_ID_MAX = 2**63 - 1

log = get_logger("controller")


async def take_block(store: Metastore, broker: int) -> znodes.ProducerIdBlock | None:
    """Takes the next block by compare-and-set: two brokers never get the same.

    None when none are left, or when the node holds no block: the ids given so far are then unknown.
    Raises ``MetastoreError``.
    """
    while True:
        try:
            node = await store.get(znodes.PRODUCER_ID_BLOCK)
            first = znodes.decode_producer_ids(node.data).last + 1
            version = node.stat.version
        except NoNodeError:
            first, version = 0, None
        except znodes.ZnodeError as error:
            log.error("bad_znode", reason=str(error))
            return None
        if first > PRODUCER_ID_MAX - BLOCK_SIZE:
            log.error("producer_ids_exhausted", last=first - 1)
            return None
        block = znodes.ProducerIdBlock(broker, first, first + BLOCK_SIZE - 1)
        data = znodes.encode_producer_ids(block)
        try:
            if version is None:
                await store.create(znodes.PRODUCER_ID_BLOCK, data)
            else:
                await store.set(znodes.PRODUCER_ID_BLOCK, data, version)
        except (BadVersionError, NodeExistsError):
            continue  # another broker took that block
        return block
