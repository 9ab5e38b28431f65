"""Producer ids never repeat."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from pyrklog.admin.producer_ids import BLOCK_SIZE, PRODUCER_ID_MAX, ProducerIds
from pyrklog.errors import ApiError
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedStore, open_store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    opened = await open_store(tmp_path)
    yield opened
    await opened.close()


async def test_ids_come_in_blocks(store: EmbeddedStore) -> None:
    ids = ProducerIds(3, store.session())
    given = [await ids.next() for _ in range(BLOCK_SIZE + 1)]
    assert given == list(range(BLOCK_SIZE + 1))
    node = await store.session().get(znodes.PRODUCER_ID_BLOCK)
    assert json.loads(node.data) == {
        "version": 1,
        "broker": 3,
        "block_start": "1000",
        "block_end": "1999",
    }


async def test_a_restart_begins_a_new_block(store: EmbeddedStore) -> None:
    """What was left of the block is lost: it may have been given away just before the crash."""
    assert await ProducerIds(1, store.session()).next() == 0
    assert await ProducerIds(1, store.session()).next() == BLOCK_SIZE


async def test_brokers_and_tasks_never_share_an_id(store: EmbeddedStore) -> None:
    brokers = [ProducerIds(number, store.session()) for number in range(4)]
    given: list[int] = []

    async def take(ids: ProducerIds) -> None:
        for _ in range(700):
            given.append(await ids.next())

    async with trio.open_nursery() as nursery:
        for ids in brokers * 2:
            nursery.start_soon(take, ids)
    assert len(set(given)) == len(given) == 5600


async def test_they_can_run_out(store: EmbeddedStore) -> None:
    session = store.session()
    last = znodes.ProducerIdBlock(1, PRODUCER_ID_MAX - BLOCK_SIZE, PRODUCER_ID_MAX - 1)
    await session.create(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_ids(last))
    with pytest.raises(ApiError, match="given away"):
        await ProducerIds(1, session).next()
