"""The driver when a broker deposes the controller, and when it is deposed itself."""

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
import trio
import trio.testing

from pyrklog.controller.driver import ControllerDriver
from pyrklog.controller.effects import Steps
from pyrklog.controller.machine import Controller
from pyrklog.controller.state import IllegalTransitionError
from pyrklog.controller.store_writes import Term
from pyrklog.controller.takeover.evidence import Found, Incumbent, operations
from pyrklog.membership.current_store import CurrentStore
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedSession, open_store
from pyrklog.metastore.interface import Create, Delete, Operation, Outcome
from pyrklog.protocol.inter_broker import PartitionInfo, TopicPartitions
from pyrklog.start.identity import create_paths
from tests.unit.controller.stage import Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    store = await open_store(tmp_path / "meta")
    await create_paths(store.session(), (*znodes.PERSISTENT_PATHS, *znodes.OWN_PATHS))
    under_test = Cluster(store, tmp_path)
    yield under_test
    under_test.state_log.close()
    await store.close()


async def depose(session: EmbeddedSession, broker: int) -> Term:
    seen = await session.get(znodes.CONTROLLER)
    incumbent = Incumbent(znodes.decode_controller(seen.data), seen.stat)
    await session.create(znodes.refused_path(broker), b"", ephemeral=True)
    deposed = await session.exists(znodes.DEPOSED)
    epoch = await session.get(znodes.CONTROLLER_EPOCH)
    found = Found(epoch, 0, None if deposed is None else deposed.version)
    await session.multi(operations(broker, incumbent, found, 1, 0))
    node = await session.get(znodes.CONTROLLER_EPOCH)
    return Term(int(node.data), node.stat.version, incumbent.broker)


class Told:
    def __init__(self, session: EmbeddedSession, broker: int) -> None:
        self.now = trio.Event()
        self.seen: list[int] = []
        self._session = session
        self._broker = broker

    async def run(self, incumbent: Incumbent | None, moved: trio.Event) -> Term | None:
        assert incumbent is not None
        self.seen.append(incumbent.broker)
        await self.now.wait()
        return await depose(self._session, self._broker)


async def until(driver: ControllerDriver, condition: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        await driver.changes.wait_until(condition)


async def test_deposed_controller_steps_down_and_is_fenced(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    """Its session continues, and it follows the new controller."""
    await cluster.register(1)
    second = await cluster.register(2)
    first_driver = cluster.driver(1)
    await nursery.start(first_driver.run)
    told = Told(second, 2)
    driver = cluster.driver(2, standby=told)
    await nursery.start(driver.run)
    assert (driver.controller_id, told.seen) == (1, [1])
    fence = first_driver._term
    assert fence is not None
    told.now.set()
    await until(driver, lambda: driver.controller_id == 2)
    await until(first_driver, lambda: first_driver.controller_id == 2)
    assert not first_driver.leads
    (outcome,) = await cluster.sessions[1].multis([[fence.check(), Create("/late")]])
    assert isinstance(outcome, Exception), "the term of before writes nothing any more"
    assert await second.children(znodes.BROKER_IDS) == ["1", "2"]
    await cluster.create_topic("t", (1, 2))
    await cluster.brokers.wait_told("lead t-0:1@0 new")


async def test_leaders_of_a_deposed_controller_move_at_once(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    """From the new controller's memory. These controllers have no observers."""
    await cluster.register(1)
    second = await cluster.register(2)
    await nursery.start(cluster.driver(1).run)
    for name in ("t", "u"):
        await cluster.create_topic(name, (1, 2) if name == "t" else (1,))
        await cluster.brokers.wait_told(f"lead {name}-0:1@0 new")
    remembered = [
        TopicPartitions(
            name,
            b"i" * 16,
            [PartitionInfo(0, 1, 1, 0, isr, 0, isr, (), (), (), False, znodes.RECOVERED)],
        )
        for name, isr in (("t", (1, 2)), ("u", (1,)))
    ]
    standby = Told(second, 2)
    driver = cluster.driver(2, told=remembered, standby=standby)
    await nursery.start(driver.run)
    cluster.brokers.told.clear()
    standby.now.set()
    await cluster.brokers.wait_told("lead t-0:2@1")
    await until(driver, lambda: driver.controller_id == 2)
    lone = await second.get(znodes.state_path("u", 0))
    assert znodes.decode_state("u", lone.data) == znodes.Leadership(1, 0, (1,), 1)
    moved = await second.get(znodes.state_path("t", 0))
    assert znodes.decode_state("t", moved.data) == znodes.Leadership(2, 1, (2,), 2)


class BeforeDeletion(CurrentStore):
    """Another broker deposes just before a failed term's /controller is deleted."""

    def __init__(self, session: EmbeddedSession, other: EmbeddedSession) -> None:
        super().__init__(session)
        self._other = other
        self.happened = trio.Event()

    async def multis(self, transactions: Sequence[Sequence[Operation]]) -> list[Outcome]:
        is_deletion = any(
            isinstance(operation, Delete) and operation.path == znodes.CONTROLLER
            for operation in transactions[0]
        )
        if is_deletion and not self.happened.is_set():
            await depose(self._other, 2)
            self.happened.set()
        return await super().multis(transactions)


async def led_and_failed(
    cluster: Cluster, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> BeforeDeletion:
    store = BeforeDeletion(await cluster.register(1), await cluster.register(2))
    driver = cluster.driver(1, store=store)
    await nursery.start(driver.run)
    monkeypatch.setattr("pyrklog.controller.driver.STORE_RETRY_SECONDS", 0)

    def fails(_: Controller) -> Steps:
        raise IllegalTransitionError("t-0")

    nursery.start_soon(driver.perform, fails)
    with trio.fail_after(10):
        await store.happened.wait()
    await until(driver, lambda: driver.controller_id == 2)
    return store


async def test_failed_term_does_not_delete_another_controllers_znode(
    cluster: Cluster, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    await led_and_failed(cluster, nursery, monkeypatch)
    node = await cluster.sessions[2].get(znodes.CONTROLLER)
    assert znodes.decode_controller(node.data) == 2


async def test_own_controller_znode_is_deleted_only_at_its_epoch(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    """/controller has version 0 in each term: the epoch tells them apart."""
    first, second = await cluster.register(1), await cluster.register(2)
    await first.create(znodes.CONTROLLER_EPOCH, b"3")
    await first.create(znodes.CONTROLLER, znodes.encode_controller(1, 0), ephemeral=True)
    driver = cluster.driver(1, store=BeforeDeletion(first, second))
    nursery.start_soon(driver.run)
    await until(driver, lambda: driver.controller_id == 2)
    node = await second.get(znodes.CONTROLLER)
    assert node.stat.ephemeral_owner == second.session_id
