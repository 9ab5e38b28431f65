"""Deletions of topic znodes, with a crash after each write, on the embedded store."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from pyrklog.controller import store_writes
from pyrklog.controller.store_writes import ControllerMovedError, Term, delete_topics
from pyrklog.membership.current_store import CurrentStore
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedSession, open_store
from pyrklog.metastore.interface import (
    Create,
    Delete,
    MetastoreError,
    Node,
    NodeExistsError,
    Operation,
    OperationResult,
    descendants_of,
)
from pyrklog.start.identity import create_paths
from tests.unit.controller.runner import CrashedError, assignment

TOPICS = ("a", "b")
PARTITIONS = 3
NEW_OPTIONS = {"retention.ms": "7"}


class Crashing(CurrentStore):
    """A store whose client is gone after so many transactions."""

    def __init__(self, session: EmbeddedSession, transactions: int) -> None:
        super().__init__(session)
        self._left = transactions

    async def multis(
        self, transactions: Sequence[Sequence[Operation]]
    ) -> list[list[OperationResult] | MetastoreError]:
        outcomes = []
        for transaction in transactions:
            if not self._left:
                raise CrashedError
            self._left -= 1
            outcomes += await super().multis([transaction])
        return outcomes


class Meddling(CurrentStore):
    """A store in which somebody deletes a node between a read and the write that follows."""

    def __init__(self, session: EmbeddedSession, path: str) -> None:
        super().__init__(session)
        self._other = session
        self._path = path

    async def get_many(self, paths: Sequence[str], watch: object = None) -> list[Node | None]:
        nodes = await super().get_many(paths)
        if self._path in paths and await self._other.exists(self._path) is not None:
            await self._other.delete(self._path)
        return nodes


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[EmbeddedSession]:
    store = await open_store(tmp_path / "meta")
    session = store.session()
    await create_paths(session, (*znodes.PERSISTENT_PATHS, *znodes.OWN_PATHS))
    await session.create(znodes.CONTROLLER_EPOCH, b"1")
    for topic in TOPICS:
        await mark_new_topic(session, topic)
    yield session
    await store.close()


async def mark_new_topic(session: EmbeddedSession, topic: str) -> None:
    await session.create(znodes.topic_config_path(topic), znodes.encode_config({"a": "1"}))
    data = znodes.encode_topic(assignment(*[(1,)] * PARTITIONS))
    await session.create(znodes.topic_path(topic), data)
    await session.create(znodes.partitions_path(topic))
    await session.create(znodes.eligible_topic_path(topic))
    for index in range(PARTITIONS):
        await session.create(znodes.partition_path(topic, index))
        await session.create(znodes.state_path(topic, index))
        await session.create(znodes.eligible_path(topic, index))
    await session.create(znodes.delete_topic_path(topic))


def own_nodes(topic: str) -> list[str]:
    kinds = (znodes.topic_path, znodes.topic_config_path, znodes.delete_topic_path)
    return [path(topic) for path in kinds]


async def standing(session: EmbeddedSession, topic: str) -> list[bool]:
    return [node is not None for node in await session.get_many(own_nodes(topic))]


async def create_again(session: EmbeddedSession, topic: str) -> bool:
    """Like CreateTopics: options and topic in one transaction; False if it is refused."""
    path = znodes.topic_config_path(topic)
    operations = [
        Create(path, znodes.encode_config(NEW_OPTIONS)),
        Create(znodes.topic_path(topic), znodes.encode_topic(assignment((2,)))),
    ]
    try:
        await session.multi(operations)
    except NodeExistsError:
        return False
    return True


async def go_on(session: EmbeddedSession) -> list[str]:
    """The next controller deletes what is marked; returns topics that had been recreated before."""
    created = [topic for topic in TOPICS if await create_again(session, topic)]
    await delete_topics(session, Term(1, 0), await session.children(znodes.DELETE_TOPICS))
    return created


async def test_topic_and_deletion_mark_go_together_after_a_crash_at_any_write(
    session: EmbeddedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_writes, "OPERATIONS_PER_TRANSACTION_MAX", 4)
    for crashes in range(100):
        try:
            await delete_topics(Crashing(session, crashes), Term(1, 0), TOPICS)
        except CrashedError:
            is_over = False
        else:
            is_over = True
        for topic in TOPICS:
            assert len(set(await standing(session, topic))) == 1, (crashes, topic)
        created = await go_on(session)
        # Recreated topics are as created; nothing of the others is left.
        for topic in TOPICS:
            there = topic in created
            assert await standing(session, topic) == [there, there, False], (crashes, topic)
            assert await descendants_of(session, [znodes.topic_path(topic)]) == []
            assert await session.exists(znodes.eligible_topic_path(topic)) is None
        for topic in created:
            node = await session.get(znodes.topic_config_path(topic))
            assert node.data == znodes.encode_config(NEW_OPTIONS)
            await session.multi([Delete(path) for path in own_nodes(topic)[:2]])
        if is_over:
            assert created == list(TOPICS)
            # What lies below two topics, in fours, then each topic.
            assert crashes > len(TOPICS)
            return
        for topic in TOPICS:
            await mark_new_topic(session, topic)
    pytest.fail("it never ended")


@pytest.mark.parametrize("kind", range(3))
async def test_a_node_that_somebody_else_deletes_is_not_missed(
    session: EmbeddedSession, kind: int
) -> None:
    """Before it begins, and between its last read and its write."""
    paths = [own_nodes(topic)[kind] for topic in TOPICS]
    if kind:
        await session.delete(paths[1])
    await delete_topics(Meddling(session, paths[0]), Term(1, 0), TOPICS)
    for topic in TOPICS:
        assert await standing(session, topic) == [False, False, False]


async def test_a_controller_that_was_replaced_deletes_nothing(session: EmbeddedSession) -> None:
    await session.set(znodes.CONTROLLER_EPOCH, b"2")
    with pytest.raises(ControllerMovedError):
        await delete_topics(session, Term(1, 0), TOPICS)
    for topic in TOPICS:
        assert await standing(session, topic) == [True, True, True]
        below = await descendants_of(session, [znodes.topic_path(topic)])
        assert len(below) == 1 + 2 * PARTITIONS
