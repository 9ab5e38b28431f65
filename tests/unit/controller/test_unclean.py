"""Brokers that may lack acknowledged records are not elected as if they had all."""

from collections.abc import Mapping

from pyrklog.cluster.requests import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LiveBroker,
    LogEnd,
    UpdateMetadataRequest,
)
from pyrklog.controller.cached_states import leaderless, remembered_states
from pyrklog.controller.leader_election import (
    Candidates,
    after_unclean_starts,
    preferred_election,
    reassignment_election,
    shutdown_election,
    with_most,
)
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import Leadership
from tests.unit.controller.runner import EPOCH, Runner, assignment, live


def unclean(*ids: int, epoch: int = 200) -> dict[int, LiveBroker]:
    return {b: item._replace(is_unclean=True) for b, item in live(*ids, epoch=epoch).items()}


def started(brokers: Mapping[int, LiveBroker], leader: int, isr: tuple[int, ...]) -> Runner:
    runner = Runner()
    runner.states = {("t", 0): (Leadership(leader, 4, isr, EPOCH), 9)}
    runner.start(brokers, {"t": assignment((1, 2, 3, 4))})
    return runner


def test_unclean_members_leave_the_isr_or_are_marked() -> None:
    def after(
        leader: int, isr: tuple[int, ...], *came: int, whole: tuple[int, ...] = ()
    ) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
        found = after_unclean_starts(Leadership(leader, 4, isr, 6), came, whole, 7)
        if found is not None:
            assert (found.leader_epoch, found.controller_epoch) == (5, 7)
        return None if found is None else (found.leader, found.isr, found.unclean)

    assert after(1, (1, 2, 3), 2, whole=(1,)) == (1, (1, 3), ())
    assert after(1, (1, 2, 3), 1, whole=(2, 3)) == (-1, (2, 3), ())
    assert after(1, (1, 2, 3), 1) == (-1, (1, 2, 3), (1,)), "nobody leaves while nobody leads"
    assert after(-1, (2, 3), 3, 2) == (-1, (2, 3), (2, 3))
    assert after(1, (1,), 1) == (1, (1,), ()), "alone, and in a new epoch"
    assert after(1, (1, 2), 3, whole=(1,)) is None


def test_longest_log_is_chosen_by_epoch_then_offset() -> None:
    def chosen(**ends: tuple[int, int]) -> int | None:
        current = Leadership(-1, 7, (3, 1), 6, eligible=(2,), unclean=(1, 2, 3))
        known = {int(name[1:]): LogEnd(7, *end) for name, end in ends.items()}
        found = with_most(current, known, 8)
        if found is not None:
            assert found == Leadership(found.leader, 8, (found.leader,), 8)
        return None if found is None else found.leader

    assert chosen(b1=(4, 90), b2=(4, 100), b3=(4, 95)) == 2
    assert chosen(b1=(5, 90), b2=(4, 100)) == 1
    assert chosen(b1=(4, 90), b2=(4, 90), b3=(4, 90)) == 3, "the first in sync"
    assert chosen(b2=(-1, 0)) == 2
    assert chosen() is None


def test_an_unclean_broker_comes_back_as_a_follower() -> None:
    runner = started(live(1, 3), 1, (1, 2, 3))
    # It was away so briefly that it is still in the ISR.
    runner.states["t", 0] = (Leadership(1, 5, (1, 2, 3), EPOCH), 11)
    partition = runner.controller.state.partition(("t", 0))
    assert partition is not None
    partition.lead(*runner.states["t", 0])
    lines = runner.run(runner.controller.brokers_changed({**live(1, 3), **unclean(2)}))
    assert lines[2:4] == ["write t-0 leader 1 epoch 6 isr 1,3", "delete /pyrklog/unclean/2"]
    assert not runner.controller.state.brokers[2].is_unclean
    assert runner.run(runner.controller.brokers_changed({**live(1, 3), **live(2, epoch=200)})) == []


def test_the_first_that_is_back_after_a_power_cut_does_not_lead() -> None:
    """All were in sync, all are gone; a clean one leads when it returns, whichever it is."""
    runner = started(unclean(1), 1, (1, 2, 3))
    assert runner.leadership("t", 0) == "leader -1 epoch 5 isr 1,2,3 unclean 1"
    assert runner.ends_answered(1, 3, 90) == []
    assert runner.wait_over() == [], "a whole one may come"
    runner.run(runner.controller.brokers_changed({**live(1, epoch=200), **live(3)}))
    assert runner.leadership("t", 0) == "leader 3 epoch 7 isr 3"


def test_among_all_unclean_replicas_the_longest_log_leads() -> None:
    runner = started(unclean(1), 1, (1, 2, 3))
    runner.run(runner.controller.brokers_changed({**live(1, epoch=200), **unclean(2, 3)}))
    assert runner.leadership("t", 0) == "leader -1 epoch 6 isr 1,2,3 unclean 1,2,3"
    assert runner.ends_answered(1, 3, 90) == []
    assert runner.ends_answered(2, 3, 95) == [], "one is still asked"
    lines = runner.ends_answered(3, 2, 99)
    assert lines[0] == "write t-0 leader 2 epoch 7 isr 2"
    assert [line for line in lines if line.startswith("3 <- lead")] == [
        "3 <- lead t-0:2@7 offline 4"
    ]
    assert runner.wait_over() == []


def test_absent_unclean_replica_is_awaited_below_the_minimum() -> None:
    for minimum, epoch in ((1, 7), (2, 7), (3, 6)):
        runner = started(unclean(1), 1, (1, 2, 3))
        runner.minimums = {"t": minimum}
        runner.run(runner.controller.brokers_changed({**live(1, epoch=200), **unclean(2)}))
        assert runner.ends_answered(1, 3, 95) == []
        assert runner.ends_answered(2, 3, 90) == []
        runner.wait_over()
        state = runner.states["t", 0][0]
        assert (state.leader, state.leader_epoch) == ((1, 7) if epoch == 7 else (-1, 6)), minimum
        # The third may have everything, because the high watermark does not move.
        assert state.eligible == ((3,) if minimum == 2 else ()), minimum


def test_one_of_two_unclean_replicas_is_no_majority() -> None:
    runner = started(unclean(1), 2, (1, 2))
    runner.ends_answered(1, 3, 95)
    assert runner.wait_over() == []


def test_earlier_wait_does_not_end_the_wait_for_later_replicas() -> None:
    runner = started(unclean(1), 1, (1, 2, 3, 4))
    runner.run(runner.controller.brokers_changed({**live(1, epoch=200), **unclean(2, 3)}))
    first, second = runner.waits
    runner.ends_answered(1, 3, 95)
    assert runner.run(runner.controller.unclean.wait_over(first)) == []
    assert runner.run(runner.controller.unclean.wait_over(second)) != []


def test_log_end_of_an_earlier_epoch_or_life_is_ignored() -> None:
    runner = started(unclean(1), 1, (1, 2))
    early = LeaderAndIsrResponse(ErrorCode.NONE, {}, {("t", 0): LogEnd(5, 9, 999)})
    runner.run(runner.controller.brokers_changed({**live(1, epoch=200), **unclean(2)}))
    assert runner.run(runner.controller.leader_and_isr_answered(1, early)) == []
    runner.ends_answered(2, 3, 90)
    # It ends in order and returns, but still lacks the same records.
    runner.run(runner.controller.brokers_changed(live(1, epoch=200)))
    runner.run(runner.controller.brokers_changed({**live(1, epoch=200), **live(2, epoch=300)}))
    assert runner.leadership("t", 0) == "leader -1 epoch 7 isr 1,2 unclean 1,2"
    assert runner.ends_answered(1, 3, 90) == []
    runner.ends_answered(2, 3, 80)
    assert runner.leadership("t", 0) == "leader 1 epoch 8 isr 1"


def test_log_ends_are_asked_again_after_a_suspect_left() -> None:
    runner = started(unclean(1), 1, (1, 2, 3))
    runner.run(runner.controller.brokers_changed({**live(1, epoch=200), **unclean(2, 3)}))
    runner.ends_answered(1, 3, 90)
    runner.ends_answered(3, 3, 95)
    runner.run(runner.controller.suspects.suspect(2))
    assert runner.leadership("t", 0) == "leader -1 epoch 7 isr 1,3 unclean 1,3"
    assert runner.ends_answered(1, 3, 90) == [], "3 has more, and has not told it since"
    runner.ends_answered(3, 3, 95)
    assert runner.leadership("t", 0) == "leader 3 epoch 8 isr 3"


def test_silent_unclean_replica_is_not_awaited_longer() -> None:
    runner = started(unclean(1, 2), 1, (1, 2))
    runner.ends_answered(2, 3, 90)
    runner.wait_over()
    assert runner.leadership("t", 0) == "leader 2 epoch 6 isr 2"


def test_unclean_marks_outlive_the_controller() -> None:
    runner = started(unclean(1), 1, (1, 2))
    runner.ends_answered(1, 3, 90)
    following = runner.successor()
    following.start({**live(1, epoch=200), **unclean(2)})
    assert following.leadership("t", 0) == "leader -1 epoch 6 isr 1,2 unclean 1,2"
    following.ends_answered(1, 3, 91)
    following.ends_answered(2, 3, 90)
    assert following.leadership("t", 0) == "leader 1 epoch 7 isr 1"


def test_elections_from_cached_states_skip_unclean_replicas() -> None:
    runner = started(unclean(1), 1, (1, 2, 3))
    request = runner.last(1, UpdateMetadataRequest)
    assert isinstance(request, UpdateMetadataRequest)
    (info,) = request.topics[0].partitions
    assert info.unclean == (1,)
    assert not leaderless(request.topics, live(1, epoch=200))
    found = leaderless(request.topics, live(1, 2))
    states = remembered_states(found, {"t": assignment((1, 2, 3))})
    assert states["t", 0][0].unclean == (1,)


def test_a_topic_that_allows_it_does_not_wait() -> None:
    runner = Runner(unclean=["t"])
    runner.states = {("t", 0): (Leadership(1, 4, (2, 1), EPOCH), 9)}
    runner.start({**live(3), **unclean(1)}, {"t": assignment((3, 2, 1))})
    # A replica that lacks something is better than one that was not in sync.
    assert runner.leadership("t", 0) == "leader 1 epoch 6 isr 1 recovering"


def test_no_election_chooses_an_unclean_replica() -> None:
    runner = started(unclean(1), 2, (1, 2, 3))
    assert runner.run(runner.controller.elect_preferred([("t", 0)])) == ["failed t-0"]
    candidates = Candidates(
        assignment=(1, 2, 3),
        live=(1,),
        current=runner.states["t", 0][0],
        controller_epoch=EPOCH,
        targets=(1,),
    )
    for election in (preferred_election, reassignment_election, shutdown_election):
        assert election(candidates) is None


def test_isr_keeps_all_members_that_die_together() -> None:
    runner = started(live(1, 2, 3), 1, (1, 2, 3))
    runner.run(runner.controller.brokers_changed({}))
    assert runner.leadership("t", 0) == "leader -1 epoch 5 isr 1,2,3"
    runner.run(runner.controller.brokers_changed(live(2, epoch=200)))
    assert runner.leadership("t", 0) == "leader 2 epoch 6 isr 2"


def test_members_that_die_together_become_eligible_in_one_write() -> None:
    runner = started(live(1, 2, 3), 1, (1, 2, 3))
    runner.minimums = {"t": 2}
    lines = runner.run(runner.controller.brokers_changed(live(1)))
    written = [line for line in lines if line.startswith("write")]
    assert written == ["write t-0 leader 1 epoch 5 isr 1 eligible 2,3"]


def test_unclean_leader_that_restarted_unnoticed_is_replaced() -> None:
    runner = started(live(1, 2, 3), 1, (1, 2, 3))
    runner.run(runner.controller.brokers_changed({**live(2, 3), **unclean(1)}))
    assert runner.leadership("t", 0) == "leader 2 epoch 5 isr 2,3"


def test_a_new_controller_finds_an_unclean_leader() -> None:
    runner = started({**live(2, 3), **unclean(1)}, 1, (1, 2, 3))
    assert runner.leadership("t", 0) == "leader 2 epoch 6 isr 2,3"
    assert not runner.controller.state.brokers[1].is_unclean


def test_a_new_controller_finds_an_unclean_follower_of_a_dead_leader() -> None:
    """It is no candidate; the dead leader remains the one that has everything."""
    runner = started({**live(3), **unclean(2)}, 1, (1, 2))
    assert runner.leadership("t", 0) == "leader -1 epoch 5 isr 1,2 unclean 2"
    runner.run(runner.controller.brokers_changed({**live(1, 3), **live(2, epoch=200)}))
    assert runner.leadership("t", 0) == "leader 1 epoch 7 isr 1"


def test_the_only_member_leads_on_in_a_new_epoch() -> None:
    """Lost records and their replacements are in different epochs (KIP-320)."""
    runner = started({**live(2), **unclean(1)}, 1, (1,))
    assert runner.leadership("t", 0) == "leader 1 epoch 5 isr 1"
    request = runner.last(1, LeaderAndIsrRequest)
    assert isinstance(request, LeaderAndIsrRequest)
    assert request.topics[0].partitions[0].leader_epoch == 5
    runner = started(live(1, 2), 1, (1,))
    assert runner.leadership("t", 0) == "leader 1 epoch 4 isr 1", "it has everything"


def test_topic_being_deleted_gets_no_unclean_marks() -> None:
    runner = Runner()
    runner.states = {("t", 0): (Leadership(1, 4, (1, 2), EPOCH), 9)}
    lines = runner.start({**live(1), **unclean(2)}, {"t": assignment((1, 2))}, ["t"])
    assert not any(line.startswith("write") for line in lines if "leader 1" in line)
    assert "delete /pyrklog/unclean/2" in lines
