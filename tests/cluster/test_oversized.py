"""Data too large for ZooKeeper: refused with a reason, and everything else continues."""

from pathlib import Path
from uuid import uuid4

import pytest
import trio

from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.controller import store_writes
from pyrklog.controller.effects import StateWrite
from pyrklog.controller.store_writes import Term
from pyrklog.errors import ErrorCode
from pyrklog.handlers.service import (
    OP_APPEND,
    RESOURCE_TOPIC,
    ConfigAlteration,
    ConfigResource,
    TopicSpec,
)
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Create, TooLargeError
from pyrklog.metastore.sizes import TRANSACTION_BYTES_MAX
from pyrklog.metastore.zookeeper import ZooKeeperAddress, ZooKeeperSession, connect
from pyrklog.start.identity import create_paths
from tests.support.zookeeper_server import ZooKeeperServer
from tests.unit.broker.harness import running_broker

pytestmark = pytest.mark.jvm
PATIENCE_S = 180
SESSION_MS = 60_000
"""Much is computed within the event loop; without its signs of life a session ends."""
THROTTLED = "leader.replication.throttled.replicas"


async def session_with(zookeeper: ZooKeeperServer) -> ZooKeeperSession:
    address = f"{zookeeper.address}/{uuid4()}"
    return await connect(ZooKeeperAddress(address, SESSION_MS, SESSION_MS))


async def test_a_write_that_is_too_large_is_not_sent(zookeeper: ZooKeeperServer) -> None:
    session = await session_with(zookeeper)
    most = b"x" * (TRANSACTION_BYTES_MAX - 1000)
    with trio.fail_after(PATIENCE_S):
        await session.create("/most", most)
        assert (await session.get("/most")).data == most
        with pytest.raises(TooLargeError, match=r"1100\d+ bytes are too many.*/n"):
            await session.create("/n", b"x" * 1_100_000)
        large = [Create(f"/large{index}", b"x" * 100_000) for index in range(10)]
        outcomes = await session.multis([[Create("/before")], large, [Create("/after")]])
        assert isinstance(outcomes[1], TooLargeError)
        assert await session.children("/") == ["after", "before", "most"]
        await session.close()


OTHERS = range(2_000_000_001, 2_000_000_010)
"""Registered brokers that do nothing else."""


async def register_others(session: ZooKeeperSession) -> None:
    for broker in OTHERS:
        registration = znodes.BrokerRegistration(
            [("PLAINTEXT", "127.0.0.1", 1)], {"PLAINTEXT": "PLAINTEXT"}, None, 0
        )
        await session.create(
            znodes.broker_path(broker), znodes.encode_broker(registration), ephemeral=True
        )


async def test_client_gets_an_error_for_an_oversized_write(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    chroot = f"{zookeeper.address}/{uuid4()}"
    options = (
        f"zookeeper.connect={chroot}",
        f"zookeeper.session.timeout.ms={SESSION_MS}",
        "broker.id=1",
        "pyrklog.failover.watchdog=false",
    )
    async with running_broker(tmp_path, *options) as running:
        service = running.service
        session = await connect(ZooKeeperAddress(chroot, SESSION_MS, SESSION_MS))
        with trio.fail_after(PATIENCE_S):
            await running.created("t")
            await register_others(session)
            await running.plane.wait_until(
                lambda: len(running.plane.deltas[-1].brokers) == 1 + len(OTHERS)
            )
            everywhere = [1, *OTHERS]
            spec = TopicSpec("huge", assignments=dict.fromkeys(range(10000), everywhere))
            (refused,) = await running.create(spec)
            assert refused.error is ErrorCode.INVALID_REQUEST
            assert "too many" in (refused.message or "")

            resource = ConfigResource(RESOURCE_TOPIC, "t")
            codes = []
            for first in range(0, 200_000, 25_000):
                more = ",".join(f"{partition}:1" for partition in range(first, first + 25_000))
                (altered,) = await service.incremental_alter_configs(
                    [(resource, [ConfigAlteration(OP_APPEND, THROTTLED, more)])],
                    validate_only=False,
                )
                codes.append(altered.error)
            assert set(codes) == {ErrorCode.NONE, ErrorCode.INVALID_REQUEST}
            assert codes == sorted(codes), "what fits comes first"
            assert "too many" in (altered.message or "")
            (created,) = await running.create(TopicSpec("after", assignments={0: [1]}))
            assert created.error is ErrorCode.NONE
            await session.close()
    assert running.exit_code == 0


async def test_the_controller_splits_its_writes(zookeeper: ZooKeeperServer) -> None:
    """Two hundred partitions with some thousand replicas each, created and changed."""
    session = await session_with(zookeeper)
    await create_paths(session, [*znodes.PERSISTENT_PATHS, znodes.CONTROLLER_EPOCH])
    await session.create(znodes.topic_path("t"), b"")
    term = Term(0, 0)
    keys = [("t", index) for index in range(200)]
    isr = tuple(range(100_000, 102_000))
    with trio.fail_after(PATIENCE_S):
        for version in (-1, 0):
            leadership = znodes.Leadership(1, version, isr, 1)
            writes = [StateWrite(key, leadership, version) for key in keys]
            written = await store_writes.write_states(session, term, writes)
            assert written == dict.fromkeys(keys, version + 1)
        large = znodes.Leadership(1, 1, tuple(range(10**6, 10**6 + 150_000)), 1)
        writes = [StateWrite(keys[0], large, 1), StateWrite(keys[1], leadership, 1)]
        written = await store_writes.write_states(session, term, writes)
        assert written == {keys[0]: None, keys[1]: 2}
        await session.close()


async def test_an_assignment_that_does_not_fit_is_refused(zookeeper: ZooKeeperServer) -> None:
    session = await session_with(zookeeper)
    await create_paths(session, [*znodes.PERSISTENT_PATHS, znodes.CONTROLLER_EPOCH])
    plan = znodes.TopicAssignment(b"1" * 16, dict.fromkeys(range(40_000), (1,)), {}, {})
    await session.create(znodes.topic_path("t"), znodes.encode_topic(plan))
    moves = {index: PartitionAssignment((2, 1), (2,), (1,)) for index in plan.replicas}
    with trio.fail_after(PATIENCE_S):
        error = await store_writes.write_assignments(session, Term(0, 0), "t", moves)
        assert error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        few = {index: moves[index] for index in range(100)}
        assert await store_writes.write_assignments(session, Term(0, 0), "t", few) is ErrorCode.NONE
        await session.close()
