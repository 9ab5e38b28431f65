from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create, in_sync, produce
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jvm


def folders(cluster: BrokerCluster, number: int, topic: str) -> list[Path]:
    return list(cluster.brokers[number].data.glob(f"*/{topic}-*"))


def _is_empty(found: Callable[[], list[Path]]) -> bool:
    return not found()


def test_a_dead_broker_does_not_hold_up_the_deletion_of_a_topic(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    cluster = new_cluster(**{"log.segment.delete.delay.ms": 500})
    cluster.start()
    admin = create(cluster, topic, 3, 3)
    produce(cluster, topic, 3, [b"v"])
    wait_until(
        lambda: all(len(isr) == 3 for isr in in_sync(admin, topic).values()), "not all in sync"
    )
    cluster.brokers[3].signal(9)
    cluster.brokers[3].wait()
    wait_until(partial(cluster.is_gone, 3), "its session lives")
    admin.delete_topics([topic], operation_timeout=60)[topic].result(90)
    for number in (1, 2):
        is_kept = partial(folders, cluster, number, topic)
        wait_until(partial(_is_empty, is_kept), f"broker {number} keeps what was deleted")
    assert len(folders(cluster, 3, topic)) == 3
    assert cluster.store.exists(f"/brokers/topics/{topic}"), "it waits for the third one"
    cluster.brokers[3].start()
    wait_until(lambda: not cluster.store.exists(f"/brokers/topics/{topic}"), "it never ends")
    wait_until(lambda: not folders(cluster, 3, topic), "the third one keeps its replicas")
    create(cluster, topic, 3, 3)
    produce(cluster, topic, 3, [b"w"])
