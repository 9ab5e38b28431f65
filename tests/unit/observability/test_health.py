"""Verdicts and their sentences."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyrklog.observability.health import (
    OWN_KINDS,
    Answer,
    BrokerHealth,
    broker_number,
    cluster,
    cluster_state,
    counted,
    of_broker,
    ready,
    restart_safe,
)
from pyrklog.observability.health_rules import ClusterState, Reason
from pyrklog.observability.restart_rules import ALONE
from pyrklog.observability.sources import Stage
from pyrklog.plane.values import BrokerImage, PartitionImage

PAGE = Path(__file__).parents[3] / "docs" / "understanding" / "health.md"
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
        restart_safe(broker, state(WELL), 1),
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
    safe = restart_safe(WELL, state(WELL), 1)
    assert safe == (
        200,
        {
            "safe": True,
            "level": "ok",
            "broker": 1,
            "partition_count": 0,
            "partitions": [],
            "reasons": [],
        },
    )


def test_a_replica_that_is_behind_is_named() -> None:
    answer = cluster(WELL, state(WELL, isr=(1, 2)))
    assert answer.status == 503
    assert what(answer) == ["broker 3 is behind on 1 partition (t-0)"]


def test_a_partition_in_the_way_of_a_restart() -> None:
    answer = restart_safe(WELL, state(WELL, isr=(1, 2)), 1)
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
    answer = restart_safe(WELL, state(WELL, isr=(1,), brokers=1, min_insync=1), 1)
    assert answer.status == 503
    assert what(answer) == [ALONE]


def test_a_view_that_may_be_old_is_not_safe() -> None:
    answer = restart_safe(LOST, state(LOST), 1)
    assert answer.status == 503
    assert kinds(answer) == ["zookeeper_unreached"]


def test_a_view_of_before_the_session_ended_is_not_safe() -> None:
    """The sequence: broker 3 died while ZooKeeper was away, and the image still has it."""
    untold = replace(WELL, is_told=False)
    for number in (1, 2):
        answer = restart_safe(untold, state(untold), number)
        assert (answer.status, kinds(answer)) == (503, ["metadata_old"])
        assert what(answer)[0].endswith("since it registered: what it knows may be old")
        assert answer.body["reasons"][0]["fix"]
    together = cluster(untold, state(untold))
    assert (together.status, together.body["level"]) == (503, "warn")
    assert kinds(together) == ["metadata_old"]
    assert ready(untold).status == 200, "another broker would be no better"
    lost = replace(LOST, is_told=False)
    assert kinds(restart_safe(lost, state(lost), 1)) == ["zookeeper_unreached"]


def test_without_a_controller() -> None:
    assert kinds(cluster(WELL, state(WELL, controller=-1))) == ["no_controller"]


def test_another_brokers_restart_is_judged_by_this_ones_view() -> None:
    assert restart_safe(WELL, state(WELL, isr=(1, 2)), 3).status == 200
    unsafe = restart_safe(WELL, state(WELL, isr=(1, 2)), 2)
    assert (unsafe.status, unsafe.body["broker"]) == (503, 2)
    assert unsafe.body["level"] == "not_safe"
    unknown = restart_safe(WELL, state(WELL), 9)
    assert unknown == (404, {"error": "no broker 9 is alive; there are 1, 2, 3"})


def test_a_broker_that_ends_blocks_its_own_restart_and_is_no_help_for_others() -> None:
    ending = BrokerHealth(1, "ending", is_store_reachable=True)
    assert kinds(restart_safe(ending, state(ending), 1)) == ["ending"]
    other = restart_safe(ending, state(ending), 2)
    assert (other.status, kinds(other)) == (503, ["in_the_way", "ending"])
    assert what(other)[1] == "broker 1 is ending, and does not count"
    assert [one["reason"] for one in other.body["partitions"]] == ["below_min_isr"]
    fewer = restart_safe(ending, state(ending, min_insync=1), 2)
    assert (fewer.status, kinds(fewer)) == (200, ["ending", "single_replica"])
    alone = restart_safe(ending, state(ending, isr=(1, 2), min_insync=1), 2)
    assert [one["reason"] for one in alone.body["partitions"]] == ["leaderless"]


def test_a_restart_that_leaves_one_replica_is_safe_with_a_warning() -> None:
    answer = restart_safe(WELL, state(WELL, isr=(1, 2), min_insync=1), 1)
    assert (answer.status, answer.body["level"]) == (200, "warn")
    assert what(answer) == ["1 partition would have one in-sync replica meanwhile (t-0)"]


def test_no_restart_is_safe_without_a_controller() -> None:
    answer = restart_safe(WELL, state(WELL, controller=-1), 2)
    assert (answer.status, kinds(answer)) == (503, ["no_controller"])


@pytest.mark.parametrize("text", ["", "-1", "one", "1.0", "\u0661", "1" * 11, " 1"])
def test_what_is_no_number_of_a_broker_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="takes a broker's number"):
        broker_number(text)


def test_signs_of_a_broker_are_told_and_only_grave_ones_count() -> None:
    signs = [
        Reason("cache_small", "info", "small", 1),
        Reason("disk_filling", "warning", "filling", 1),
        Reason("reads_stuck", "degraded", "stuck", 1),
    ]
    broker = replace(WELL, signs=signs)
    alone = ready(broker)
    assert (alone.status, kinds(alone)) == (200, ["reads_stuck", "disk_filling", "cache_small"])
    together = cluster(broker, state(broker))
    assert (together.status, together.body["level"]) == (503, "warn")
    assert kinds(together) == ["reads_stuck", "disk_filling"]
    filling = replace(WELL, signs=signs[:2])
    assert cluster(filling, state(filling)).status == 200


def test_the_absence_of_zookeeper_says_for_how_long() -> None:
    lost = replace(LOST, store_away_seconds=75.0)
    says = "broker 1 does not reach ZooKeeper, for 75 s now"
    assert what(ready(lost)) == [says]
    others = [BrokerImage(2, None, []), BrokerImage(1, None, [])]
    together = cluster(lost, cluster_state("c", 2, others, [], lost, {}))
    assert what(together) == [says]
    assert what(restart_safe(lost, state(lost), 2)) == [f"{says}: what it knows may be old"]


def test_replicas_that_a_reassignment_adds_are_not_missed() -> None:
    moving = PartitionImage(0, 1, 0, (1, 2, 3), (1, 2), ())
    images = [BrokerImage(one, None, []) for one in (1, 2, 3)]

    def seen(*added: int) -> Answer:
        known = cluster_state("c", 1, images, [("t", [moving])], WELL, {}, lambda _: added)
        return cluster(WELL, known)

    assert kinds(seen()) == ["behind"]
    assert seen(3).status == 200


def test_partial_replicas_do_not_raise_the_least_isr() -> None:
    """As the leader reckons: it takes acks=all with all whole replicas in sync."""
    moving = PartitionImage(0, 1, 0, (1, 2, 3), (1,), ())
    images = [BrokerImage(one, None, []) for one in (1, 2, 3)]

    def seen(*partial: int) -> list[str]:
        known = cluster_state(
            *("c", 1, images, [("t", [moving])], WELL, {"t": 2}),
            lambda _: (2, 3),
            lambda _: partial,
        )
        return kinds(cluster(WELL, known))

    assert seen(2, 3) == []
    assert seen(3) == ["below_min_isr"]


def test_findings_are_counted_by_all_kinds_of_the_page() -> None:
    table = PAGE.read_text().partition("## Of a broker\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    told = {kind for row in rows for kind in re.findall(r"`(\w+)`", row)}
    # No broker says of all that none reaches ZooKeeper.
    assert set(OWN_KINDS) == told - {"zookeeper_lost"}
    broker = replace(LOST, full_log_dirs=("/a", "/b"))
    found = counted(of_broker(broker))
    assert set(found) == set(OWN_KINDS)
    assert {kind: count for kind, count in found.items() if count} == {
        "zookeeper_unreached": 1,
        "log_dir_full": 2,
    }
