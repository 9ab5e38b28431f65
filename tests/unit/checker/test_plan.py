"""Only the seed decides a plan of faults."""

import pytest

from tests.checker.plan import (
    ALL,
    ANY,
    BROKER_KINDS,
    KINDS,
    ZOOKEEPER_KINDS,
    make_plan,
)
from tests.support.faults.driver import OF_BROKERS, OF_WIRED_CLUSTERS

MANY = [make_plan(5, number) for number in range(500)]


def test_the_same_seed_gives_the_same_plan() -> None:
    assert [make_plan(5, number) for number in range(500)] == MANY
    assert [make_plan(6, number) for number in range(500)] != MANY


def test_plans_contain_every_kind_of_fault() -> None:
    found = {fault.kind for plan in MANY for lane in plan for fault in lane}
    assert found == KINDS.keys()


def test_each_lane_has_its_own_kinds_and_its_faults_follow_each_other() -> None:
    for plan in MANY:
        assert 1 <= len(plan.brokers) <= 3
        assert {fault.kind for fault in plan.brokers + plan.others} <= BROKER_KINDS.keys()
        assert {fault.kind for fault in plan.zookeeper} <= ZOOKEEPER_KINDS.keys()
        assert all(sum(fault.after_s + fault.hold_s for fault in lane) < 5 for lane in plan)


def test_a_storm_leaves_one_broker_alone() -> None:
    storms = [plan for plan in MANY if plan.others]
    assert 50 < len(storms) < 100
    for plan in storms:
        one, other = ({fault.number % 3 for fault in lane} for lane in plan[:2])
        assert len(one) == len(other) == 1
        assert one != other
        assert {fault.victim for lane in plan[:2] for fault in lane} == {ANY}


def test_only_kills_hit_all_brokers() -> None:
    kinds = {fault.kind for plan in MANY for fault in plan.brokers if fault.victim == ALL}
    assert kinds == {"kill_all"}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_plan_of_one_kind(kind: str) -> None:
    found = {f.kind for number in range(20) for lane in make_plan(1, number, [kind]) for f in lane}
    assert found == {kind}


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(KeyError):
        make_plan(1, 1, ["earthquake"])


def test_the_crash_of_a_machine_is_the_only_fault_of_its_round() -> None:
    kinds = ["machine_crash", "kill", "zookeeper_kill"]
    plans = [make_plan(3, number, kinds) for number in range(300)]
    crashes = [p for p in plans if "machine_crash" in {f.kind for lane in p for f in lane}]
    assert 20 < len(crashes) < 200
    assert {tuple(map(len, plan)) for plan in crashes} == {(1, 0, 0)}


def test_every_kind_can_be_carried_out() -> None:
    # ``reboot`` is for a machine that runs again at once.
    assert {*OF_BROKERS, *OF_WIRED_CLUSTERS} - {"reboot"} == KINDS.keys()
