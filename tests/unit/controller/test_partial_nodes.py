"""Partial replicas in the store (expansion.md, section 3)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pyrklog.controller.store_reads import read_brokers, read_partial
from pyrklog.controller.store_writes import (
    ControllerMovedError,
    Term,
    delete_topics,
    write_partial,
)
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedSession, open_store
from pyrklog.metastore.znodes import PartialReplicas
from pyrklog.start.identity import create_paths
from tests.unit.controller.runner import assignment

ID, NEXT_ID = b"i" * 16, b"j" * 16
TOPIC = assignment((1, 2), (1, 2), topic_id=ID)
TERM = Term(1, 0)


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[EmbeddedSession]:
    store = await open_store(tmp_path / "meta")
    one = store.session()
    await create_paths(one, (*znodes.PERSISTENT_PATHS, *znodes.OWN_PATHS))
    await one.create(znodes.CONTROLLER_EPOCH, b"1")
    await one.create(znodes.topic_path("t"), znodes.encode_topic(TOPIC))
    yield one
    await store.close()


async def write(session: EmbeddedSession, partition: int, *replicas: int) -> None:
    await write_partial(session, TERM, {("t", partition): PartialReplicas(ID, replicas)})


async def test_entries_are_written_changed_and_removed(session: EmbeddedSession) -> None:
    both = {("t", 0): PartialReplicas(ID, (4, 5)), ("t", 1): PartialReplicas(ID, (5,))}
    await write_partial(session, TERM, both)
    node = await session.get("/pyrklog/expansion/t/0")
    assert node.data == b'{"version":1,"topic_id":"aWlpaWlpaWlpaWlpaWlpaQ","replicas":[4,5]}'
    assert await read_partial(session, {"t": TOPIC}) == {("t", 0): (4, 5), ("t", 1): (5,)}
    await write(session, 0, 5)
    await write(session, 1)
    assert await read_partial(session, {"t": TOPIC}) == {("t", 0): (5,)}
    await write(session, 0)
    await write(session, 0)
    assert await session.children("/pyrklog/expansion/t") == []


async def test_a_controller_of_the_past_writes_nothing(session: EmbeddedSession) -> None:
    await session.set(znodes.CONTROLLER_EPOCH, b"2")
    with pytest.raises(ControllerMovedError):
        await write(session, 0, 4)
    assert await read_partial(session, {"t": TOPIC}) == {}


async def test_entries_of_another_topic_of_the_name_do_not_count(session: EmbeddedSession) -> None:
    await write(session, 0, 4)
    other = assignment((1, 2), topic_id=NEXT_ID)
    assert await read_partial(session, {"t": other}) == {}


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version":1,"topic_id":"x","replicas":[4]}'])
async def test_unreadable_entries_count_as_none(session: EmbeddedSession, data: bytes) -> None:
    await write(session, 0, 4)
    await session.set("/pyrklog/expansion/t/0", data)
    assert await read_partial(session, {"t": TOPIC}) == {}


async def test_entries_go_with_their_topic(session: EmbeddedSession) -> None:
    await write(session, 0, 4)
    await delete_topics(session, TERM, ["t"])
    assert await session.children(znodes.EXPANSION) == []


@pytest.mark.parametrize(
    ("life", "knows"),
    [
        (b'{"version":1,"log_dirs":[],"partial_replicas":1}', True),
        (b'{"version":1,"log_dirs":[]}', False),
        (b'{"version":1,"partial_replicas":2}', False),
        (b"[]", False),
        (b"", False),
        (None, False),
    ],
)
async def test_a_broker_says_whether_it_knows_partial_replicas(
    session: EmbeddedSession, life: bytes | None, knows: bool
) -> None:
    registration = znodes.BrokerRegistration(
        [("PLAINTEXT", "host", 9092)], {"PLAINTEXT": "PLAINTEXT"}, None, 0
    )
    await session.create(znodes.broker_path(4), znodes.encode_broker(registration))
    if life is not None:
        await session.create(znodes.life_path(4), life)
    brokers = await read_brokers(session, lambda _: None)
    assert brokers[4].knows_partial is knows
