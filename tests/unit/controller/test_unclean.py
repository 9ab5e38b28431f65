"""Brokers that may lack acknowledged records leave the ISRs before anybody elects them."""

from collections.abc import Mapping

from pyrklog.controller.election import without_unclean
from pyrklog.controller.state import LiveBroker
from pyrklog.metastore.znodes import Leadership
from tests.unit.controller.runner import EPOCH, Runner, assignment, live


def unclean(*ids: int, epoch: int = 200) -> dict[int, LiveBroker]:
    return {b: item._replace(is_unclean=True) for b, item in live(*ids, epoch=epoch).items()}


def started(brokers: Mapping[int, LiveBroker], leader: int, isr: tuple[int, ...]) -> Runner:
    runner = Runner()
    runner.states = {("t", 0): (Leadership(leader, 4, isr, EPOCH), 9)}
    runner.start(brokers, {"t": assignment((1, 2, 3))})
    return runner


def test_who_stays() -> None:
    def left(leader: int, isr: tuple[int, ...], *gone: int) -> tuple[int, tuple[int, ...]] | None:
        found = without_unclean(Leadership(leader, 4, isr, 6), gone, 7)
        if found is not None:
            assert (found.leader_epoch, found.controller_epoch) == (5, 7)
        return None if found is None else (found.leader, found.isr)

    assert left(1, (1, 2, 3), 2) == (1, (1, 3))
    assert left(1, (1, 2, 3), 1) == (-1, (2, 3))
    assert left(-1, (2, 3), 3, 2) == (-1, (2,))
    assert left(3, (2, 3), 3, 2) == (3, (3,)), "one that led is no worse than the others"
    assert left(1, (1,), 1) is None
    assert left(1, (1, 2), 3) is None


def test_an_unclean_broker_comes_back_as_a_follower() -> None:
    runner = started(live(1, 3), 1, (1, 2, 3))
    # It was gone for so short that it is still in the ISR.
    runner.states["t", 0] = (Leadership(1, 5, (1, 2, 3), EPOCH), 11)
    partition = runner.controller.state.partition(("t", 0))
    assert partition is not None
    partition.lead(*runner.states["t", 0])
    lines = runner.run(runner.controller.brokers_changed({**live(1, 3), **unclean(2)}))
    assert lines[2:4] == ["write t-0 leader 1 epoch 6 isr 1,3", "forget unclean 2"]
    assert not runner.controller.state.brokers[2].is_unclean
    # What is registered has not changed otherwise.
    assert runner.run(runner.controller.brokers_changed({**live(1, 3), **live(2, epoch=200)})) == []


def test_the_first_that_is_back_after_a_power_cut_does_not_lead() -> None:
    """All were in sync, all are gone; a clean one leads when it comes."""
    runner = started(unclean(1), 1, (1, 2, 3))
    assert runner.leadership("t", 0) == "leader -1 epoch 6 isr 3"
    runner.run(runner.controller.brokers_changed({**live(1, epoch=200), **live(3)}))
    assert runner.leadership("t", 0) == "leader 3 epoch 7 isr 3"


def test_where_all_are_unclean_the_last_one_leads() -> None:
    runner = started(unclean(1), 1, (1, 2))
    runner.run(runner.controller.brokers_changed({**live(1, epoch=200), **unclean(2)}))
    assert runner.leadership("t", 0).startswith("leader 2 ")


def test_a_leader_that_came_back_before_anybody_noticed_is_replaced() -> None:
    runner = started(live(1, 2, 3), 1, (1, 2, 3))
    runner.run(runner.controller.brokers_changed({**live(2, 3), **unclean(1)}))
    assert runner.leadership("t", 0) == "leader 2 epoch 5 isr 2,3"


def test_a_new_controller_finds_an_unclean_leader() -> None:
    runner = started({**live(2, 3), **unclean(1)}, 1, (1, 2, 3))
    assert runner.leadership("t", 0) == "leader 2 epoch 6 isr 2,3"
    assert not runner.controller.state.brokers[1].is_unclean


def test_a_new_controller_finds_an_unclean_follower_of_a_dead_leader() -> None:
    """It is no candidate, and the dead leader stays the one that has everything."""
    runner = started({**live(3), **unclean(2)}, 1, (1, 2))
    assert runner.leadership("t", 0) == "leader -1 epoch 6 isr 1"


def test_what_is_being_deleted_is_left_alone() -> None:
    runner = Runner()
    runner.states = {("t", 0): (Leadership(1, 4, (1, 2), EPOCH), 9)}
    lines = runner.start({**live(1), **unclean(2)}, {"t": assignment((1, 2))}, ["t"])
    assert not any(line.startswith("write") for line in lines if "leader 1" in line)
    assert "forget unclean 2" in lines
