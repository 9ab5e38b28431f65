import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trio.testing

from pyrklog.admin.producer_ids import LIMIT_SECONDS, TRIES, ProducerIds
from pyrklog.cluster.requests import ProducerIdsResponse
from pyrklog.controller.producer_ids import BLOCK_SIZE, PRODUCER_ID_MAX, take_block
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedStore, open_store


def ids_of(broker: int, store: EmbeddedStore) -> ProducerIds:
    """Ids of a broker whose controller answers at once."""
    session = store.session()

    async def ask() -> ProducerIdsResponse:
        block = await take_block(session, broker)
        error = ErrorCode.NONE if block is not None else ErrorCode.UNKNOWN_SERVER_ERROR
        return ProducerIdsResponse(error, block)

    return ProducerIds(ask)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    opened = await open_store(tmp_path)
    yield opened
    await opened.close()


async def test_ids_come_in_blocks(store: EmbeddedStore) -> None:
    ids = ids_of(3, store)
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
    """The rest of the block is lost: it may have been handed out just before the crash."""
    assert await ids_of(1, store).next() == 0
    assert await ids_of(1, store).next() == BLOCK_SIZE


async def test_brokers_and_tasks_never_share_an_id(store: EmbeddedStore) -> None:
    brokers = [ids_of(number, store) for number in range(4)]
    given: list[int] = []

    async def take(ids: ProducerIds) -> None:
        for _ in range(700):
            given.append(await ids.next())

    async with trio.open_nursery() as nursery:
        for ids in brokers * 2:
            nursery.start_soon(take, ids)
    assert len(set(given)) == len(given) == 5600


async def test_malformed_block_znode_fails_the_request_and_stays(
    store: EmbeddedStore,
) -> None:
    """Clients must retry: no id is handed out until the znode is repaired."""
    session = store.session()
    await session.create(znodes.PRODUCER_ID_BLOCK, b'{"broker":1}')
    assert await take_block(session, 1) is None
    with pytest.raises(ApiError) as caught:
        await ids_of(1, store).next()
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await session.get(znodes.PRODUCER_ID_BLOCK)).data == b'{"broker":1}'
    block = znodes.ProducerIdBlock(1, 0, 999)
    await session.set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_ids(block))
    assert await ids_of(1, store).next() == 1000


async def test_producer_ids_can_run_out(store: EmbeddedStore) -> None:
    session = store.session()
    last = znodes.ProducerIdBlock(1, PRODUCER_ID_MAX - BLOCK_SIZE, PRODUCER_ID_MAX - 1)
    await session.create(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_ids(last))
    with pytest.raises(ApiError, match="no producer ids"):
        await ids_of(1, store).next()


async def test_a_change_of_controllers_is_waited_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    block = znodes.ProducerIdBlock(1, 5000, 5999)
    answers = [ProducerIdsResponse(ErrorCode.NOT_CONTROLLER, None)] * (TRIES - 1)
    answers.append(ProducerIdsResponse(ErrorCode.NONE, block))

    async def ask() -> ProducerIdsResponse:
        return answers.pop(0)

    assert await ProducerIds(ask).next() == 5000
    assert answers == []


async def test_a_controller_that_is_silent_is_not_waited_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    codes = []
    ids = ProducerIds(trio.sleep_forever)

    async def ask() -> None:
        with pytest.raises(ApiError) as caught:
            await ids.next()
        codes.append(caught.value.code)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
    assert codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
    assert trio.current_time() == LIMIT_SECONDS


async def test_without_a_controller_clients_are_told_to_try_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def ask() -> ProducerIdsResponse:
        return ProducerIdsResponse(ErrorCode.STALE_BROKER_EPOCH, None)

    with pytest.raises(ApiError) as caught:
        await ProducerIds(ask).next()
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
