"""The verdict on a cluster, and whether a broker may restart, from made-up metadata."""

from dataclasses import replace

import pytest

from pyrklog.cli.cluster_state import cause, health_page
from pyrklog.observability.health_rules import (
    MISSING_FIX,
    SILENT_FIX,
    BrokerState,
    ClusterState,
    LogDir,
    PartitionState,
    examine,
    health_item,
    is_healthy,
    level_of,
)
from pyrklog.observability.restart_rules import at_risk, blockers, restart_of


def state(
    *partitions: tuple[int, list[int], list[int], int],
    brokers: tuple[int, ...] = (1, 2, 3),
    controller: int = 1,
    silent: tuple[int, ...] = (),
) -> ClusterState:
    """Partitions t-0, t-1, ... as (leader, replicas, in-sync replicas, min.insync.replicas)."""
    found = [PartitionState("t", index, *one) for index, one in enumerate(partitions)]
    alive = [BrokerState(number, "h", 9092, None, number not in silent) for number in brokers]
    return ClusterState("id", alive, controller, found)


WELL = (1, [1, 2, 3], [1, 2, 3], 2)


def kinds(one: ClusterState) -> list[tuple[str, int | None, list[str]]]:
    return [(reason.kind, reason.broker, list(reason.partitions)) for reason in examine(one)]


def test_a_cluster_that_is_well() -> None:
    one = state(WELL, (2, [2, 3], [3, 2], 2), (3, [3], [3], 2))
    assert examine(one) == []
    assert health_page(one, []) == "HEALTHY   3 brokers · 3 partitions · controller 1\n"
    assert health_item(one, []) == {
        "healthy": True,
        "level": "ok",
        "brokers": [1, 2, 3],
        "controller": 1,
        "partitions": 3,
        "reasons": [],
    }


def test_a_directory_that_takes_no_records_is_degraded() -> None:
    dirs = [LogDir(2, "/a", False), LogDir(3, "/b", True)]
    one = replace(state(WELL), log_dirs=dirs)
    assert kinds(one) == [("log_dir_full", 2, []), ("log_dir_failed", 3, [])]
    assert not is_healthy(examine(one))
    assert health_page(one, examine(one)) == (
        "DEGRADED  broker 2 takes no records in /a: its disk is full; "
        "fix: free space there, or lower retention.ms or retention.bytes of its largest topics\n"
        "          broker 3 has lost its log directory /b; "
        "fix: see the broker's log, replace the disk, and restart the broker\n"
    )
    worse = replace(state((1, [1, 2], [1], 1)), log_dirs=dirs)
    assert health_page(worse, examine(worse)).startswith("NOT SAFE  broker 2 is behind")


def test_brokers_without_zookeeper() -> None:
    everyone = replace(state(WELL, silent=(3,)), without_store=[1, 2])
    assert kinds(everyone)[1:] == [("zookeeper_lost", None, [])]
    page = health_page(everyone, examine(replace(everyone, brokers=everyone.brokers[:2])))
    assert page.startswith("NOT SAFE  no broker reaches ZooKeeper")
    some = replace(state(WELL), without_store=[2])
    assert kinds(some) == [("zookeeper_unreached", 2, [])]
    assert not is_healthy(examine(some))
    assert health_page(some, examine(some)).startswith(
        "DEGRADED  broker 2 does not reach ZooKeeper; fix: "
    )


def test_unreachable_advertised_addresses_are_named_as_the_cause() -> None:
    alone = ClusterState("id", [BrokerState(1, "10.0.0.9", 9092, None, False, "No route")], 1, [])
    (reason,) = examine(alone)
    assert reason.what == (
        "no broker answers where it tells clients to connect: broker 1 at 10.0.0.9:9092 (No route)"
    )
    assert "advertised.listeners" in str(reason.fix)
    found = cause(alone, ["t"])
    assert found is not None
    assert found.what == reason.what


def test_the_cause_of_a_silence_is_one_that_concerns_the_topic() -> None:
    full = replace(state(WELL), log_dirs=[LogDir(1, "/a", False), LogDir(2, "/b", False)])
    found = cause(full, ["t"])  # which broker 1 leads
    assert found is not None
    assert found.what == "broker 1 takes no records in /a: its disk is full"
    assert cause(full, ["another"]) is None
    assert cause(state(WELL, silent=(3,)), ["t"]) is None
    silent = cause(state(WELL, silent=(1,)), ["t"])
    assert silent is not None
    assert silent.what == "broker 1 does not answer at h:9092"


def test_lone_broker_without_topics_is_healthy() -> None:
    one = state(brokers=(7,), controller=7)
    assert health_page(one, examine(one)) == "HEALTHY   1 broker · 0 partitions · controller 7\n"


@pytest.mark.parametrize("controller", [-1, 9])
def test_without_a_controller(controller: int) -> None:
    one = state(WELL, controller=controller)
    assert kinds(one) == [("no_controller", None, [])]
    assert health_item(one, examine(one))["controller"] is None
    assert not is_healthy(examine(one))


def test_a_broker_that_is_missing_and_one_that_is_behind() -> None:
    one = state(
        (1, [1, 2, 3], [1, 2], 2),
        (2, [2, 3, 1], [2, 1], 2),
        (1, [1, 2], [1], 1),
        brokers=(1, 2),
    )
    assert kinds(one) == [("behind", 2, ["t-2"]), ("missing", 3, ["t-0", "t-1"])]
    assert health_page(one, examine(one)) == (
        "NOT SAFE  broker 2 is behind on 1 partition (t-2)\n"
        "          broker 3 is down, and missing from 2 partitions (t-0, t-1); fix: "
        f"{MISSING_FIX}\n"
    )
    since = replace(one, away={2: 9.0, 3: 185.0})
    assert [reason.what for reason in examine(since) if reason.kind == "missing"] == [
        "broker 3 is down (for 3 min), and missing from 2 partitions (t-0, t-1)"
    ]


def test_the_last_replica_that_was_in_sync_is_dead() -> None:
    one = state((-1, [3], [3], 1), brokers=(1, 2))
    assert kinds(one) == [("offline", None, ["t-0"]), ("missing", 3, ["t-0"])]


def test_too_few_in_sync_for_acks_all() -> None:
    one = state((1, [1, 2, 3], [1], 2), brokers=(1,))
    assert kinds(one)[0] == ("below_min_isr", None, ["t-0"])
    assert "acks=all is refused" in examine(one)[0].what
    # The minimum cannot exceed the number of replicas.
    assert kinds(state((1, [1, 2], [1, 2], 3))) == []


def test_a_broker_without_a_rack_among_others_with_one_is_named() -> None:
    one = state(WELL)
    assert kinds(one) == []
    some = [replace(one.brokers[0], rack="a"), replace(one.brokers[1], rack="b"), one.brokers[2]]
    partly = replace(one, brokers=some)
    assert kinds(partly) == [("no_rack", 3, [])]
    assert is_healthy(examine(partly))


def test_non_preferred_leaders_leave_the_cluster_healthy() -> None:
    one = state(*[(2, [1, 2, 3], [1, 2, 3], 2)] * 5)
    reasons = examine(one)
    assert kinds(one) == [("not_preferred", None, [f"t-{index}" for index in range(5)])]
    assert is_healthy(reasons)
    assert health_page(one, reasons).splitlines() == [
        "HEALTHY   3 brokers · 5 partitions · controller 1",
        "info      5 partitions not led by the preferred replica (t-0, t-1, t-2, ...)",
    ]


def test_information_comes_last() -> None:
    one = state((2, [1, 2, 3], [1, 2], 2), brokers=(1, 2))
    assert health_page(one, examine(one)).splitlines() == [
        f"NOT SAFE  broker 3 is down, and missing from 1 partition (t-0); fix: {MISSING_FIX}",
        "info      1 partition not led by the preferred replica (t-0)",
    ]


@pytest.mark.parametrize(
    ("partition", "reason"),
    [
        ((1, [1, 2, 3], [1, 2, 3], 2), None),
        ((2, [2, 1, 3], [2, 3], 2), None),  # it is not in sync, so nothing is lost with it
        ((1, [1, 2, 3], [1, 2], 2), "below_min_isr"),
        ((2, [1, 2, 3], [1, 2], 2), "below_min_isr"),
        ((1, [1, 2], [1, 2], 3), "below_min_isr"),  # two of two are needed
        ((1, [1, 2], [1, 2], 1), None),
        ((1, [1], [1], 1), "leaderless"),
        ((1, [1, 2], [1], 1), "leaderless"),
        ((1, [1, 4], [1, 4], 1), "leaderless"),  # 4 is dead, though still in the ISR
        ((2, [2], [2], 1), None),
        ((-1, [4], [4], 1), None),
    ],
)
def test_blockers_of_a_restart_are_listed(
    partition: tuple[int, list[int], list[int], int], reason: str | None
) -> None:
    found = blockers(state(partition), 1)
    assert [one.reason for one in found] == ([] if reason is None else [reason])


def test_a_blocker_as_json() -> None:
    (found,) = blockers(state((1, [1, 2, 3], [1, 2], 2)), 1)
    assert found.item() == {
        "topic": "t",
        "partition": 0,
        "reason": "below_min_isr",
        "leader": 1,
        "isr": [1, 2],
        "min_insync_replicas": 2,
    }


def test_a_broker_that_does_not_answer() -> None:
    one = state(WELL, (2, [2, 3], [2, 3], 1), silent=(3,))
    assert kinds(one) == [("silent", 3, [])]
    told = f"NOT SAFE  broker 3 does not answer at h:9092; fix: {SILENT_FIX}\n"
    assert health_page(one, examine(one)) == told
    # A silent broker does not help others, even if the metadata lists it.
    assert [found.reason for found in blockers(one, 2)] == ["below_min_isr", "leaderless"]


def test_a_broker_that_is_ending_is_no_help() -> None:
    one = replace(state(WELL, (2, [2, 3], [2, 3], 1)), leaving=[3])
    assert [found.reason for found in blockers(one, 2)] == ["below_min_isr", "leaderless"]
    lower = replace(state((1, [1, 2, 3], [1, 2, 3], 1)), leaving=[3])
    assert [found.name for found in at_risk(lower, 2)] == ["t-0"]
    told = [(reason.kind, reason.severity, reason.broker) for reason in restart_of(one, 2).reasons]
    assert told == [("in_the_way", "error", 2), ("ending", "warning", 3)]
    assert restart_of(replace(state(WELL), leaving=[3]), 3).reasons == [], "the one that is asked"


@pytest.mark.parametrize(
    ("partition", "names"),
    [
        ((1, [1, 2, 3], [1, 2, 3], 1), []),
        ((1, [1, 2, 3], [1, 2], 1), ["t-0"]),
        ((1, [1, 2, 3], [1, 2], 2), []),  # it blocks
        ((1, [1], [1], 1), []),  # it blocks
        ((2, [1, 2], [2], 1), []),  # nothing changes
        ((1, [1, 2], [1, 2], 1), ["t-0"]),
    ],
)
def test_partitions_that_a_restart_leaves_to_one_replica(
    partition: tuple[int, list[int], list[int], int], names: list[str]
) -> None:
    assert [one.name for one in at_risk(state(partition), 1)] == names


def test_levels_of_a_restart() -> None:
    ok = restart_of(state(WELL), 1)
    assert (ok.is_safe, level_of(ok.reasons), ok.reasons) == (True, "ok", [])
    warn = restart_of(state((1, [1, 2], [1, 2], 1), WELL), 1)
    assert (warn.is_safe, level_of(warn.reasons)) == (True, "warn")
    assert [one.kind for one in warn.reasons] == ["single_replica"]
    unsafe = restart_of(state((1, [1, 2], [1], 1), (2, [1, 2], [1, 2], 1)), 1)
    assert (unsafe.is_safe, level_of(unsafe.reasons)) == (False, "not_safe")
    assert [list(one.partitions) for one in unsafe.reasons] == [["t-0"], ["t-1"]]
    alone = restart_of(state((1, [1], [1], 1), brokers=(1,)), 1)
    assert [one.kind for one in alone.reasons] == ["alone"]


@pytest.mark.parametrize(
    ("controller", "silent", "broker", "kinds"),
    [
        (-1, (), 2, ["no_controller"]),
        (4, (), 2, ["no_controller"]),  # it is dead
        (1, (1,), 2, ["no_controller"]),
        (1, (1,), 1, []),  # its end lets another one take over
        (1, (3,), 2, []),
    ],
)
def test_a_restart_needs_a_controller_that_replaces_leaders(
    controller: int, silent: tuple[int, ...], broker: int, kinds: list[str]
) -> None:
    spread = (2, [1, 2, 3], [1, 2, 3], 1)
    found = restart_of(state(spread, controller=controller, silent=silent), broker)
    assert [one.kind for one in found.reasons if one.severity == "error"] == kinds
    assert found.is_safe is not bool(kinds)
    assert all(one.fix for one in found.reasons if one.severity == "error")


def test_a_broker_that_is_alone_needs_no_controller() -> None:
    assert restart_of(state(brokers=(1,), controller=-1), 1).is_safe


@pytest.mark.parametrize(
    ("replicas", "isr", "adding", "lacking"),
    [
        ([1, 2, 3, 4, 5], [1, 2, 3], [4, 5], []),
        ([1, 2, 3, 4, 5], [1, 2], [4, 5], [3]),
        ([1, 2, 3, 4, 5], [1, 2, 4], [4, 5], []),  # three are in sync: as many as before
        ([1, 2, 3, 4, 5], [1, 4], [4, 5], [2, 3]),
        ([1, 2, 3], [1, 2], [], [3]),
    ],
)
def test_added_replicas_do_not_make_a_partition_under_replicated(
    replicas: list[int], isr: list[int], adding: list[int], lacking: list[int]
) -> None:
    one = PartitionState("t", 0, 1, replicas, isr, 1, adding)
    assert (one.lacking, one.is_under_replicated) == (lacking, bool(lacking))
    found = examine(replace(state(brokers=(1, 2, 3, 4, 5)), partitions=[one]))
    assert [(reason.kind, reason.broker) for reason in found] == [
        ("behind", number) for number in lacking
    ]
