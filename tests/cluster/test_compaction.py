"""Each replica of a compacted topic is compacted by its own broker."""

import shutil
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import in_sync, leaders
from tests.support.compacting import (
    EAGER_BROKER,
    KEYS,
    Pairs,
    create_compacted,
    fill,
    last_values,
    model,
    put,
    read_all,
    record_count,
    rounds,
)
from tests.support.verifying import verify
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]


def records(cluster: BrokerCluster, topic: str) -> dict[int, int]:
    """In the files of each broker."""
    return {
        number: record_count(broker.data / "logs" / f"{topic}-0")
        for number, broker in cluster.brokers.items()
    }


def wait_until_all_are_compacted(cluster: BrokerCluster, topic: str, count: int) -> None:
    def are_compacted() -> bool:
        return all(number < count for number in records(cluster, topic).values())

    wait_until(are_compacted, lambda: f"{records(cluster, topic)} records")


def test_leader_and_followers_are_compacted_and_any_may_lead(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    cluster = new_cluster(**EAGER_BROKER).start()
    create_compacted(cluster.bootstrap, topic, replicas=3, min_insync_replicas="2")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    pairs: Pairs = [*rounds(20), (b"k3", None)]
    put(cluster.bootstrap, topic, pairs)
    fill(cluster.bootstrap, topic)
    wait_until_all_are_compacted(cluster, topic, 400)

    def are_equal_behind_all() -> bool:
        [compared] = verify(cluster.bootstrap, topic)
        assert compared["status"] == "equal"
        assert compared["start_offset"] == 0
        return bool(compared["compacted_end"] > 20 * KEYS)

    wait_until(are_equal_behind_all, "a part stays uncompacted")

    leader = leaders(admin, topic)[0]
    cluster.brokers[leader].kill()
    wait_until(lambda: leaders(admin, topic)[0] not in (leader, -1), "no other leads")
    more: Pairs = [*rounds(20, "more"), (b"k4", None)]
    put(cluster.bootstrap, topic, more)
    fill(cluster.bootstrap, topic)
    assert last_values(read_all(cluster.bootstrap, topic)) == model([*pairs, *more])
    cluster.brokers[leader].start()
    wait_until(lambda: len(in_sync(admin, topic)[0]) == 3, "it does not come back")
    wait_until_all_are_compacted(cluster, topic, 500)
    [compared] = verify(cluster.bootstrap, topic)
    assert compared["status"] == "equal"

    # A replica that begins with nothing copies a log with gaps.
    lost = next(number for number in cluster.brokers if number != leaders(admin, topic)[0])
    assert cluster.brokers[lost].stop() == 0
    shutil.rmtree(cluster.brokers[lost].data / "logs" / f"{topic}-0")
    cluster.brokers[lost].start()
    wait_until(lambda: len(in_sync(admin, topic)[0]) == 3, "it does not come back")
    [compared] = verify(cluster.bootstrap, topic)
    assert compared["status"] == "equal"
    for number in cluster.brokers:
        if number != lost:
            assert cluster.brokers[number].stop() == 0
    only = cluster.brokers[lost].bootstrap
    assert last_values(read_all(only, topic)) == model([*pairs, *more])
