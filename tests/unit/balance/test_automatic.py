"""Balance without being asked: when it acts, and why each partition moves."""

from pyrklog.balance.automatic import Hours, Watcher
from pyrklog.balance.explaining import explain
from pyrklog.balance.model import Cluster, Goal, Partition, Wish
from pyrklog.balance.planner import make_plan
from tests.unit.balance.clusters import GB, broker, cluster_of

EVEN, SKEWED = {Goal.BYTES: 1.0}, {Goal.BYTES: 1.5}


def test_only_a_skew_that_persists_is_acted_on() -> None:
    watcher = Watcher(1.2, 60.0)
    assert watcher.look(0.0, 0, EVEN, is_moving=False) == (False, (), "balanced")
    found = watcher.look(10.0, 0, SKEWED, is_moving=False)
    assert (found.acts, found.why) == (False, "waits: bytes 1.50 for 0 s")
    watcher.look(60.0, 0, EVEN, is_moving=False)
    assert not watcher.look(80.0, 0, SKEWED, is_moving=False).acts, "it was even in between"
    found = watcher.look(140.0, 0, SKEWED, is_moving=False)
    assert found == (True, (Goal.BYTES,), "bytes 1.50 for 60 s")
    watcher.acted()
    assert not watcher.look(141.0, 0, SKEWED, is_moving=False).acts


def test_not_at_other_hours_and_not_while_replicas_move() -> None:
    watcher = Watcher(1.2, 0.0, Hours(22 * 60, 6 * 60))
    assert not watcher.look(0.0, 12 * 60, SKEWED, is_moving=False).acts
    assert not watcher.look(0.0, 23 * 60, SKEWED, is_moving=True).acts
    assert watcher.look(0.0, 23 * 60, SKEWED, is_moving=False).acts
    assert watcher.look(0.0, 5 * 60 + 59, SKEWED, is_moving=False).acts
    day = Hours(60, 120)
    assert [day.allow(minute) for minute in (59, 60, 119, 120)] == [False, True, True, False]


def test_not_while_a_broker_with_replicas_is_away() -> None:
    watcher = Watcher(1.2, 60.0)
    watcher.look(0.0, 0, SKEWED, is_moving=False)
    found = watcher.look(100.0, 0, SKEWED, is_moving=False, absent=[3])
    assert not found.acts
    assert found.why.startswith("waits: replicas lie on broker 3, not there now")
    assert "brokers 3, 4," in watcher.look(101.0, 0, EVEN, is_moving=False, absent=[4, 3]).why
    assert not watcher.look(102.0, 0, SKEWED, is_moving=False).acts, "it has to persist anew"
    assert watcher.look(162.0, 0, SKEWED, is_moving=False).acts


def test_each_move_has_its_reason() -> None:
    cluster = cluster_of([(1, 2), (1, 2), (1, 2)], [1, 2, 3])
    plan = make_plan(cluster, Wish([1, 2, 3], (Goal.BYTES,)))
    reasons = explain(cluster, plan.changed, [1, 2, 3])
    assert reasons.keys() == plan.changed.keys() != set()
    assert all(
        why in ("broker 1 has 1.50 of the mean of bytes, 3 0.00",)
        or why.startswith(("broker 1 has 3.00 of the mean of leaders", "broker 2 has 1.50"))
        for why in reasons.values()
    )


def test_reasons_of_what_must_move() -> None:
    racks = {1: "a", 2: "a", 3: "b"}
    cluster = cluster_of([(1, 2)], [1, 2, 3], racks=racks)
    assert explain(cluster, {("t", 0): (1, 3)}, [1, 2, 3]) == {
        ("t", 0): "two of its replicas share a rack"
    }
    assert explain(cluster, {("t", 0): (1, 3)}, [1, 3]) == {
        ("t", 0): "broker 2 may have no replicas, or is gone"
    }
    assert explain(cluster, {("t", 0): (1, 2, 3)}, [1, 2, 3]) == {
        ("t", 0): "it is to have 3 replicas, not 2"
    }


def test_a_new_order_is_explained_by_leaders() -> None:
    partitions = {("t", index): Partition((1, 2), GB) for index in range(2)}
    cluster = Cluster({1: broker(1), 2: broker(2)}, partitions)
    assert explain(cluster, {("t", 0): (2, 1)}, [1, 2]) == {
        ("t", 0): "broker 1 has 2.00 of the mean of leaders, 2 0.00"
    }
