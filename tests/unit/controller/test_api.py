"""Administrators' requests to the controller, over the embedded store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.cluster.requests import (
    AlterPartitionRequest,
    Elected,
    ElectionKind,
    IsrChange,
    Refusal,
)
from pyrklog.controller import store_writes
from pyrklog.controller.api import ControllerApi
from pyrklog.controller.store_writes import ControllerMovedError, Term, write_assignments
from pyrklog.errors import ErrorCode
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import open_store
from pyrklog.metastore.interface import Node
from pyrklog.start.identity import create_paths
from tests.unit.controller.runner import assignment
from tests.unit.controller.stage import Cluster

T0 = ("t", 0)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    store = await open_store(tmp_path / "meta")
    await create_paths(store.session(), znodes.PERSISTENT_PATHS)
    under_test = Cluster(store, tmp_path)
    for broker in (1, 2):
        await under_test.register(broker)
    yield under_test
    under_test.state_log.close()
    await store.close()


async def topic(cluster: Cluster) -> tuple[object, ...]:
    path = znodes.topic_path("t")
    node = znodes.decode_topic(path, (await cluster.sessions[1].get(path)).data)
    return node.replicas[0], node.adding, node.removing


async def catch_up(cluster: Cluster, controller_api: ControllerApi, *isr: int) -> None:
    path = znodes.state_path("t", 0)
    node = await cluster.sessions[1].get(path)
    state = znodes.decode_state(path, node.data)
    members = [(broker, -1) for broker in isr]
    change = IsrChange(b"i" * 16, 0, state.leader_epoch, node.stat.version, members, 0)
    registration = await cluster.sessions[1].exists(znodes.broker_path(1))
    assert registration is not None
    response = await controller_api.alter_partitions(
        AlterPartitionRequest(1, registration.czxid, [change])
    )
    assert [result.error for result in response.results] == [ErrorCode.NONE]


async def test_a_partition_moves_and_its_leader_is_elected(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    driver = cluster.driver(1)
    controller_api = ControllerApi(driver)
    assert await controller_api.alter_reassignments({T0: (2,)}) is None
    assert await controller_api.reassignments(None) is None
    assert await controller_api.elect(ElectionKind.PREFERRED, None) is None
    await nursery.start(driver.run)
    await cluster.create_topic("t", (1,))
    await cluster.brokers.wait_told("lead t-0:1@0 new")
    assert await controller_api.alter_reassignments({T0: (2, 1)}) == {T0: Refusal(ErrorCode.NONE)}
    assert await topic(cluster) == ((2, 1), {0: (2,)}, {})
    moving = PartitionAssignment((2, 1), (2,), ())
    assert await controller_api.reassignments([T0, ("u", 0)]) == {T0: moving}
    await catch_up(cluster, controller_api, 1, 2)
    assert await topic(cluster) == ((2, 1), {}, {})
    assert await controller_api.reassignments(None) == {}
    elected = await controller_api.elect(ElectionKind.PREFERRED, [T0])
    assert elected == {T0: Elected(Refusal(ErrorCode.NONE), 2)}
    await cluster.brokers.wait_told("lead t-0:2@3")


async def test_the_legacy_znodes_are_watched(cluster: Cluster, nursery: trio.Nursery) -> None:
    driver = cluster.driver(1)
    controller_api = ControllerApi(driver)
    await nursery.start(driver.run)
    await cluster.create_topic("t", (1,))
    await cluster.brokers.wait_told("lead t-0:1@0 new")
    session = cluster.sessions[1]
    wanted = znodes.encode_reassignments({T0: (2, 1), ("u", 0): (1,)})
    for content in (b"{", b'{"version":1}', wanted):
        # An unreadable znode stays, and is read again when it changes.
        if await session.exists(znodes.REASSIGN_PARTITIONS) is None:
            await session.create(znodes.REASSIGN_PARTITIONS, content)
        else:
            await session.set(znodes.REASSIGN_PARTITIONS, content)
    await cluster.brokers.wait_told("lead t-0:1@1 new")
    left = (await session.get(znodes.REASSIGN_PARTITIONS)).data
    assert znodes.decode_reassignments(left) == {T0: (2, 1)}
    await catch_up(cluster, controller_api, 1, 2)
    assert await session.exists(znodes.REASSIGN_PARTITIONS) is None
    await session.create(
        znodes.PREFERRED_ELECTION,
        b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
    )
    await cluster.brokers.wait_told("lead t-0:2@3")
    await session.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments({T0: (1, 2)}))
    # Another order alone raises no epoch.
    gone = trio.Event()
    if await session.exists(znodes.REASSIGN_PARTITIONS, lambda _: gone.set()) is not None:
        with trio.fail_after(10):
            await gone.wait()
    await session.create(
        znodes.PREFERRED_ELECTION,
        b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
    )
    await cluster.brokers.wait_told("lead t-0:1@4")


async def test_partitions_that_are_added_at_the_same_time_stay(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process writes the topic's znode between our read and our write."""
    await cluster.create_topic("t", (1,))
    session = cluster.sessions[1]
    await session.create(znodes.CONTROLLER_EPOCH, b"1")
    term = Term(1, 0)
    path = znodes.topic_path("t")
    get = session.get
    looks = 0

    async def get_and_lose(wanted: str) -> Node:
        nonlocal looks
        node = await get(wanted)
        looks += 1
        if looks == 1:
            data = znodes.encode_topic(assignment((1,), (2,)))
            await cluster.sessions[2].set(path, data)
        return node

    monkeypatch.setattr(session, "get", get_and_lose)
    move = {0: PartitionAssignment((2, 1), (2,), (1,))}
    assert await store_writes.write_assignments(session, term, "t", move) is ErrorCode.NONE
    node = znodes.decode_topic(path, (await get(path)).data)
    assert node.replicas == {0: (2, 1), 1: (2,)}
    assert (node.adding, node.removing) == ({0: (2,)}, {0: (1,)})
    assert looks == 2
    gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await store_writes.write_assignments(session, term, "u", move) is gone
    with pytest.raises(ControllerMovedError):
        await store_writes.write_assignments(session, Term(0, 7), "t", move)


async def test_unreadable_topic_is_not_reassigned(
    cluster: Cluster,
) -> None:
    session = cluster.sessions[1]
    await session.create(znodes.topic_path("t"), b'{"partitions":{"0":[]}}')
    moves = {0: PartitionAssignment((1,))}
    error = await write_assignments(session, Term(1, 0), "t", moves)
    assert error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
