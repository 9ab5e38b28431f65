"""Replication at a bounded rate (KIP-73), set as Kafka's tools set it."""

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create, in_sync, produce
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jvm

ALL = {1, 2, 3}
RATE = "follower.replication.throttled.rate"
REPLICAS = "follower.replication.throttled.replicas"


def _set(admin: AdminClient, kind: ResourceType, name: str, option: str, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(option, value, incremental_operation=operation)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_a_throttled_replica_comes_back_when_the_rate_allows(
    cluster: BrokerCluster, topic: str
) -> None:
    held, free = f"{topic}-held", f"{topic}-free"
    admin = create(cluster, held, 1, 3, options={"min.insync.replicas": "2"})
    create(cluster, free, 1, 3)
    wait_until(lambda: in_sync(admin, held) == in_sync(admin, free) == {0: ALL}, "not in sync")
    _set(admin, ResourceType.TOPIC, held, REPLICAS, "0:3")
    _set(admin, ResourceType.BROKER, "3", RATE, "0")
    # A rate does not slow down replicas in sync.
    produce(cluster, held, 1, [b"x" * 1000] * 100)
    assert in_sync(admin, held) == {0: ALL}
    cluster.brokers[3].kill()
    wait_until(lambda: cluster.is_gone(3), "still there")
    for name in (held, free):
        produce(cluster, name, 1, [b"x" * 1000] * 100)
    cluster.brokers[3].start()
    wait_until(lambda: in_sync(admin, free) == {0: ALL}, "the free one does not come back")
    # Both come from the same broker, by the same connection, or by an equally fast one.
    assert 3 not in in_sync(admin, held)[0]
    produce(cluster, held, 1, [b"x" * 1000] * 100)
    _set(admin, ResourceType.BROKER, "3", RATE, "100000000")
    wait_until(lambda: in_sync(admin, held) == {0: ALL}, "it is held back for ever")
