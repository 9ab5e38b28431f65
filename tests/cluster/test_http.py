"""Health and metrics of three brokers, one of which dies and comes back."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from pyrklog.testing import TestBroker
from tests.support.broker_http import ANY_PORT, ask, scrape
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create, produce
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jvm

PARTITIONS = 6


def health(broker: TestBroker, name: str) -> tuple[int, dict[str, Any]]:
    status, text = ask(broker, f"/health/{name}")
    return status, json.loads(text)


def kinds(broker: TestBroker, name: str) -> set[str]:
    return {one["kind"] for one in health(broker, name)[1]["reasons"]}


def total(cluster: BrokerCluster, metric: str) -> float:
    return sum(scrape(one)[metric,] for one in cluster.brokers.values() if one.running)


def test_a_dead_broker_is_missed_and_the_others_may_not_restart(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    options = {**ANY_PORT, "default.replication.factor": 3, "min.insync.replicas": 2}
    cluster = new_cluster(**options).start()
    create(cluster, topic, PARTITIONS, 3)
    produce(cluster, topic, PARTITIONS, [b"a"])
    everybody = list(cluster.brokers.values())
    for one in everybody:
        wait_until(lambda one=one: health(one, "cluster")[0] == 200, "not healthy")  # type: ignore[misc]
        assert health(one, "ready")[0] == 200
        assert health(one, "restart-safe")[0] == 200
    leaders = "kafka_server_replicamanager_leadercount"
    wait_until(lambda: total(cluster, leaders) >= PARTITIONS, "not all partitions are led")
    assert total(cluster, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    under = "kafka_server_replicamanager_underreplicatedpartitions"
    assert total(cluster, under) == 0

    victim = next(number for number in cluster.brokers if number != cluster.controller())
    cluster.brokers[victim].kill()
    left = [one for number, one in cluster.brokers.items() if number != victim]
    for one in left:
        wait_until(lambda one=one: "missing" in kinds(one, "cluster"), "it is not missed")  # type: ignore[misc]
        wait_until(lambda one=one: "in_the_way" in kinds(one, "restart-safe"), "it may restart")  # type: ignore[misc]
        assert health(one, "cluster")[0] == health(one, "restart-safe")[0] == 503
        assert health(one, "ready")[0] == 200
    wait_until(lambda: total(cluster, under) >= PARTITIONS, "not all are under-replicated")
    assert total(cluster, "kafka_server_replicamanager_underminisrpartitioncount") == 0

    cluster.brokers[victim].start()
    for one in everybody:
        wait_until(lambda one=one: health(one, "restart-safe")[0] == 200, "it may not restart")  # type: ignore[misc]
    wait_until(lambda: total(cluster, under) == 0, "some stay under-replicated")
