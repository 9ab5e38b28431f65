"""The store's transactions for topics, over an embedded store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pyrklog.admin.topic_writes import change_assignment, create_topics, mark_for_deletion
from pyrklog.controller.store_writes import Term
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import open_store
from pyrklog.metastore.interface import Metastore, ensure_path

OLD, NEW = b"o" * 16, b"n" * 16
DEPOSED = {"t": ErrorCode.NOT_CONTROLLER}


def assignment(topic_id: bytes, partitions: int = 1) -> znodes.TopicAssignment:
    return znodes.TopicAssignment(topic_id, dict.fromkeys(range(partitions), (1,)), {}, {})


def codes(refused: dict[str, ApiError]) -> dict[str, ErrorCode]:
    return {name: error.code for name, error in refused.items()}


class Place:
    """A store, and the term of its controller."""

    def __init__(self, store: Metastore, term: Term) -> None:
        self.store = store
        self.term = term

    async def next_term(self) -> Term:
        stat = await self.store.set(znodes.CONTROLLER_EPOCH, b"2", self.term.epoch_version)
        return Term(2, stat.version)

    async def put(self, term: Term | None, topic_id: bytes = OLD) -> dict[str, ErrorCode]:
        topics = {"t": ({"retention.ms": "1"}, assignment(topic_id))}
        return codes(await create_topics(self.store, term, topics))

    async def replace(self) -> None:
        """The same controller deletes ``t`` and creates it anew."""
        await self.store.delete(znodes.topic_path("t"))
        assert await self.put(self.term, NEW) == {}

    async def is_marked(self) -> bool:
        return await self.store.exists(znodes.delete_topic_path("t")) is not None

    async def found(self) -> znodes.TopicAssignment:
        path = znodes.topic_path("t")
        return znodes.decode_topic(path, (await self.store.get(path)).data)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    embedded = await open_store(tmp_path)
    store = embedded.session()
    for path in (znodes.topic_path("t"), znodes.topic_config_path("t")):
        await ensure_path(store, path.rpartition("/")[0])
    await ensure_path(store, znodes.delete_topic_path("t").rpartition("/")[0])
    await store.create(znodes.CONTROLLER_EPOCH, b"1")
    yield Place(store, Term(1, 0))
    await embedded.close()


async def test_a_former_controller_creates_nothing(place: Place) -> None:
    later = await place.next_term()
    assert await place.put(place.term) == DEPOSED
    assert await place.store.exists(znodes.topic_path("t")) is None
    assert await place.store.exists(znodes.topic_config_path("t")) is None
    assert await place.put(later) == {}


async def test_a_former_controller_deletes_nothing(place: Place) -> None:
    await place.put(place.term)
    later = await place.next_term()
    assert codes(await mark_for_deletion(place.store, place.term, {"t": OLD})) == DEPOSED
    assert not await place.is_marked()
    assert await mark_for_deletion(place.store, later, {"t": OLD}) == {}
    assert await place.is_marked()
    assert await mark_for_deletion(place.store, later, {"t": OLD}) == {}, "asked for before"


async def test_a_former_controller_adds_no_partitions(place: Place) -> None:
    await place.put(place.term)
    later = await place.next_term()
    enlarged = assignment(OLD, 3)
    with pytest.raises(ApiError) as caught:
        await change_assignment(place.store, place.term, "t", enlarged, 0)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert len((await place.found()).replicas) == 1
    assert await change_assignment(place.store, later, "t", enlarged, 0)
    assert not await change_assignment(place.store, later, "t", enlarged, 0), "changed meanwhile"
    assert not await change_assignment(place.store, later, "u", enlarged, 0), "gone"
    assert await place.found() == enlarged


async def test_deletion_spares_a_later_topic_of_the_same_name(place: Place) -> None:
    """The first one was deleted before the request arrived; the second has its version."""
    await place.put(place.term)
    await place.replace()
    refused = await mark_for_deletion(place.store, place.term, {"t": OLD})
    assert codes(refused) == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not await place.is_marked()
    gone = await mark_for_deletion(place.store, place.term, {"u": OLD})
    assert codes(gone) == {"u": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_options_that_a_topic_of_the_name_left_behind_are_replaced(place: Place) -> None:
    await place.put(None)
    await place.replace()
    assert (await place.found()).topic_id == NEW
    assert await place.put(None) == {"t": ErrorCode.TOPIC_ALREADY_EXISTS}
    assert (await place.store.get(znodes.topic_config_path("t"))).stat.version == 1
