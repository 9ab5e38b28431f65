"""Two of three die, and the last one with its machine: no acknowledged record is lost."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.cluster.test_unclean import STRICT, lose_memory, says
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import consume, create, in_sync, produce
from tests.support.knowing import wait_until_each
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jvm


def state(cluster: BrokerCluster, topic: str) -> Mapping[str, Any]:
    return cluster.json(f"/brokers/topics/{topic}/partitions/0/state")


def eligible(cluster: BrokerCluster, topic: str) -> list[int]:
    found: list[int] = cluster.json(f"/pyrklog/elr/{topic}/0").get("eligible", [])
    return found


def marked(cluster: BrokerCluster, topic: str) -> list[int]:
    """Members that may lack what they had."""
    found: list[int] = cluster.json(f"/pyrklog/elr/{topic}/0").get("unclean", [])
    return found


def wait_in_sync(cluster: BrokerCluster, topic: str, *brokers: int) -> None:
    wait_until(
        lambda: set(state(cluster, topic)["isr"]) == set(brokers), f"not {brokers} are in sync"
    )


def leave_one_in_sync(cluster: BrokerCluster, topic: str) -> tuple[int, int, int, list[bytes]]:
    """The last leader, the last and the first to leave the ISR, and what was acknowledged."""
    create(cluster, topic, 1, 3, options=STRICT)
    wait_in_sync(cluster, topic, 1, 2, 3)
    values = [b"%d" % number for number in range(100)]
    last = int(state(cluster, topic)["leader"])
    first, second = (number for number in cluster.brokers if number != last)
    produce(cluster, topic, 1, values[:50])
    cluster.brokers[first].kill()
    wait_in_sync(cluster, topic, last, second)
    assert eligible(cluster, topic) == [], "two are enough"
    produce(cluster, topic, 1, values[50:])
    cluster.brokers[second].kill()
    wait_in_sync(cluster, topic, last)
    assert eligible(cluster, topic) == [second]
    return last, second, first, values


@pytest.mark.parametrize("comes_first", ["the eligible one", "the one without memory"])
def test_eligible_replica_leads_after_the_last_in_sync_is_lost(
    new_cluster: Callable[..., BrokerCluster], topic: str, comes_first: str
) -> None:
    # Data stays in memory: the disk has none of it.
    cluster = new_cluster(**{"pyrklog.cache.flush.ms": 600_000}).start()
    last, second, first, values = leave_one_in_sync(cluster, topic)
    cluster.brokers[last].kill()
    lose_memory(cluster, last)
    wait_until(lambda: not cluster.registered(), "its session does not end")
    if comes_first == "the one without memory":
        cluster.brokers[last].start()
        assert says(cluster, last, "unclean_start")
        wait_until(lambda: marked(cluster, topic) == [last], "it is not marked")
        assert state(cluster, topic)["leader"] == -1, "nobody leads who has everything"
        cluster.brokers[second].start()
    else:
        cluster.brokers[second].start()
        wait_until(lambda: state(cluster, topic)["leader"] == second, "it does not lead")
        assert state(cluster, topic)["isr"] == [second]
        assert not says(cluster, second, "unclean_start")
        cluster.brokers[last].start()
        assert says(cluster, last, "unclean_start")
    cluster.brokers[first].start()
    admin = AdminClient({"bootstrap.servers": cluster.brokers[second].bootstrap})
    wait_until(lambda: in_sync(admin, topic)[0] == {1, 2, 3}, "not all are in sync")
    assert eligible(cluster, topic) == []
    assert "leader_recovery_state" not in state(cluster, topic), "no unclean election was needed"
    assert sorted(consume(cluster, topic, 100, "g")) == sorted(values)


def test_lower_minimum_frees_the_leader_and_clears_eligible_replicas(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    cluster = new_cluster().start()
    last, second, _, _ = leave_one_in_sync(cluster, topic)
    bootstrap = cluster.brokers[last].bootstrap
    # librdkafka would ask the dead one until the request times out.
    wait_until_each(bootstrap, lambda told: told.controller_id == last, "it does not control")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    one = ConfigEntry("min.insync.replicas", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[one])
    admin.incremental_alter_configs([resource])[resource].result(30)
    produce(cluster, topic, 1, [b"later"])
    assert eligible(cluster, topic) == []
    assert state(cluster, topic)["isr"] == [last]
    cluster.brokers[last].kill()
    wait_until(lambda: not cluster.registered(), "its session does not end")
    cluster.brokers[second].start()
    wait_until(lambda: state(cluster, topic)["leader"] == -1, "the dead one still leads")
    cluster.brokers[last].start()
    wait_until(lambda: state(cluster, topic)["leader"] == last, "it does not lead again")
