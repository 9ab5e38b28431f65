"""Plans: no constraint is broken, little is copied, brokers end alike."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrklog.balance.model import (
    TOLERANCE,
    Cluster,
    Goal,
    Partition,
    Plan,
    Wish,
    arriving,
    copied_bytes,
    loads,
    skews,
)
from pyrklog.balance.planner import make_plan
from pyrklog.balance.search import Scale
from tests.unit.balance.clusters import (
    GB,
    broker,
    cluster_of,
    clusters,
    crowds,
    large,
    naive,
    spread,
)

GOALS = st.lists(st.sampled_from(list(Goal)), unique=True)


def planned(cluster: Cluster, **wish: object) -> Plan:
    return make_plan(cluster, replace(Wish(sorted(cluster.brokers)), **wish))  # type: ignore[arg-type]


def test_a_new_broker_gets_its_share() -> None:
    cluster = cluster_of([(1, 2), (2, 1)] * 6, [1, 2, 3])
    plan = planned(cluster)
    after = {**cluster.placement, **plan.changed}
    assert copied_bytes(cluster, plan.changed) == 8 * GB
    assert skews(cluster, after, cluster.brokers)[Goal.BYTES] == 1.0
    assert skews(cluster, after, cluster.brokers)[Goal.LEADERS] == 1.0


def test_a_broker_is_emptied_and_nothing_else_is_moved() -> None:
    cluster = cluster_of([(1, 2), (2, 3), (3, 1), (4, 1)], [1, 2, 3, 4])
    plan = planned(cluster, allowed=[1, 2, 3], goals=())
    assert plan.changed.keys() == {("t", 3)}
    assert plan.changed["t", 3][0] == 1, "who has a copy leads"
    assert 4 not in plan.changed["t", 3]


def test_more_and_fewer_replicas() -> None:
    cluster = cluster_of([(1, 2), (2, 3)], [1, 2, 3])
    three = planned(cluster, replication_factor=3, goals=())
    assert three.changed == {("t", 0): (1, 2, 3), ("t", 1): (2, 3, 1)}
    one = planned(cluster, replication_factor=1, goals=())
    assert one.changed == {("t", 0): (1,), ("t", 1): (2,)}


def test_what_does_not_fit_stays_and_is_told() -> None:
    cluster = cluster_of([(1, 2), (2, 3), (1,)], [1, 2, 3])
    plan = planned(cluster, allowed=[1])
    assert [(one.name, one.why) for one in plan.obstacles] == [
        ("t-0", "2 replicas need 2 brokers, and there are only 1"),
        ("t-1", "2 replicas need 2 brokers, and there are only 1"),
    ]
    assert plan.changed == {}


def test_minimums_of_topics_are_kept() -> None:
    one = Partition((1, 2, 3), GB, min_insync=2)
    cluster = Cluster({number: broker(number) for number in (1, 2, 3)}, {("t", 0): one})
    (obstacle,) = planned(cluster, replication_factor=1).obstacles
    assert obstacle.why == "1 replicas are fewer than its min.insync.replicas of 2"
    assert planned(cluster, replication_factor=2).changed == {("t", 0): (1, 2)}
    # One that has fewer already may move as it is.
    alone = Cluster(cluster.brokers, {("t", 0): Partition((1,), GB, min_insync=2)})
    assert planned(alone, allowed=[2, 3], goals=()).changed == {("t", 0): (2,)}


def test_a_partition_without_a_leader_stays() -> None:
    cluster = Cluster({1: broker(1), 2: broker(2)}, {("t", 0): Partition((3,), GB, leader=-1)})
    (obstacle,) = planned(cluster, given_up=[3]).obstacles
    assert obstacle.why == "it has no leader, so nothing can be copied"
    assert planned(cluster) == Plan(), "broker 3 may be back in a moment"


def test_a_broker_that_is_away_keeps_its_replicas() -> None:
    # Broker 3 is down for a moment: nothing of its partitions moves, and it gets nothing.
    cluster = cluster_of([(1, 3), (3, 2), (1, 2)] * 3 + [(1, 2)] * 3, [1, 2, 4])
    assert cluster.absent_brokers == [3]
    plan = planned(cluster)
    assert plan.obstacles == []
    assert plan.changed
    for key, replicas in plan.changed.items():
        assert 3 not in (*cluster.partitions[key].replicas, *replicas)
    told = planned(cluster, allowed=[2, 4], goals=())
    assert {one.why for one in told.obstacles} == {
        "broker 3, which has a replica of it, is not there "
        "(`cluster reassign plan --exclude 3` gives it up)"
    }
    assert {one.key[1] for one in told.obstacles} == {0, 3, 6}
    given_up = planned(cluster, given_up=[3], goals=())
    assert given_up.obstacles == []
    assert given_up.changed.keys() == {("t", index) for index in (0, 1, 3, 4, 6, 7)}


def test_racks_that_are_shared_needlessly_are_parted() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    cluster = cluster_of([(1, 2), (3, 4), (1, 3)], [1, 2, 3, 4], racks=racks)
    plan = planned(cluster, goals=())
    assert plan.changed.keys() == {("t", 0), ("t", 1)}
    assert all(crowds(racks, replicas) == 0 for replicas in plan.changed.values())
    assert planned(cluster, goals=(), rack_aware=False).changed == {}


def test_brokers_without_a_rack_are_in_one_of_their_own() -> None:
    cluster = cluster_of([(1, 2)], [1, 2, 3], racks={1: "a", 2: "a"})
    (replicas,) = planned(cluster, goals=()).changed.values()
    assert 3 in replicas
    assert planned(cluster_of([(1, 2)], [1, 2, 3]), goals=()).changed == {}


def test_a_full_disk_gets_nothing() -> None:
    cluster = cluster_of([(1,)] * 10, [1, 2, 3])
    brokers = {1: broker(1), 2: broker(2, free=103 * GB), 3: broker(3, free=900 * GB)}
    after = planned(Cluster(brokers, cluster.partitions))
    moved = list(after.changed.values())
    assert moved.count((2,)) == 3, "the last tenth of a disk stays free"
    assert moved.count((3,)) == 3


def test_no_room_anywhere() -> None:
    brokers = {1: broker(1), 2: broker(2, free=10 * GB)}
    cluster = Cluster(brokers, {("t", 0): Partition((1,), GB)})
    (obstacle,) = planned(cluster, allowed=[2]).obstacles
    told = "broker 2 has no room: /d is 99 % full, the limit is 90 % (--max-fill)"
    assert obstacle.why == f"no broker has room for its 1 GB; {told}"


def test_what_holds_back_a_balance_is_told() -> None:
    cluster = cluster_of([(1,)] * 10, [1, 2])
    full = Cluster({1: broker(1), 2: broker(2, free=102_500_000_000)}, cluster.partitions)
    plan = planned(full)
    assert len(plan.changed) == 2, "it should get five"
    assert [one.text for one in plan.full] == [
        "broker 2 has room for 500 MB more: /d is 89.7 % full, the limit is 90 % (--max-fill)"
    ]
    assert plan.lacks_room
    fuller = planned(replace(full, fill_max=0.95))
    assert (len(fuller.changed), fuller.full, fuller.lacks_room) == (5, [], False)


def test_a_full_disk_that_nothing_would_go_to_is_not_told() -> None:
    even = cluster_of([(1,), (2,)] * 4, [1, 2])
    full = Cluster({1: broker(1), 2: broker(2, free=0)}, even.partitions)
    assert planned(full).full == []
    # One disk of three is full, and others take what is too much.
    some = cluster_of([(1,)] * 3 + [(2,)] * 2 + [(3,)] * 1, [1, 2, 3])
    brokers = {1: broker(1), 2: broker(2, free=0), 3: broker(3)}
    plan = planned(Cluster(brokers, some.partitions))
    assert plan.changed
    assert plan.full == []


def test_replicas_that_share_a_rack_for_lack_of_room_are_told() -> None:
    cluster = cluster_of([(1, 2)], [1, 2, 3], racks={1: "a", 2: "a", 3: "b"})
    brokers = {**cluster.brokers, 3: broker(3, "b", free=0)}
    plan = planned(Cluster(brokers, cluster.partitions), goals=())
    assert plan.changed == {}
    assert [one.broker for one in plan.full] == [3]
    assert planned(cluster, goals=()).full == []


def test_only_named_brokers_get_replicas_for_balance() -> None:
    cluster = cluster_of([(1,)] * 9 + [(2,)] * 3, [1, 2, 3, 4])
    plan = planned(cluster, targets=[4])
    assert plan.changed
    assert set(plan.changed.values()) == {(4,)}


def test_leaders_are_handed_along_a_chain() -> None:
    # Broker 1 leads four and shares partitions with 2 only, 2 with 3: the way to 3 is over 2.
    cluster = cluster_of([(1, 2)] * 4 + [(2, 3)] * 2, [1, 2, 3])
    plan = planned(cluster, goals=(Goal.LEADERS,))
    after = {**cluster.placement, **plan.changed}
    assert loads(cluster, after, Goal.LEADERS, [1, 2, 3]) == {1: 2, 2: 2, 3: 2}
    assert copied_bytes(cluster, plan.changed) == 0


def test_what_leaders_send_is_spread() -> None:
    rates = [40.0, 30.0, 20.0, 10.0]
    partitions = {
        ("t", index): Partition((1, 2) if index < 2 else (2, 1), GB, rate)
        for index, rate in enumerate(rates)
    }
    cluster = Cluster({1: broker(1), 2: broker(2)}, partitions)
    plan = planned(cluster, goals=(Goal.OUT, Goal.LEADERS))
    after = {**cluster.placement, **plan.changed}
    assert loads(cluster, after, Goal.OUT, [1, 2]) == {1: 50.0, 2: 50.0}
    assert loads(cluster, after, Goal.LEADERS, [1, 2]) == {1: 2, 2: 2}


def test_rates_are_evened_by_an_exchange_of_equal_sizes() -> None:
    partitions = {
        ("t", index): Partition((1 if index < 4 else 2,), GB, 100.0 if index < 4 else 0.0)
        for index in range(8)
    }
    cluster = Cluster({1: broker(1), 2: broker(2)}, partitions)
    plan = planned(cluster, goals=(Goal.BYTES, Goal.IN))
    after = {**cluster.placement, **plan.changed}
    assert loads(cluster, after, Goal.IN, [1, 2]) == {1: 200.0, 2: 200.0}
    assert loads(cluster, after, Goal.BYTES, [1, 2]) == {1: 4 * GB, 2: 4 * GB}
    assert copied_bytes(cluster, plan.changed) == 4 * GB


@given(clusters(), GOALS, st.data())
@settings(max_examples=150, deadline=None)
def test_no_constraint_is_ever_broken(
    cluster: Cluster, goals: list[Goal], data: st.DataObject
) -> None:
    allowed = data.draw(st.lists(st.sampled_from(sorted(cluster.brokers)), unique=True, min_size=1))
    factor = data.draw(st.one_of(st.none(), st.integers(1, 3)))
    wish = Wish(allowed, tuple(goals), None, factor)
    plan = make_plan(cluster, wish)
    racks = cluster.racks
    stays = {one.key for one in plan.obstacles}
    arrives = dict.fromkeys(cluster.brokers, 0)
    for key, one in cluster.partitions.items():
        replicas = plan.changed.get(key, one.replicas)
        if key in stays:
            assert key not in plan.changed, "an obstacle stays as it is"
            continue
        assert len(set(replicas)) == len(replicas) == (factor or len(one.replicas))
        assert set(replicas) <= set(allowed)
        assert len(replicas) >= one.min_insync or len(replicas) == len(one.replicas)
        for number in arriving(one.replicas, replicas):
            arrives[number] += one.size_bytes
        if racks:
            here = {number: racks[number] for number in allowed}
            least = min(
                len({*here.values()}),
                len(replicas),
            )
            if all(cluster.brokers[number].rooms().largest is None for number in allowed):
                assert len({racks[number] for number in replicas}) == least
            if len(replicas) == len(one.replicas) and set(one.replicas) <= set(allowed):
                assert crowds(racks, replicas) <= crowds(racks, one.replicas)
    for number, count in arrives.items():
        room = cluster.brokers[number].rooms().largest
        assert room is None or count <= room


@given(clusters(), GOALS)
@settings(max_examples=100, deadline=None)
def test_the_same_cluster_gives_the_same_plan(cluster: Cluster, goals: list[Goal]) -> None:
    backwards = Cluster(
        dict(list(cluster.brokers.items())[::-1]), dict(list(cluster.partitions.items())[::-1])
    )
    first = planned(cluster, goals=tuple(goals))
    assert list(first.changed.items()) == list(planned(cluster, goals=tuple(goals)).changed.items())
    again = planned(backwards, goals=tuple(goals), allowed=list(backwards.brokers))
    assert again.changed == first.changed


def test_no_broker_gets_further_outside_for_what_another_gains() -> None:
    scale = Scale(False, True, None, 1.0, 0.95, 1.05, 2.0, 1.5)
    assert scale.outside(0.6) == pytest.approx(scale.outside(0.0))
    assert scale.is_worse(0.6), "2.0 and 1.5 become 1.4 and 2.1"
    assert not scale.is_worse(0.4)
    low = Scale(False, True, None, 1.0, 0.95, 1.05, 0.6, 0.5)
    assert low.outside(0.2) == pytest.approx(low.outside(0.0))
    assert low.is_worse(0.2)
    assert not low.is_worse(0.05)


@given(clusters())
@settings(max_examples=100, deadline=None)
def test_brokers_are_no_less_alike_than_before(cluster: Cluster) -> None:
    """Bytes come first, so nothing may be worse for them than what must move."""
    must = planned(cluster, goals=())
    plan = planned(cluster)

    def worst(changed: Plan) -> float:
        placement = {**cluster.placement, **changed.changed}
        return spread(cluster, placement, Goal.BYTES)[1]

    assert worst(plan) <= max(worst(must), 1 + TOLERANCE) + 1e-6


@given(clusters(least=20, plain=True))
@settings(max_examples=100, deadline=None)
def test_no_more_is_copied_than_by_a_naive_plan(cluster: Cluster) -> None:
    wish = Wish(sorted(cluster.brokers), (Goal.BYTES,))
    plan = make_plan(cluster, wish)
    assert copied_bytes(cluster, plan.changed) <= copied_bytes(cluster, naive(cluster, wish))


@given(clusters())
@settings(max_examples=60, deadline=None)
def test_a_balanced_cluster_stays_as_it_is(cluster: Cluster) -> None:
    plan = planned(cluster)
    after = {
        key: replace(one, replicas=plan.changed.get(key, one.replicas), leader=None, isr=None)
        for key, one in cluster.partitions.items()
    }
    # Disks have less room by then, so what is not even is left so.
    again = planned(Cluster(cluster.brokers, after), goals=(Goal.BYTES,))
    low, high = spread(cluster, {key: one.replicas for key, one in after.items()}, Goal.BYTES)
    if low >= 1 - TOLERANCE and high <= 1 + TOLERANCE:
        assert again.changed == {}


@pytest.mark.timeout(240)
def test_twenty_brokers_more_for_two_hundred() -> None:
    cluster = large()
    plan = planned(cluster)
    after = {**cluster.placement, **plan.changed}
    for goal in (Goal.BYTES, Goal.IN, Goal.LEADERS):
        low, high = spread(cluster, after, goal)
        assert low >= 1 - TOLERANCE - 1e-9
        assert high <= 1 + TOLERANCE + 1e-9
    assert plan.obstacles == []
    # No plan makes the new brokers even with less than their share, and the old ones' excess.
    total = sum(one.size_bytes * 3 for one in cluster.partitions.values())
    mean = total / len(cluster.brokers)
    before = loads(cluster, cluster.placement, Goal.BYTES, cluster.brokers)
    lacking = sum(max(0.0, (1 - TOLERANCE) * mean - load) for load in before.values())
    excess = sum(max(0.0, load - (1 + TOLERANCE) * mean) for load in before.values())
    assert copied_bytes(cluster, plan.changed) <= 1.05 * max(lacking, excess)
    racks = cluster.racks
    for key, replicas in plan.changed.items():
        assert crowds(racks, replicas) <= crowds(racks, cluster.partitions[key].replicas)
