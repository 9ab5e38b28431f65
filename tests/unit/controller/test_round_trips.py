"""How often a controller waits for the store; each wait costs a round trip."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import trio
import trio.testing

from pyrklog.controller import store_writes
from pyrklog.controller.store_writes import Term
from pyrklog.membership.current_store import CurrentStore
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedSession, open_store
from pyrklog.metastore.interface import (
    Create,
    Node,
    Operation,
    Outcome,
    Stat,
    Watch,
    descendants_of,
)
from pyrklog.start.identity import create_paths
from tests.unit.controller.runner import assignment
from tests.unit.controller.stage import Cluster

TOPICS = 5_000
ROUND_TRIP_S = 0.002
UNTIL_A_DEATH_IS_ACTED_ON = 20
"""Brokers, states and options of what it led, writes, and work under way."""
OF_A_DELETION = 15


class Distant(CurrentStore):
    def __init__(self, session: EmbeddedSession) -> None:
        super().__init__(session)
        self.calls = 0
        self.has_read_brokers = trio.Event()

    async def _travel(self) -> None:
        self.calls += 1
        await trio.sleep(ROUND_TRIP_S)

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        await self._travel()
        return await super().get(path, watch)

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        await self._travel()
        found = await super().get_many(paths, watch)
        if any(path.startswith(znodes.BROKER_IDS) for path in paths):
            self.has_read_brokers.set()
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        await self._travel()
        return await super().exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        await self._travel()
        return await super().children(path, watch)

    async def children_of(self, paths: Sequence[str]) -> list[list[str] | None]:
        await self._travel()
        return await super().children_of(paths)

    async def multis(self, transactions: Sequence[Sequence[Operation]]) -> list[Outcome]:
        await self._travel()
        return await super().multis(transactions)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    store = await open_store(tmp_path / "meta")
    session = store.session()
    await create_paths(session, znodes.PERSISTENT_PATHS)
    under_test = Cluster(store, tmp_path)
    yield under_test
    under_test.state_log.close()
    await store.close()


async def test_a_death_is_acted_on_before_thousands_of_topics_are_looked_at(
    cluster: Cluster, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    """The connection was lost briefly: everything watched must be read again."""
    first = await cluster.register(1)
    second = await cluster.register(2)
    topics = [
        [Create(znodes.topic_path(f"t{i}"), znodes.encode_topic(plan))]
        for i in range(TOPICS)
        for plan in [assignment((2, 1) if i % 100 == 0 else (1,), topic_id=i.to_bytes(16))]
    ]
    await first.multis(topics)
    store = Distant(first)
    driver = cluster.driver(1, store=store)
    await nursery.start(driver.run)
    cluster.store.watches.fire_all()
    # Brokers are read, then topics: the death falls in between.
    store.has_read_brokers = trio.Event()
    await store.has_read_brokers.wait()
    await trio.sleep(5 * ROUND_TRIP_S)
    before = store.calls
    await second.expire()
    while not any("lead t0-0:1@1" in line for line in cluster.brokers.told):
        await trio.sleep(ROUND_TRIP_S)
        assert store.calls - before < UNTIL_A_DEATH_IS_ACTED_ON, "it waits for the topics"
    plan = znodes.encode_topic(assignment((1,), (1,), topic_id=(7).to_bytes(16)))
    await first.set(znodes.topic_path("t7"), plan)
    while not any("lead t7-1:1@0 new" in line for line in cluster.brokers.told):
        await cluster.brokers.changed.wait()


async def test_the_number_of_partitions_says_nothing_of_the_round_trips_of_a_deletion(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    session = await cluster.register(1)
    await session.create(znodes.CONTROLLER_EPOCH, b"1")
    for name in ("a", "b"):
        path = znodes.topic_path(name)
        nodes = [path, znodes.delete_topic_path(name), znodes.partitions_path(name)]
        for index in range(1000):
            nodes += [znodes.partition_path(name, index), znodes.state_path(name, index)]
        await session.multis([[Create(node)] for node in nodes])
    store = Distant(session)
    await store_writes.delete_topics(store, Term(1, 0), ["a", "b"])
    assert store.calls <= OF_A_DELETION
    assert await session.children(znodes.BROKER_TOPICS) == []
    assert await session.children(znodes.DELETE_TOPICS) == []
    assert await descendants_of(session, [znodes.BROKER_TOPICS]) == []


async def test_topic_with_a_used_id_is_set_aside(cluster: Cluster, nursery: trio.Nursery) -> None:
    await cluster.register(1)
    await cluster.create_topic("a", (1,))
    await cluster.create_topic("no name", (1,))
    driver = cluster.driver(1)
    await nursery.start(driver.run)
    await cluster.brokers.wait_told("lead a-0:1@0 new")
    same = znodes.encode_topic(assignment((1,)))
    await cluster.sessions[1].create(znodes.topic_path("same-id"), same)
    other = znodes.encode_topic(assignment((1,), topic_id=b"o" * 16))
    await cluster.sessions[1].create(znodes.topic_path("z"), other)
    await cluster.brokers.wait_told("lead z-0:1@0 new")
    assert driver.leads
    led = [line for line in cluster.brokers.told if line.startswith("lead")]
    assert led == ["lead a-0:1@0 new", "lead z-0:1@0 new"]
