"""Reassignments that others replace, or that are cancelled, when a broker that was added leads."""

import pytest

from tests.unit.controller.runner import CrashedError, Runner, live
from tests.unit.controller.test_reassignment import (
    T0,
    alter,
    cluster,
    deleted,
    in_sync,
    move,
    znode,
)


def test_another_leads_before_one_that_was_added_in_vain_goes() -> None:
    runner = led_by_an_added_one()
    move(runner, {T0: (5, 4)})
    assert runner.states[T0][0].leader == 2
    assert znode(runner) == ((5, 4, 1, 2), (5, 4), (1, 2))
    assert deleted(runner) == {3}


def led_by_an_added_one() -> Runner:
    """t-0 moves from 1 and 2 to 3 and 4; 1, which led, was away, and 3 has led since."""
    runner = cluster((1, 2), brokers=(1, 2, 3, 4, 5))
    move(runner, {T0: (3, 4)})
    in_sync(runner, 1, 2, 3)
    runner.run(runner.controller.brokers_changed(live(2, 3, 4, 5)))
    runner.run(runner.controller.brokers_changed(live(1, 2, 3, 4, 5)))
    assert runner.states[T0][0].leader == 3
    return runner


def crash_while_it_is_replaced(actions: int, targets: tuple[int, ...] | None) -> bool:
    """One controller crashes after so many actions; False: it did not."""
    first = led_by_an_added_one()
    first.actions_left = actions
    has_crashed = False
    try:
        alter(first, {T0: targets})
    except CrashedError:
        has_crashed = True
    (replicas, _, _), (leadership, _) = znode(first), first.states[T0]
    assert isinstance(replicas, tuple)
    assert {leadership.leader, *leadership.isr} <= set(replicas), "a stranger is in sync"
    second = first.successor()
    second.start(live(1, 2, 3, 4, 5))
    assert second.states[T0][0].leader in replicas
    return has_crashed


@pytest.mark.parametrize("targets", [None, (5, 4), (2, 5)])
def test_nobody_leads_who_is_no_replica_wherever_a_controller_crashes(
    targets: tuple[int, ...] | None,
) -> None:
    """Kafka writes the znode before those that it does not name any more are out of the ISR."""
    crashes = 0
    while crash_while_it_is_replaced(crashes, targets):
        crashes += 1
    assert crashes > 10
