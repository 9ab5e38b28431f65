"""Controllers and brokers that die at every step of their work (seed 000, parts 2 and 3)."""

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from pyrklog.cluster.requests import (
    AlterPartitionRequest,
    ControlRequest,
    ControlResponse,
    IsrChange,
    IsrChangeResult,
)
from pyrklog.controller.driver import ControllerDriver
from pyrklog.controller.effects import Steps
from pyrklog.controller.machine import Controller
from pyrklog.membership.current_store import CurrentStore
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedSession, open_store
from pyrklog.metastore.interface import (
    ANY_VERSION,
    MetastoreError,
    Node,
    NoNodeError,
    Operation,
    OperationResult,
    Stat,
    Watch,
)
from pyrklog.metastore.znodes import Leadership, TopicAssignment
from pyrklog.start.identity import create_paths
from tests.unit.controller.runner import EPOCH, CrashedError, Runner, assignment, live
from tests.unit.controller.stage import Brokers, Cluster

DYING, NEXT, THIRD, DEAD = 1, 2, 3, 4


class Life:
    """Ends after so many reads, writes and requests."""

    def __init__(self, actions: int) -> None:
        self.left = actions
        self.is_over = trio.Event()

    def act(self) -> bool:
        """Takes one away; False when there is none left."""
        if not self.left:
            self.is_over.set()
            return False
        self.left -= 1
        return True


class DyingStore(CurrentStore):
    """The way to the store of a broker that dies: from then on nothing is answered."""

    def __init__(self, session: EmbeddedSession, life: Life) -> None:
        super().__init__(session)
        self._life = life

    async def _act(self) -> None:
        if not self._life.act():
            await trio.sleep_forever()

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        await self._act()
        return await super().get(path, watch)

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        await self._act()
        return await super().get_many(paths, watch)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        await self._act()
        return await super().exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        await self._act()
        return await super().children(path, watch)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._act()
        await super().delete(path, version)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        await self._act()
        return await super().multi(operations)

    async def multis(
        self, transactions: Sequence[Sequence[Operation]]
    ) -> list[list[OperationResult] | MetastoreError]:
        await self._act()
        # Transactions that are sent together may be done in part.
        outcomes: list[list[OperationResult] | MetastoreError] = []
        for one in transactions:
            outcomes += await super().multis([one])
            if one is not transactions[-1]:
                await self._act()
        return outcomes


class DyingBrokers(Brokers):
    """What a dying controller says, as long as it says something."""

    def __init__(self, life: Life, heard: Brokers) -> None:
        super().__init__()
        self._life = life
        self._heard = heard

    def post(self, request: ControlRequest, answered: Callable[[ControlResponse], None]) -> None:
        if self._life.act():
            self._heard.post(request, answered)


TOPICS = {
    "led-by-the-dead": ((DEAD, NEXT), Leadership(DEAD, 4, (DEAD, NEXT), 1)),
    "preferred": ((THIRD, NEXT), Leadership(NEXT, 4, (NEXT, THIRD), 1)),
    "arrived": ((THIRD, NEXT), Leadership(NEXT, 4, (NEXT, THIRD), 1)),
    "under-way": ((THIRD, NEXT), Leadership(NEXT, 4, (NEXT,), 1)),
    "by-znode": ((NEXT,), Leadership(NEXT, 4, (NEXT,), 1)),
    "gone": ((NEXT, THIRD), Leadership(NEXT, 4, (NEXT, THIRD), 1)),
    "unborn": ((NEXT, THIRD), None),
}
MOVING = ("arrived", "under-way")
KEPT = {
    "led-by-the-dead": ((DEAD, NEXT), NEXT, {NEXT}),
    "preferred": ((THIRD, NEXT), THIRD, {NEXT, THIRD}),
    "arrived": ((THIRD,), THIRD, {THIRD}),
    "under-way": ((THIRD,), THIRD, {THIRD}),
    "by-znode": ((THIRD,), THIRD, {THIRD}),
    "unborn": ((NEXT, THIRD), NEXT, {NEXT, THIRD}),
}
"""Replicas, leader and in-sync replicas at the end."""


async def furnish(session: EmbeddedSession) -> None:
    """What an earlier controller left behind: something for each step of a take-over."""
    for name, (replicas, leadership) in TOPICS.items():
        adding = {0: (THIRD,)} if name in MOVING else {}
        removing = {0: (NEXT,)} if name in MOVING else {}
        node = TopicAssignment(name.encode().ljust(16), {0: replicas}, adding, removing)
        await session.create(znodes.topic_path(name), znodes.encode_topic(node))
        await session.create(znodes.topic_config_path(name), znodes.encode_config({}))
        if leadership is not None:
            await session.create(znodes.partitions_path(name))
            await session.create(znodes.partition_path(name, 0))
            await session.create(znodes.state_path(name, 0), znodes.encode_state(leadership))
    await session.create(znodes.delete_topic_path("gone"))
    await session.create(
        znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments({("by-znode", 0): (THIRD,)})
    )
    wanted = {"version": 1, "partitions": [{"topic": "preferred", "partition": 0}]}
    await session.create(znodes.PREFERRED_ELECTION, json.dumps(wanted).encode())
    await session.create(znodes.LOG_DIR_EVENT_PREFIX, znodes.encode_log_dir_event(3), sequence=True)


def everybody_catches_up(controller: Controller) -> Steps:
    """What leaders ask for when their followers have everything."""
    for partition in list(controller.state.moving()):
        leadership = partition.leadership
        assert leadership is not None
        live_ones = [b for b in partition.replicas if b in controller.state.brokers]
        change = IsrChange(
            partition.topic.id,
            partition.index,
            leadership.leader_epoch,
            partition.partition_epoch,
            [(broker, -1) for broker in live_ones],
            0,
        )
        results: list[IsrChangeResult] = []
        request = AlterPartitionRequest(leadership.leader, -1, [change])
        yield from controller.alter_partitions(request, results)


async def is_finished(session: EmbeddedSession) -> bool:
    if await session.children(znodes.DELETE_TOPICS):
        return False
    if await session.children(znodes.LOG_DIR_EVENTS):
        return False
    if await session.exists(znodes.topic_path("gone")) is not None:
        return False
    for path in (znodes.REASSIGN_PARTITIONS, znodes.PREFERRED_ELECTION):
        if await session.exists(path) is not None:
            return False
    return await kept(session) == KEPT


async def kept(session: EmbeddedSession) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in KEPT:
        path = znodes.topic_path(name)
        node = znodes.decode_topic(path, (await session.get(path)).data)
        path = znodes.state_path(name, 0)
        try:
            state = znodes.decode_state(path, (await session.get(path)).data)
        except NoNodeError:
            continue
        if not node.adding and not node.removing:
            found[name] = (node.replicas[0], state.leader, set(state.isr))
    return found


async def bring_to_an_end(
    driver: ControllerDriver, onlooker: EmbeddedSession, scope: trio.CancelScope
) -> None:
    """Lets followers catch up until nothing is left to do."""
    with trio.fail_after(30):
        await driver.changes.wait_until(lambda: driver.leads and driver.controller_id > 0)
        while not await is_finished(onlooker):
            await driver.perform(everybody_catches_up)
            await trio.testing.wait_all_tasks_blocked(0.001)
    scope.cancel()


async def die_after(actions: int, directory: Path) -> bool:
    """One controller dies after so many actions, the next does the rest; False: it lived."""
    store = await open_store(directory / "meta")
    cluster = Cluster(store, directory)
    await create_paths(store.session(), znodes.PERSISTENT_PATHS)
    for broker in (DYING, NEXT, THIRD):
        await cluster.register(broker)
    onlooker = store.session()
    await furnish(onlooker)
    life = Life(actions)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            first = cluster.driver(
                DYING,
                store=DyingStore(cluster.sessions[DYING], life),
                brokers=DyingBrokers(life, cluster.brokers),
            )
            nursery.start_soon(first.run)
            nursery.start_soon(bring_to_an_end, first, onlooker, nursery.cancel_scope)
            await life.is_over.wait()
            nursery.cancel_scope.cancel()
    await cluster.sessions[DYING].expire()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            second = cluster.driver(NEXT)
            await nursery.start(second.run)
            await bring_to_an_end(second, onlooker, nursery.cancel_scope)
    assert await is_finished(onlooker)
    cluster.state_log.close()
    await store.close()
    return life.is_over.is_set()


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A directory that no disk holds up: a hundred stores are opened here."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield Path(path)


async def test_a_controller_dies_at_each_step_of_taking_over(in_memory: Path) -> None:
    """Watches, elections, metadata, orders, reassignments, deletions: the next one goes on."""
    deaths = 0
    while await die_after(deaths, in_memory / str(deaths)):
        deaths += 1
    assert deaths > 60


def lose_broker(runner: Runner) -> None:
    runner.run(runner.controller.brokers_changed(live(1, 2)))


def test_a_controller_dies_at_each_step_of_a_brokers_fail_over() -> None:
    """Which partitions it had, their leaders, ISRs and epochs, then LeaderAndIsr."""
    replicas = [(3, 1), (3, 2), (1, 3), (2, 3), (3,), (1, 2)]
    crashes = 0
    while True:
        first = Runner()
        for index, members in enumerate(replicas):
            first.states[("t", index)] = (Leadership(members[0], 3, members, EPOCH - 1), 5)
        first.start(live(1, 2, 3), {"t": assignment(*replicas)})
        first.actions_left = crashes
        try:
            lose_broker(first)
        except CrashedError:
            crashes += 1
        else:
            break
        second = first.successor()
        second.start(live(1, 2))
        for index, members in enumerate(replicas):
            leadership, _ = second.states[("t", index)]
            left = [broker for broker in members if broker != 3]
            assert leadership.leader == (left[0] if left else -1)
            # The last in-sync replica stays: it alone has everything.
            assert set(leadership.isr) == (set(left) or {3})
    assert crashes > 5
