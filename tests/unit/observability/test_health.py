"""Verdicts and their sentences."""

from typing import Any

import pytest

from pyrklog.observability.health import (
    ALONE,
    Answer,
    BrokerHealth,
    cluster,
    cluster_state,
    ready,
    restart_safe,
)
from pyrklog.observability.health_rules import ClusterState
from pyrklog.observability.sources import Stage
from pyrklog.plane.values import BrokerImage, PartitionImage

WELL = BrokerHealth(1, "serving", is_store_reachable=True)
LOST = BrokerHealth(1, "serving", is_store_reachable=False)


def state(
    broker: BrokerHealth,
    isr: tuple[int, ...] = (1, 2, 3),
    brokers: int = 3,
    min_insync: int = 2,
    controller: int = 1,
) -> ClusterState:
    images = [
        BrokerImage(number, None, [("PLAINTEXT", f"host{number}", 9092)])
        for number in range(1, brokers + 1)
    ]
    replicas = tuple(range(1, brokers + 1))
    topics = [("t", [PartitionImage(0, isr[0] if isr else -1, 0, replicas, isr, ())])]
    return cluster_state("c", controller, images, topics, broker, {"t": min_insync})


def kinds(answer: Answer) -> list[str]:
    return [one["kind"] for one in answer.body["reasons"]]


def what(answer: Answer) -> list[Any]:
    return [one["what"] for one in answer.body["reasons"]]


def test_a_broker_that_serves_is_ready() -> None:
    assert ready(WELL) == (200, {"ready": True, "broker": 1, "reasons": []})


@pytest.mark.parametrize("stage", ["starting", "ending"])
def test_a_broker_that_starts_or_ends_is_not(stage: Stage) -> None:
    broker = BrokerHealth(1, stage, is_store_reachable=True)
    for answer in (
        ready(broker),
        cluster(broker, state(broker)),
        restart_safe(broker, state(WELL)),
    ):
        assert answer.status == 503
        assert kinds(answer)[0] == stage
        assert what(answer)[0] == f"broker 1 is {stage}"


def test_without_zookeeper_or_room_a_broker_is_ready_and_says_so() -> None:
    broker = BrokerHealth(1, "serving", False, full_log_dirs=["/a"], failed_log_dirs=["/b"])
    answer = ready(broker)
    assert answer.status == 200
    assert kinds(answer) == ["zookeeper_unreached", "log_dir_failed", "log_dir_full"]
    assert what(answer)[1:] == [
        "broker 1 has lost its log directory /b",
        "broker 1 takes no records in /a: its disk is full",
    ]
    assert all(one["fix"] for one in answer.body["reasons"])


def test_a_whole_cluster_is_healthy_and_each_broker_may_restart() -> None:
    healthy = cluster(WELL, state(WELL))
    assert healthy.status == 200
    assert healthy.body["healthy"] is True
    assert (healthy.body["brokers"], healthy.body["partitions"]) == ([1, 2, 3], 1)
    safe = restart_safe(WELL, state(WELL))
    assert safe == (
        200,
        {"safe": True, "broker": 1, "partition_count": 0, "partitions": [], "reasons": []},
    )


def test_a_replica_that_is_behind_is_named() -> None:
    answer = cluster(WELL, state(WELL, isr=(1, 2)))
    assert answer.status == 503
    assert what(answer) == ["broker 3 is behind on 1 partition (t-0)"]


def test_a_partition_in_the_way_of_a_restart() -> None:
    answer = restart_safe(WELL, state(WELL, isr=(1, 2)))
    assert answer.status == 503
    assert answer.body["partitions"] == [
        {
            "topic": "t",
            "partition": 0,
            "reason": "below_min_isr",
            "leader": 1,
            "isr": [1, 2],
            "min_insync_replicas": 2,
        }
    ]
    assert what(answer) == [
        "1 partition would have no leader, or refuse acks=all, without broker 1"
    ]
    (reason,) = answer.body["reasons"]
    assert reason["partitions"] == ["t-0"]


def test_the_only_broker_is_not_safe_to_restart() -> None:
    answer = restart_safe(WELL, state(WELL, isr=(1,), brokers=1, min_insync=1))
    assert answer.status == 503
    assert what(answer) == [ALONE]


def test_a_view_that_may_be_old_is_not_safe() -> None:
    answer = restart_safe(LOST, state(LOST))
    assert answer.status == 503
    assert kinds(answer) == ["zookeeper_unreached"]


def test_without_a_controller() -> None:
    assert kinds(cluster(WELL, state(WELL, controller=-1))) == ["no_controller"]
