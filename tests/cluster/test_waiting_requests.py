"""Requests that wait for ZooKeeper or a follower do not hold up heartbeats."""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benches.group_members import Member, form_groups, frame, heartbeat_error
from pyrklog.errors import ErrorCode
from pyrklog.protocol.coordinators import FIND_COORDINATOR, FindCoordinatorRequest
from pyrklog.protocol.offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyrklog.protocol.topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from pyrklog.testing import TestBroker
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create
from tests.support.waiting import wait_until
from tests.support.zookeeper_server import ZooKeeperServer

WAITING = 600
HEARTBEATS = 20
HEARTBEAT_INTERVAL_S = 0.1
PATIENCE_S = 50.0
LONG_SESSION_MS = 600_000
"""No session ends in a test, however slow the machine."""


def test_an_absent_zookeeper_keeps_no_heartbeat_out(
    new_cluster: Callable[..., BrokerCluster], own_zookeeper: ZooKeeperServer
) -> None:
    options = {"zookeeper.session.timeout.ms": LONG_SESSION_MS}
    broker = new_cluster(own_zookeeper.address, count=1, **options).start().brokers[1]
    [[member]] = form_groups(broker.port, ["bystander"], 1)
    own_zookeeper.pause()
    try:
        request = CreateTopicsRequest([CreatableTopic("late", 1, 1)], timeout_ms=60_000)
        with _waiting(broker, frame(CREATE_TOPICS, 5, request)):
            _heartbeats_go_on(member)
        _heartbeats_go_on(member)
    finally:
        member.socket.close()
        own_zookeeper.resume()


def test_a_follower_that_hangs_keeps_no_heartbeat_out(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    options: dict[str, Any] = {
        "zookeeper.session.timeout.ms": LONG_SESSION_MS,
        "pyrklog.failover.suspicion": False,
        "offsets.topic.num.partitions": 1,
        "offsets.commit.timeout.ms": 30_000,
        # The follower that hangs stays in sync, so that commits go on waiting for it.
        "replica.lag.time.max.ms": LONG_SESSION_MS,
    }
    cluster = new_cluster(count=2, **options).start()
    create(cluster, topic, partitions=1)
    coordinator = cluster.brokers[_coordinator(cluster)]
    [other] = [one for one in cluster.brokers.values() if one is not coordinator]
    [[member]] = form_groups(coordinator.port, ["bystander"], 1)
    other.signal(signal.SIGSTOP)
    try:
        offsets = [OffsetCommitRequestTopic(topic, [OffsetCommitRequestPartition(0, 1)])]
        request = OffsetCommitRequest("waiting", topics=offsets)
        with _waiting(coordinator, frame(OFFSET_COMMIT, 8, request)) as waiting:
            _heartbeats_go_on(member)
            readable, _, _ = select.select([one.socket for one in waiting], [], [], 0)
            assert readable == [], "all of them wait still"
            answer = OFFSET_COMMIT.decode_response(waiting[0].receive(), 8)
            code = answer.topics[0].partitions[0].error_code
            assert code == ErrorCode.REQUEST_TIMED_OUT
    finally:
        member.socket.close()
        other.signal(signal.SIGCONT)


def _coordinator(cluster: BrokerCluster) -> int:
    asked = FindCoordinatorRequest(coordinator_keys=["bystander"])

    def found() -> int | None:
        asking = Member(cluster.brokers[1].port, "bystander")
        answer = asking.ask(FIND_COORDINATOR, asked).coordinators[0]
        asking.socket.close()
        return None if answer.error_code else answer.node_id

    return wait_until(found, "no coordinator")


@contextmanager
def _waiting(broker: TestBroker, request: bytes) -> Iterator[list[Member]]:
    """Connections with requests that have to wait; closed at the end."""
    members = [Member(broker.port, "waiting") for _ in range(WAITING)]
    try:
        for member in members:
            member.send(request)
        yield members
    finally:
        for member in members:
            member.socket.close()


def _heartbeats_go_on(member: Member) -> None:
    member.socket.settimeout(PATIENCE_S)
    for _ in range(HEARTBEATS):
        member.send(member.heartbeat_frame())
        assert heartbeat_error(member.receive()) == ErrorCode.NONE
        # At intervals: they may hold something up at any moment.
        time.sleep(HEARTBEAT_INTERVAL_S)
