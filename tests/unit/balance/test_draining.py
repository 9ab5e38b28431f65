"""A broker gives away all that it has, or is replaced; and what is refused."""

import dataclasses

from hypothesis import given, settings

from pyrklog.balance.draining import drain, handover, replace
from pyrklog.balance.model import Cluster, Partition
from tests.unit.balance.clusters import GB, broker, cluster_of, clusters

THREE_FOR_TWO = [(1, 3), (1, 3), (5, 3), (3,)]


def test_leaders_are_handed_over_to_who_leads_least() -> None:
    cluster = cluster_of([(1, 2, 3)] * 4 + [(2, 1, 3)], [1, 2, 3])
    found = handover(cluster, 1)
    assert all(replicas[-1] == 1 for replicas in found.values())
    # Broker 2 leads one already.
    assert sorted(replicas[0] for replicas in found.values()) == [2, 2, 3, 3]
    assert ("t", 4) not in found, "it neither leads it nor is preferred"


def test_only_an_in_sync_live_replica_takes_leadership() -> None:
    partitions = {
        ("t", 0): Partition((1, 2), GB, leader=1, isr=(1,)),
        ("t", 1): Partition((1, 4), GB, leader=1, isr=(1, 4)),
        ("t", 2): Partition((1,), GB, leader=1, isr=(1,)),
        ("t", 3): Partition((1, 3, 2), GB, leader=3, isr=(3, 2)),
    }
    cluster = Cluster({number: broker(number) for number in (1, 2, 3)}, partitions)
    # Broker 4 is dead, broker 2 behind. Who leads already goes on.
    assert handover(cluster, 1) == {("t", 3): (3, 2, 1)}


def test_a_broker_that_the_others_cannot_do_without() -> None:
    cluster = cluster_of([(1, 2, 3), (2, 3)], [1, 2, 3])
    plan = drain(cluster, 1)
    assert [(one.name, one.why) for one in plan.obstacles] == [
        ("t-0", "3 replicas need 3 brokers, and there are only 2")
    ]
    assert drain(cluster_of([(1, 2)], [1, 2, 3]), 1).changed == {("t", 0): (2, 3)}
    (obstacle,) = drain(cluster_of([(1,)], [1]), 1).obstacles
    assert obstacle.why == "no other broker is there"


def test_named_brokers_get_the_replicas_and_others_keep_theirs() -> None:
    cluster = cluster_of([(2, 1), (1, 2), (2, 5), (2,)], [1, 2, 3, 4, 5])
    plan = drain(cluster, 2, [3])
    assert plan.changed == {("t", index): one for index, one in enumerate(THREE_FOR_TWO)}
    plan = drain(cluster_of([(2, 3)], [1, 2, 3]), 2, [3])
    assert [one.why for one in plan.obstacles] == [
        "each broker that may get its replica has one already"
    ]
    racks = {1: "a", 2: "b", 3: "b", 4: "c"}
    plan = drain(cluster_of([(1, 2)], [1, 2, 3, 4], racks=racks), 2, [3])
    assert plan.changed == {("t", 0): (1, 3)}


def test_the_last_broker_of_a_rack_stays_unless_racks_do_not_matter() -> None:
    racks = {1: "a", 2: "b", 3: "b"}
    cluster = cluster_of([(1, 2), (2, 3)], [1, 2, 3], racks=racks)
    (obstacle,) = drain(cluster, 1).obstacles
    assert obstacle.why == "its replicas would be on 1 racks instead of 2"
    assert drain(cluster, 1, rack_aware=False).changed == {("t", 0): (2, 3)}


def test_a_full_disk_is_an_obstacle() -> None:
    cluster = cluster_of([(1,)], [1])
    full = Cluster({**cluster.brokers, 2: broker(2, free=100 * GB)}, cluster.partitions)
    (obstacle,) = drain(full, 1).obstacles
    full_disk = "broker 2 has no room: /d is 90 % full, the limit is 90 % (--max-fill)"
    assert obstacle.why == f"no broker has room for its 1 GB; {full_disk}"
    assert obstacle.is_room
    (obstacle,) = replace(full, 1, 2).obstacles
    assert obstacle.why == f"it has 1 GB; {full_disk}"
    assert obstacle.is_room
    fuller = dataclasses.replace(full, fill_max=0.95)
    assert drain(fuller, 1).changed == replace(fuller, 1, 2).changed == {("t", 0): (2,)}


def test_one_broker_takes_the_places_of_another() -> None:
    cluster = cluster_of([(2, 1), (1, 2), (1, 3), (2, 5)], [1, 2, 3, 5])
    plan = replace(cluster, 2, 5)
    assert plan.changed[("t", 0)] == (5, 1)
    assert plan.changed[("t", 1)] == (1, 5)
    assert ("t", 2) not in plan.changed
    assert plan.changed[("t", 3)][0] == 5, "it has a copy already; the other goes elsewhere"
    assert set(plan.changed[("t", 3)]) <= {1, 3, 5}
    assert plan.obstacles == []


def test_a_dead_broker_is_replaced_but_its_only_copies_are_not() -> None:
    partitions = {
        ("t", 0): Partition((2, 1), GB, leader=1, isr=(1,)),
        ("t", 1): Partition((2,), GB, leader=-1, isr=(2,)),
    }
    cluster = Cluster({number: broker(number) for number in (1, 5)}, partitions)
    plan = replace(cluster, 2, 5)
    assert plan.changed == {("t", 0): (5, 1)}
    assert [one.name for one in plan.obstacles] == ["t-1"]


def test_a_broker_that_is_away_besides_the_one_that_goes() -> None:
    cluster = cluster_of([(1, 9), (2, 9), (1, 2)], [1, 2, 3])
    (obstacle,) = drain(cluster, 1).obstacles
    assert obstacle.name == "t-0"
    assert obstacle.why.startswith("broker 9, which has a replica of it, is not there")
    (obstacle,) = replace(cluster, 1, 3).obstacles
    assert obstacle.name == "t-0"
    # The dead one itself goes, by a drain or to another in its place.
    assert drain(cluster, 9).changed.keys() == {("t", 0), ("t", 1)}
    assert replace(cluster, 9, 3).changed == {("t", 0): (1, 3), ("t", 1): (2, 3)}


def test_what_moves_already_is_left_alone() -> None:
    cluster = cluster_of([(1, 2), (1, 2), (1, 2, 3)], [1, 2, 3])
    moving = [("t", 0), ("t", 2)]
    assert drain(cluster, 1, moving=moving).changed == {("t", 1): (2, 3)}
    assert replace(cluster, 1, 3, moving=moving).changed == {("t", 1): (3, 2)}


@given(clusters())
@settings(max_examples=100, deadline=None)
def test_nothing_stays_on_a_drained_broker_but_obstacles(cluster: Cluster) -> None:
    gone = min(cluster.brokers)
    plan = drain(cluster, gone)
    stays = {one.key for one in plan.obstacles}
    for key, one in cluster.partitions.items():
        after = plan.changed.get(key, one.replicas)
        if gone not in one.replicas:
            assert key not in plan.changed, "others are left alone"
        elif key not in stays:
            assert gone not in after
            assert len(set(after)) == len(one.replicas)
            racks = cluster.racks
            if racks:
                assert len({racks[n] for n in after}) >= len({racks[n] for n in one.replicas})
            # Only the one replica is copied, unless racks were shared needlessly.
            if not racks:
                assert len(set(after) - set(one.replicas)) == 1
