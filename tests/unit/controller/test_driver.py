"""The controller's driver over the embedded store: election, fencing, watches, effects."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from pyrklog.cluster.requests import (
    ControlRequest,
    ControlResponse,
    StopReplicaRequest,
    StopReplicaResponse,
)
from pyrklog.controller.driver import FIRST_REBALANCE_SECONDS, ControllerDriver
from pyrklog.controller.machine import Controller
from pyrklog.controller.state import IllegalTransitionError
from pyrklog.controller.state_log import StateChangeLog
from pyrklog.errors import ErrorCode
from pyrklog.membership.current_store import CurrentStore
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedSession, open_store
from pyrklog.metastore.interface import (
    CHANGED,
    Create,
    Node,
    Operation,
    Set,
    Watch,
    WatchEvent,
)
from pyrklog.metastore.znodes import Leadership
from pyrklog.protocol.inter_broker import PartitionInfo, TopicPartitions
from pyrklog.start.identity import create_paths
from tests.unit.controller.runner import assignment
from tests.unit.controller.stage import Brokers, Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    store = await open_store(tmp_path / "meta")
    session = store.session()
    await create_paths(session, znodes.PERSISTENT_PATHS)
    under_test = Cluster(store, tmp_path)
    yield under_test
    under_test.state_log.close()
    await store.close()


async def state(cluster: Cluster, topic: str, partition: int) -> dict[str, object]:
    node = await cluster.store.session().get(znodes.state_path(topic, partition))
    content: dict[str, object] = json.loads(node.data)
    return content


async def wait_gone(session: EmbeddedSession, path: str) -> None:
    with trio.fail_after(10):
        while True:
            changed = trio.Event()
            if await session.exists(path, lambda _, changed=changed: changed.set()) is None:  # type: ignore[misc]
                return
            await changed.wait()


async def wait_childless(session: EmbeddedSession, path: str) -> None:
    with trio.fail_after(10):
        while True:
            changed = trio.Event()
            if not await session.children(path, lambda _, changed=changed: changed.set()):  # type: ignore[misc]
                return
            await changed.wait()


async def test_the_first_broker_is_elected(cluster: Cluster, nursery: trio.Nursery) -> None:
    session = await cluster.register(1)
    driver = cluster.driver(1)
    await nursery.start(driver.run)
    assert driver.leads
    assert driver.controller_id == 1
    assert (await session.get(znodes.CONTROLLER_EPOCH)).data == b"1"
    node = await session.get(znodes.CONTROLLER)
    assert node.stat.ephemeral_owner == session.session_id
    assert znodes.decode_controller(node.data) == 1
    assert cluster.brokers.told == ["metadata brokers 1"]


async def test_second_broker_takes_over_when_the_controller_ends(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    first = await cluster.register(1)
    await cluster.register(2)
    drivers = {b: cluster.driver(b) for b in (1, 2)}
    scope = trio.CancelScope()

    async def run_first() -> None:
        with scope:
            await drivers[1].run()

    nursery.start_soon(run_first)
    with trio.fail_after(10):
        await drivers[1].changes.wait_until(lambda: drivers[1].leads)
    await nursery.start(drivers[2].run)
    assert not drivers[2].leads
    assert drivers[2].controller_id == 1
    await cluster.create_topic("t", (1, 2))
    await cluster.brokers.wait_told("lead t-0:1@0 new")

    scope.cancel()
    await first.expire()
    with trio.fail_after(10):
        await drivers[2].changes.wait_until(lambda: drivers[2].controller_id == 2)
    await cluster.brokers.wait_told("lead t-0:2@1 offline 1")
    assert await state(cluster, "t", 0) == {
        "controller_epoch": 2,
        "leader": 2,
        "version": 1,
        "leader_epoch": 1,
        "isr": [2],
    }


class Jumpy(CurrentStore):
    """A store whose connection can be lost: every watch is called then."""

    def __init__(self, session: EmbeddedSession) -> None:
        super().__init__(session)
        self._given: list[tuple[str, Watch]] = []

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        if watch is not None:
            self._given.append((path, watch))
        return await super().get(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        if watch is not None:
            self._given.append((path, watch))
        return await super().children(path, watch)

    def lose_connection(self) -> None:
        given, self._given = self._given, []
        for path, watch in given:
            watch(WatchEvent(CHANGED, path))


async def test_a_lost_connection_is_no_reason_to_resign(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    session = await cluster.register(1)
    store = Jumpy(session)
    driver = cluster.driver(1, store=store)
    await nursery.start(driver.run)
    for round_ in range(3):
        store.lose_connection()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert driver.leads
        await cluster.create_topic(f"t{round_}", (1,))
        await cluster.brokers.wait_told(f"lead t{round_}-0:1@0 new")
    assert (await session.get(znodes.CONTROLLER_EPOCH)).data == b"1"


async def test_controller_znode_of_an_earlier_term_is_replaced(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    session = await cluster.register(1)
    await session.create(znodes.CONTROLLER, znodes.encode_controller(1, 0), ephemeral=True)
    driver = cluster.driver(1)
    nursery.start_soon(driver.run)
    with trio.fail_after(10):
        await driver.changes.wait_until(lambda: driver.controller_id == 1)
    assert driver.leads


class Slow(CurrentStore):
    """A store that withholds the states of partitions for a while."""

    def __init__(self, session: EmbeddedSession) -> None:
        super().__init__(session)
        self.asked = trio.Event()
        self.go_on = trio.Event()

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        if any(path.endswith("/state") for path in paths):
            self.asked.set()
            await self.go_on.wait()
        return await super().get_many(paths, watch)


def told_of(
    *leaderships: tuple[Leadership, int], topic_id: bytes = b"i" * 16
) -> list[TopicPartitions]:
    """A broker's knowledge of t's partitions: leaderships and versions."""
    infos = [
        PartitionInfo(
            partition=index,
            controller_epoch=1,
            leader=item.leader,
            leader_epoch=item.leader_epoch,
            isr=item.isr,
            partition_epoch=version,
            replicas=(1, 2),
            adding=(),
            removing=(),
            offline=(),
            is_new=False,
            recovery_state=0,
        )
        for index, (item, version) in enumerate(leaderships)
    ]
    return [TopicPartitions("t", topic_id, infos)]


async def led_by_one(cluster: Cluster) -> None:
    """Broker 2 lives, and a topic of two partitions that broker 1 led."""
    await cluster.register(2)
    await cluster.create_topic("t", (1, 2), (1, 2))
    session = cluster.sessions[2]
    await session.create(znodes.partitions_path("t"), b"")
    for index in (0, 1):
        await session.create(znodes.partition_path("t", index), b"")
        leadership = Leadership(1, 4, (1, 2), 1)
        await session.create(znodes.state_path("t", index), znodes.encode_state(leadership))


async def test_first_elections_use_cached_states(cluster: Cluster, nursery: trio.Nursery) -> None:
    """Leaders are elected before any state is read; the states are compared afterwards."""
    await led_by_one(cluster)
    store = Slow(cluster.sessions[2])
    known = (Leadership(1, 4, (1, 2), 1), 0)
    driver = cluster.driver(2, store=store, told=told_of(known, known))
    nursery.start_soon(driver.run)
    with trio.fail_after(10):
        await store.asked.wait()
    assert cluster.brokers.told[-1] == "lead t-0:2@5 offline 1 t-1:2@5 offline 1"
    assert driver.controller_id == -1
    store.go_on.set()
    with trio.fail_after(10):
        await driver.changes.wait_until(lambda: driver.controller_id == 2)
    assert (await state(cluster, "t", 0))["leader_epoch"] == 5
    numbers = cluster.brokers.numbers
    assert len(numbers) > 1
    assert numbers == sorted(set(numbers)), "what is told behind would be taken for late"


async def test_outdated_cached_states_are_refused(cluster: Cluster, nursery: trio.Nursery) -> None:
    """Partition 0 has another ISR by now; partition 1 was not led by broker 1."""
    await led_by_one(cluster)
    session = cluster.sessions[2]
    await session.multi(
        [
            Set(znodes.state_path("t", 0), znodes.encode_state(Leadership(1, 4, (1,), 1)), 0),
            Set(znodes.state_path("t", 1), znodes.encode_state(Leadership(2, 9, (2,), 1)), 0),
        ]
    )
    known = (Leadership(1, 4, (1, 2), 1), 0)
    driver = cluster.driver(2, told=told_of(known, known))
    await nursery.start(driver.run)
    first, second = await state(cluster, "t", 0), await state(cluster, "t", 1)
    assert (first["leader"], first["isr"]) == (-1, [1]), "nobody else was in sync"
    assert (second["leader"], second["isr"]) == (2, [2])


async def test_cached_state_of_a_recreated_topic_is_not_used(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    """Its states may have the same versions as the old one's."""
    await led_by_one(cluster)
    store = Slow(cluster.sessions[2])
    known = (Leadership(1, 4, (1, 2), 1), 0)
    driver = cluster.driver(2, store=store, told=told_of(known, topic_id=b"o" * 16))
    nursery.start_soon(driver.run)
    with trio.fail_after(10):
        await store.asked.wait()
    assert cluster.brokers.told == []


async def test_a_topic_from_its_znode_to_its_leaders(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    await cluster.register(1)
    driver = cluster.driver(1)
    await nursery.start(driver.run)
    await cluster.create_topic("t", (1,), (1,))
    await cluster.brokers.wait_told("lead t-0:1@0 new t-1:1@0 new")
    assert (await state(cluster, "t", 1))["leader"] == 1

    path = znodes.topic_path("t")
    session = cluster.sessions[1]
    await session.set(path, znodes.encode_topic(assignment((1,), (1,), (1,))))
    await cluster.brokers.wait_told("lead t-2:1@0 new")

    await session.create(znodes.delete_topic_path("t"))
    await cluster.brokers.wait_told("stop t-0@-2 delete t-1@-2 delete t-2@-2 delete")
    await wait_childless(session, znodes.DELETE_TOPICS)
    assert await session.exists(path) is None
    assert await session.exists(znodes.topic_config_path("t")) is None

    await cluster.create_topic("t", (1,))
    await cluster.brokers.wait_told("lead t-0:1@0 new")


async def test_leaders_move_when_a_broker_comes_and_goes(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    await cluster.register(1)
    await nursery.start(cluster.driver(1).run)
    second = await cluster.register(2)
    await cluster.brokers.wait_told("metadata brokers 1,2")
    await cluster.create_topic("t", (2, 1))
    await cluster.brokers.wait_told("lead t-0:2@0 new")
    await second.close()
    await cluster.brokers.wait_told("lead t-0:1@1 offline 2")
    assert (await state(cluster, "t", 0))["isr"] == [1]


async def test_a_failed_log_directory_is_looked_into(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    session = await cluster.register(1)
    await nursery.start(cluster.driver(1).run)
    await cluster.create_topic("t", (1,))
    await cluster.brokers.wait_told("lead t-0:1@0 new")
    await session.create(znodes.LOG_DIR_EVENT_PREFIX, znodes.encode_log_dir_event(1), sequence=True)
    await cluster.brokers.wait_told("lead t-0:1@0")
    await wait_childless(session, znodes.LOG_DIR_EVENTS)


async def test_a_controller_that_was_replaced_writes_nothing(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    """Another broker raised the epoch while this one thought it was the controller."""
    session = await cluster.register(1)
    driver = cluster.driver(1)
    await nursery.start(driver.run)
    await session.set(znodes.CONTROLLER_EPOCH, b"5")
    await cluster.create_topic("t", (1,))
    with trio.fail_after(10):
        await driver.changes.wait_until(lambda: not driver.leads)
    await trio.testing.wait_all_tasks_blocked()
    assert await session.exists(znodes.state_path("t", 0)) is None
    assert not any(line.startswith("lead") for line in cluster.brokers.told)


async def test_a_bug_ends_the_term_and_not_the_broker(
    cluster: Cluster, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next term starts anew and finishes the failed one's work."""
    session = await cluster.register(1)
    driver = cluster.driver(1)
    await nursery.start(driver.run)
    monkeypatch.setattr("pyrklog.controller.driver.STORE_RETRY_SECONDS", 0)

    def fails(*_: object) -> None:
        raise IllegalTransitionError("t-0")

    with monkeypatch.context() as broken:
        broken.setattr(Controller, "topics_changed", fails)
        await cluster.create_topic("t", (1,))
        with trio.fail_after(10):
            await driver.changes.wait_until(lambda: driver.controller_id == -1)
    with trio.fail_after(10):
        await driver.changes.wait_until(lambda: driver.controller_id == 1)
    assert (await session.get(znodes.CONTROLLER_EPOCH)).data == b"2"
    assert (await state(cluster, "t", 0))["leader"] == 1


async def test_several_topics_are_deleted_together(cluster: Cluster, nursery: trio.Nursery) -> None:
    session = await cluster.register(1)
    await nursery.start(cluster.driver(1).run)
    for name in ("a", "b"):
        await cluster.create_topic(name, *[(1,)] * 400)
    await session.multis([[Create(znodes.delete_topic_path(name))] for name in ("a", "b")])
    await wait_childless(session, znodes.DELETE_TOPICS)
    assert await session.children(znodes.BROKER_TOPICS) == []
    assert await session.children(znodes.CONFIG_TOPICS) == []


class Withholding(Brokers):
    """Brokers whose answers to a StopReplica are held back."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Callable[[ControlResponse], None]] = []

    def post(self, request: ControlRequest, answered: Callable[[ControlResponse], None]) -> None:
        if isinstance(request, StopReplicaRequest):
            self.held.append(answered)
            super().post(request, lambda _response: None)
        else:
            super().post(request, answered)

    async def wait_held(self, count: int) -> None:
        with trio.fail_after(10):
            while len(self.held) < count:
                await self.changed.wait()


async def test_an_answer_of_a_broker_s_earlier_life_does_not_end_a_deletion(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    """The simulation's seed 220: the topic stayed marked until the next broker came or went."""
    session = await cluster.register(1)
    await cluster.register(2)
    brokers = Withholding()
    await nursery.start(cluster.driver(1, brokers=brokers).run)
    await cluster.create_topic("t", (2,))
    await brokers.wait_told("lead t-0:2@0 new")
    await session.create(znodes.delete_topic_path("t"), b"")
    await brokers.wait_held(1)
    await cluster.sessions[2].close()
    await cluster.register(2)
    await brokers.wait_held(2)
    late, present = brokers.held
    stale = ErrorCode.STALE_BROKER_EPOCH
    late(StopReplicaResponse(stale, {("t", 0): stale}))
    present(StopReplicaResponse(ErrorCode.NONE, {("t", 0): ErrorCode.NONE}))
    await wait_gone(session, znodes.delete_topic_path("t"))
    assert await session.exists(znodes.topic_path("t")) is None


async def test_controller_resigns_when_its_znode_is_deleted(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    """Deleting /controller requests a new election."""
    session = await cluster.register(1)
    driver = cluster.driver(1)
    await nursery.start(driver.run)
    await session.delete(znodes.CONTROLLER)
    with trio.fail_after(10):
        await driver.changes.wait_until(lambda: not driver.leads)
        await driver.changes.wait_until(lambda: driver.controller_id == 1)
    assert (await session.get(znodes.CONTROLLER_EPOCH)).data == b"2"


async def test_topic_creation_interrupted_by_a_crash_is_finished(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    """Some parents of the states exist already: the rest is written one by one."""
    session = await cluster.register(1)
    await cluster.create_topic("t", (1,), (1,), (1,))
    for path in (
        znodes.partitions_path("t"),
        znodes.partition_path("t", 0),
        znodes.partition_path("t", 1),
        znodes.state_path("t", 1),
    ):
        state_of_1 = znodes.encode_state(znodes.Leadership(1, 4, (1,), 1))
        await session.create(path, state_of_1 if path.endswith("state") else b"")
    await nursery.start(cluster.driver(1).run)
    assert "lead t-1:1@4 t-0:1@0 new t-2:1@0 new" in cluster.brokers.told
    assert (await state(cluster, "t", 1))["leader_epoch"] == 4


async def test_an_unreadable_node_is_passed_over(cluster: Cluster, nursery: trio.Nursery) -> None:
    session = await cluster.register(1)
    await session.create(znodes.topic_path("broken"), b"{")
    await session.create(znodes.topic_path("senseless"), b'{"partitions":{"0":[]}}')
    await session.create(znodes.broker_path(9), b"?")
    await cluster.create_topic("t", (1,))
    await nursery.start(cluster.driver(1).run)
    await cluster.brokers.wait_told("lead t-0:1@0 new")


async def test_an_unreadable_block_of_producer_ids_ends_no_term(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    session = await cluster.register(1)
    await session.create(znodes.PRODUCER_ID_BLOCK, b"{}")
    driver = cluster.driver(1)
    await nursery.start(driver.run)
    blocks: list[znodes.ProducerIdBlock] = []
    assert await driver.perform(lambda machine: machine.allocate_producer_ids(1, blocks))
    assert blocks == []
    assert driver.leads


async def test_the_periodic_election(
    cluster: Cluster, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    session = await cluster.register(1)
    await cluster.register(2)
    await cluster.create_topic("t", (2, 1))
    for path in (znodes.partitions_path("t"), znodes.partition_path("t", 0)):
        await session.create(path)
    astray = znodes.Leadership(1, 3, (1, 2), 0)
    await session.create(znodes.state_path("t", 0), znodes.encode_state(astray))
    await nursery.start(cluster.driver(1, rebalance_interval_seconds=300).run)
    await trio.testing.wait_all_tasks_blocked()
    assert (await state(cluster, "t", 0))["leader"] == 1
    mock_clock.jump(FIRST_REBALANCE_SECONDS)
    await cluster.brokers.wait_told("lead t-0:2@4")
    assert (await state(cluster, "t", 0))["leader_epoch"] == 4


async def test_state_changes_are_written_down(cluster: Cluster, nursery: trio.Nursery) -> None:
    await cluster.register(1)
    await nursery.start(cluster.driver(1).run)
    await cluster.create_topic("t", (1,))
    await cluster.brokers.wait_told("lead t-0:1@0 new")
    await trio.testing.wait_all_tasks_blocked()
    assert cluster.state_log.flush()
    text = (cluster.directory / "state-change.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    online = [line for line in lines if line.get("to") == "OnlinePartition"]
    assert [(line["topic"], line["partition"], line["leader"]) for line in online] == [("t", 0, 1)]
    assert online[0]["controller_epoch"] == 1


def test_the_state_change_log_rotates(tmp_path: Path) -> None:
    log = StateChangeLog(tmp_path, size_max_bytes=2000)
    for number in range(100):
        log.write("partition_state", {"topic": "t", "partition": number})
    log.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["state-change.jsonl", "state-change.jsonl.1"]
    assert all(path.stat().st_size < 2200 for path in tmp_path.iterdir())


def test_the_state_change_log_is_given_up_when_it_cannot_be_written(tmp_path: Path) -> None:
    log = StateChangeLog(tmp_path / "none")
    log.write("partition_state", {})
    log.write("partition_state", {})
    log.flush()
    log.close()
    assert list(tmp_path.iterdir()) == []


def make_and_mark(name: str) -> list[Operation]:
    data = znodes.encode_topic(assignment((1,)))
    return [Create(znodes.topic_path(name), data), Create(znodes.delete_topic_path(name))]


async def test_a_topic_marked_while_a_controller_reads_is_deleted(
    cluster: Cluster, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is created and marked between the reads of topics and of marks."""
    session = await cluster.register(1)
    read_topics = ControllerDriver._read_topics

    async def read(self: ControllerDriver, names: Sequence[str]) -> Any:
        monkeypatch.setattr(ControllerDriver, "_read_topics", read_topics)
        found = await read_topics(self, names)
        await session.multi(make_and_mark("short"))
        return found

    monkeypatch.setattr(ControllerDriver, "_read_topics", read)
    await nursery.start(cluster.driver(1).run)
    await wait_gone(session, znodes.topic_path("short"))


async def test_a_mark_that_is_seen_before_its_topic_is_kept(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    """The event of an earlier mark precedes the topic's."""
    session = await cluster.register(1)
    driver = cluster.driver(1)
    await nursery.start(driver.run)

    async def make() -> None:
        await session.multi(make_and_mark("short"))

    driver._queue("make", make)
    driver._queue("deletions", driver._on_deletions)
    await trio.testing.wait_all_tasks_blocked(0.1)
    await wait_gone(session, znodes.topic_path("short"))
