"""Reassignments that are replaced or cancelled while brokers come and go."""

import pytest

from pyrklog.cluster.requests import LeaderAndIsrRequest, LeaderAndIsrResponse, TopicPartition
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import Leadership
from tests.unit.controller.runner import CrashedError, Runner, live
from tests.unit.controller.test_reassignment import (
    T0,
    alter,
    cluster,
    deleted,
    in_sync,
    move,
    refused,
    znode,
)


def test_added_leader_is_replaced_before_it_is_removed() -> None:
    runner = led_by_an_added_one()
    move(runner, {T0: (5, 4)})
    assert runner.states[T0][0].leader == 2
    assert znode(runner) == ((5, 4, 1, 2), (5, 4), (1, 2))
    assert deleted(runner) == {3}


def led_by_an_added_one() -> Runner:
    """t-0 moves from 1 and 2 to 3 and 4; 3 leads, because the leader 1 was away."""
    runner = cluster((1, 2), brokers=(1, 2, 3, 4, 5))
    move(runner, {T0: (3, 4)})
    in_sync(runner, 1, 2, 3)
    runner.run(runner.controller.brokers_changed(live(2, 3, 4, 5)))
    runner.run(runner.controller.brokers_changed(live(1, 2, 3, 4, 5)))
    assert runner.states[T0][0].leader == 3
    return runner


def crashes_after(actions: int, first: Runner, targets: tuple[int, ...] | None) -> bool:
    """A controller crashes after so many actions of another reassignment; False: it did not."""
    first.actions_left = actions
    try:
        alter(first, {T0: targets})
    except CrashedError:
        return True
    return False


def crash_while_it_is_replaced(actions: int, targets: tuple[int, ...] | None) -> bool:
    """One controller crashes and another continues; False: it did not crash."""
    first = led_by_an_added_one()
    has_crashed = crashes_after(actions, first, targets)
    (replicas, _, _), (leadership, _) = znode(first), first.states[T0]
    assert isinstance(replicas, tuple)
    assert {leadership.leader, *leadership.isr} <= set(replicas), "a stranger is in sync"
    second = first.successor()
    second.start(live(1, 2, 3, 4, 5))
    assert second.states[T0][0].leader in replicas
    return has_crashed


@pytest.mark.parametrize("targets", [None, (5, 4), (2, 5)])
def test_every_leader_is_a_replica_after_a_crash_at_any_write(
    targets: tuple[int, ...] | None,
) -> None:
    """Kafka writes the znode while removed replicas are still in the ISR."""
    crashes = 0
    while crash_while_it_is_replaced(crashes, targets):
        crashes += 1
    assert crashes > 10


def half_way() -> Runner:
    """t-0 moves from 1 and 2 to 3 and 4; 3 is in sync."""
    runner = cluster((1, 2), brokers=(1, 2, 3, 4))
    move(runner, {T0: (3, 4)})
    in_sync(runner, 1, 2, 3)
    return runner


def fail_log_dir(runner: Runner, broker: int) -> None:
    request = runner.last(broker, LeaderAndIsrRequest)
    assert isinstance(request, LeaderAndIsrRequest)
    response = LeaderAndIsrResponse(ErrorCode.NONE, {T0: ErrorCode.KAFKA_STORAGE_ERROR})
    runner.run(runner.controller.leader_and_isr_answered(broker, response))


@pytest.mark.parametrize("dead", [(), (1,), (2,), (1, 4), (2, 3), (3, 4)])
def test_reassignment_is_cancelled_while_one_old_replica_is_in_sync(
    dead: tuple[int, ...],
) -> None:
    runner = half_way()
    alive = [broker for broker in (1, 2, 3, 4) if broker not in dead]
    runner.run(runner.controller.brokers_changed(live(*alive)))
    move(runner, {T0: None})
    leadership, _ = runner.states[T0]
    assert leadership.leader in alive
    assert set(leadership.isr) == {1, 2} & set(alive)
    assert znode(runner) == ((1, 2), (), ())
    assert deleted(runner) == {3, 4} & set(alive)


@pytest.mark.parametrize("dead", [(1, 2), (1, 2, 4)])
def test_cancelling_is_refused_without_a_live_old_replica(dead: tuple[int, ...]) -> None:
    runner = half_way()
    alive = [broker for broker in (1, 2, 3, 4) if broker not in dead]
    runner.run(runner.controller.brokers_changed(live(*alive)))
    assert refused(runner, {T0: None}) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert znode(runner) == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert deleted(runner) == set()
    # The cancellation is possible once one is back in sync.
    runner.run(runner.controller.brokers_changed(live(2, *alive)))
    in_sync(runner, 3, 2)
    move(runner, {T0: None})
    assert runner.states[T0][0].isr == (2,)
    assert znode(runner) == ((1, 2), (), ())


def test_cancelling_is_refused_when_old_replicas_directories_failed() -> None:
    runner = half_way()
    fail_log_dir(runner, 1)
    fail_log_dir(runner, 2)
    assert runner.states[T0][0].isr == (3,)
    assert refused(runner, {T0: None}) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert deleted(runner) == set()


class Contended(dict[TopicPartition, tuple[Leadership, int]]):
    """States that are rewritten before each write."""

    def get(self, key: TopicPartition, _default: object = None) -> tuple[Leadership, int]:
        leadership, version = self[key]
        self[key] = (leadership, version + 1)
        return self[key]


def test_dead_in_sync_replica_does_not_allow_cancelling() -> None:
    """The old replicas are still in the ISR: their death could not be written."""
    runner = half_way()
    runner.states = Contended(runner.states)
    runner.run(runner.controller.brokers_changed(live(3, 4)))
    assert runner.states[T0][0].isr == (1, 2, 3)
    assert refused(runner, {T0: None}) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert deleted(runner) == set()


def an_added_one_is_eligible() -> Runner:
    """:func:`half_way`, then 2 and 3 were away: 1 is in sync, both are eligible."""
    runner = half_way()
    runner.minimums = {"t": 2}
    runner.run(runner.controller.brokers_changed(live(1, 4)))
    runner.run(runner.controller.brokers_changed(live(1, 2, 3, 4)))
    leadership, _ = runner.states[T0]
    assert (leadership.isr, set(leadership.eligible)) == ((1,), {2, 3})
    return runner


def crash_while_an_eligible_one_goes(actions: int) -> bool:
    first = an_added_one_is_eligible()
    has_crashed = crashes_after(actions, first, None)
    leadership, _ = first.states[T0]
    assert deleted(first).isdisjoint(leadership.members), "a successor may elect an empty log"
    return has_crashed


def test_added_eligible_replica_is_deleted_after_its_eligibility() -> None:
    crashes = 0
    while crash_while_an_eligible_one_goes(crashes):
        crashes += 1
    assert crashes > 5


def test_cancelling_is_refused_when_old_replicas_are_unclean() -> None:
    runner = an_added_one_is_eligible()
    runner.run(runner.controller.brokers_changed(live(4)))
    unclean = {broker: item._replace(is_unclean=True) for broker, item in live(1, 2).items()}
    runner.run(runner.controller.brokers_changed({**live(4), **unclean}))
    assert set(runner.states[T0][0].unclean) == {1, 2}
    assert refused(runner, {T0: None}) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert deleted(runner) == set()
