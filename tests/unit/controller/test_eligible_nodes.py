"""Eligible leader replicas in the store: beside the state, in its transaction, deleted with it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pyrklog.controller.effects import StateWrite
from pyrklog.controller.store_reads import read_states
from pyrklog.controller.store_writes import (
    ControllerMovedError,
    Term,
    delete_topics,
    write_states,
)
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedSession, open_store
from pyrklog.metastore.interface import Stat
from pyrklog.metastore.znodes import Leadership
from pyrklog.start.identity import create_paths

KEY = ("t", 0)
PATH = "/pyrklog/elr/t/0"
ALL, ALONE = Leadership(1, 0, (1, 2), 1), Leadership(1, 1, (1,), 1, eligible=(2,))
TERM = Term(1, 0)


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[EmbeddedSession]:
    store = await open_store(tmp_path / "meta")
    one = store.session()
    await create_paths(one, (*znodes.PERSISTENT_PATHS, *znodes.OWN_PATHS))
    await one.create(znodes.CONTROLLER_EPOCH, b"1")
    await one.create(znodes.topic_path("t"))
    yield one
    await store.close()


async def write(
    session: EmbeddedSession, after: Leadership, version: int, had_eligible: bool = False
) -> int | None:
    one = StateWrite(KEY, after, version, had_eligible)
    return (await write_states(session, TERM, [one]))[KEY]


async def content(session: EmbeddedSession) -> bytes | None:
    (node,) = await session.get_many([PATH])
    return node.data if node is not None else None


async def found(session: EmbeddedSession) -> tuple[int, ...]:
    return (await read_states(session, [KEY]))[KEY][0].eligible


async def modified(session: EmbeddedSession, path: str) -> int:
    stat = await session.exists(path)
    assert isinstance(stat, Stat)
    return stat.mzxid


async def test_eligible_znode_is_written_with_the_state(session: EmbeddedSession) -> None:
    assert await write(session, ALL, -1) == 0
    assert await write(session, ALONE, 0) == 1
    assert await content(session) == b'{"version":1,"partition_epoch":1,"eligible":[2]}'
    state = znodes.state_path(*KEY)
    assert await modified(session, PATH) == await modified(session, state), "one transaction"
    assert (await session.get(state)).data == znodes.encode_state(ALONE._replace(eligible=()))
    assert await found(session) == (2,)
    assert await write(session, ALONE._replace(leader=-1), 1, had_eligible=True) == 2
    assert await found(session) == (2,)
    assert await write(session, ALL, 2, had_eligible=True) == 3
    assert await content(session) is None
    assert await found(session) == ()


async def test_eligible_znode_is_not_written_over_a_changed_state(
    session: EmbeddedSession,
) -> None:
    await write(session, ALL, -1)
    await session.set(znodes.state_path(*KEY), znodes.encode_state(ALL))
    assert await write(session, ALONE, 0) is None
    assert await content(session) is None


async def test_a_controller_of_the_past_writes_nothing(session: EmbeddedSession) -> None:
    await write(session, ALL, -1)
    await session.set(znodes.CONTROLLER_EPOCH, b"2")
    with pytest.raises(ControllerMovedError):
        await write(session, ALONE, 0)
    assert await content(session) is None


async def test_eligible_znode_is_void_after_a_foreign_state_write(
    session: EmbeddedSession,
) -> None:
    await write(session, ALL, -1)
    await write(session, ALONE, 0)
    await session.set(znodes.state_path(*KEY), znodes.encode_state(ALONE))
    assert await found(session) == ()
    assert await write(session, ALONE, 2) == 3
    assert await found(session) == (2,)


async def test_unreadable_eligible_znode_makes_nobody_eligible(session: EmbeddedSession) -> None:
    await write(session, ALL, -1)
    await write(session, ALONE, 0)
    await session.set(PATH, b"{}")
    assert await found(session) == ()


async def test_missing_eligible_znode_does_not_prevent_a_state_write(
    session: EmbeddedSession,
) -> None:
    await write(session, ALL, -1)
    await write(session, ALONE, 0)
    await session.delete(PATH)
    assert await write(session, ALL, 1, had_eligible=True) == 2
    assert await found(session) == ()


async def test_eligible_znodes_are_deleted_with_their_topic(session: EmbeddedSession) -> None:
    await write(session, ALL, -1)
    await write(session, ALONE, 0)
    await delete_topics(session, TERM, ["t"])
    assert await session.children(znodes.ELIGIBLE) == []
    assert await session.exists(znodes.topic_path("t")) is None


async def test_recreated_topic_inherits_no_eligible_replicas(session: EmbeddedSession) -> None:
    """Somebody removes a topic's znodes by hand, but only Kafka's."""
    await write(session, ALL, -1)
    await write(session, ALONE, 0)
    for path in (
        znodes.state_path(*KEY),
        znodes.partition_path(*KEY),
        znodes.partitions_path("t"),
    ):
        await session.delete(path)
    await write(session, ALL, -1)
    await write(session, ALL, 0)
    assert await found(session) == ()
