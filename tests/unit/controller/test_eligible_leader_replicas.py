"""Eligible leader replicas: cluster.md, section 6, row by row."""

import pytest

from pyrklog.cluster.requests import (
    AlterPartitionRequest,
    ElectionKind,
    IsrChange,
    IsrChangeResult,
    LeaderAndIsrRequest,
)
from pyrklog.controller.eligible_leader_replicas import eligible_after
from pyrklog.controller.leader_election import Candidates, after_unclean_starts, unclean_election
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import RECOVERED, RECOVERING, Leadership
from tests.unit.controller.runner import EPOCH, Runner, assignment, live
from tests.unit.controller.test_unclean import unclean

T0 = ("t", 0)
ALL = (1, 2, 3)


def led(
    isr: tuple[int, ...], eligible: tuple[int, ...] = (), recovery: int = RECOVERED
) -> Leadership:
    return Leadership(isr[0], 4, isr, EPOCH, recovery, eligible)


@pytest.mark.parametrize(
    ("before", "after", "minimum", "eligible"),
    [
        (led(ALL), led((1, 2)), 2, ()),
        (led((1, 2)), led((1,)), 2, (2,)),
        (led(ALL), led((1,)), 2, (2, 3)),
        (led((1, 3), (2,)), led((1,)), 3, (2, 3)),
        (led((1,), (2,)), led((2,)), 2, (1,)),
        (led((1,), (2, 3)), led((1, 3)), 3, (2,)),
        (led((1,), (2,)), led((1, 3)), 2, ()),
        (led((1,), (2,)), led((1,)), 2, (2,)),
        (led((1,), (2,)), led((1,)), 1, ()),
        (led((1, 2)), led((1,)), 1, ()),
        (led((1, 2)), led((1,)), 7, (2,)),
        (led((1,)), led((1, 2, 3)), 7, ()),
        (led((1,), (2,)), led((3,), recovery=RECOVERING), 2, ()),
        (led((1,), (9,)), led((1,)), 2, ()),
    ],
    ids=[
        "enough are left",
        "too few are left",
        "several leave at once",
        "too few before",
        "it leads instead",
        "one joins, still too few",
        "enough again",
        "nothing changes",
        "the minimum was lowered",
        "a minimum of one",
        "a minimum above the replicas",
        "all replicas are enough",
        "an unclean election",
        "no replica any more",
    ],
)
def test_replicas_that_leave_below_the_minimum_become_eligible(
    before: Leadership, after: Leadership, minimum: int, eligible: tuple[int, ...]
) -> None:
    assert eligible_after(before, after, ALL, minimum) == eligible


def test_untrusted_replica_is_not_eligible() -> None:
    assert eligible_after(led(ALL), led((1,)), ALL, 2, untrusted={3}) == (2,)
    assert eligible_after(led((1,), (2, 3)), led((1,)), ALL, 2, untrusted={2}) == (3,)


def test_eligible_replica_replaces_unclean_members() -> None:
    def left(current: Leadership, *gone: int, whole: int) -> tuple[int, tuple[int, ...]] | None:
        found = after_unclean_starts(current, gone, [whole], EPOCH)
        return None if found is None else (found.leader, found.isr)

    assert left(led((1,), (2, 3)), 1, whole=2) == (-1, (2, 3))
    assert left(led((1,), (2, 3)), 1, 2, whole=3) == (-1, (3,))
    assert left(led((1,), (2, 3)), 3, whole=1) == (1, (1,))
    assert left(led((1,), (2,)), 3, whole=1) is None


def started(*brokers: int, minimum: int = 2, unclean_topics: tuple[str, ...] = ()) -> Runner:
    """Partition 0 of t is on 1, 2 and 3; the ISR is the live ones."""
    runner = Runner(unclean=unclean_topics)
    runner.minimums = {"t": minimum}
    runner.start(live(*brokers))
    runner.topics = {"t": assignment(ALL)}
    runner.run(runner.controller.topics_changed(runner.topics, ["t"]))
    return runner


def living(runner: Runner, *brokers: int, epoch: int = 100) -> list[str]:
    return runner.run(runner.controller.brokers_changed(live(*brokers, epoch=epoch)))


def ask(runner: Runner, *isr: int) -> IsrChangeResult:
    leadership, version = runner.states[T0]
    members = [(broker, -1) for broker in isr]
    change = IsrChange(b"i" * 16, 0, leadership.leader_epoch, version, members, 0)
    results: list[IsrChangeResult] = []
    request = AlterPartitionRequest(leadership.leader, -1, [change])
    runner.run(runner.controller.alter_partitions(request, results))
    return results[0]


def test_leader_learns_of_eligible_replicas_and_their_end() -> None:
    runner = started(1, 2, 3)
    assert ask(runner, 1).eligible == (2, 3)
    assert runner.leadership("t", 0) == "leader 1 epoch 0 isr 1 eligible 2,3"
    assert ask(runner, 1, 2).eligible == ()
    assert runner.leadership("t", 0) == "leader 1 epoch 0 isr 1,2"
    living(runner, 1, 3)
    request = runner.last(1, LeaderAndIsrRequest)
    assert isinstance(request, LeaderAndIsrRequest)
    assert request.topics[0].partitions[0].eligible == (2,)


def test_eligible_replica_leads_after_all_died_one_by_one() -> None:
    runner = started(1, 2, 3)
    living(runner, 1, 2)
    assert runner.leadership("t", 0) == "leader 1 epoch 1 isr 1,2"
    living(runner, 1)
    assert runner.leadership("t", 0) == "leader 1 epoch 2 isr 1 eligible 2"
    living(runner)
    assert runner.leadership("t", 0) == "leader -1 epoch 3 isr 1 eligible 2"
    living(runner, 3, epoch=200)
    assert runner.leadership("t", 0) == "leader -1 epoch 3 isr 1 eligible 2", "3 lacks records"
    living(runner, 2, 3, epoch=200)
    assert runner.leadership("t", 0) == "leader 2 epoch 4 isr 2 eligible 1"
    assert ask(runner, 2, 3).error is ErrorCode.NONE
    assert runner.leadership("t", 0) == "leader 2 epoch 4 isr 2,3"


def test_an_eligible_replica_that_lives_leads_at_once() -> None:
    runner = started(1, 2, 3, unclean_topics=("t",))
    ask(runner, 1, 2)
    ask(runner, 1)
    living(runner, 2, 3)
    assert runner.leadership("t", 0) == "leader 2 epoch 1 isr 2 eligible 1"


def test_suspect_is_the_last_eligible_choice() -> None:
    runner = started(1, 2, 3)
    ask(runner, 1)
    runner.run(runner.controller.suspects.suspect(2))
    living(runner, 2, 3)
    assert runner.leadership("t", 0) == "leader 3 epoch 1 isr 3 eligible 1,2"


def test_a_suspect_in_sync_goes_before_one_that_is_eligible() -> None:
    runner = started(1, 2, 3)
    ask(runner, 1, 2)
    runner.minimums = {"t": 3}
    ask(runner, 1)
    runner.run(runner.controller.suspects.suspect(1))
    assert runner.leadership("t", 0).startswith("leader 1 ")


def test_unclean_election_without_live_eligible_replicas_clears_them() -> None:
    runner = started(1, 2, 3)
    ask(runner, 1, 2)
    ask(runner, 1)
    living(runner, 3)
    assert runner.leadership("t", 0) == "leader -1 epoch 1 isr 1 eligible 2"
    runner.run(runner.controller.elections.elect(ElectionKind.UNCLEAN, [T0], {}))
    assert runner.leadership("t", 0) == "leader 3 epoch 2 isr 3 recovering"
    living(runner, 2, 3)
    living(runner, 2)
    assert runner.leadership("t", 0) == "leader -1 epoch 3 isr 3 recovering"


def test_requested_unclean_election_prefers_an_eligible_replica() -> None:
    def elected(*brokers: int) -> Leadership | None:
        candidates = Candidates(
            assignment=ALL, live=brokers, current=led((1,), (3,)), controller_epoch=EPOCH
        )
        return unclean_election(candidates)

    assert elected(2, 3) == Leadership(3, 5, (3,), EPOCH)
    assert elected(2) == Leadership(2, 5, (2,), EPOCH, RECOVERING)
    assert elected(1, 2, 3) == Leadership(1, 5, (1,), EPOCH), "the ISR comes first"


def test_the_last_in_sync_comes_back_unclean_and_the_others_are_dead() -> None:
    runner = started(1, 2, 3)
    living(runner, 1, 2)
    living(runner, 1)
    runner.run(runner.controller.brokers_changed(unclean(1)))
    # The ISR does not shrink without a leader.
    assert runner.leadership("t", 0) == "leader -1 epoch 4 isr 1 eligible 2 unclean 1"
    runner.run(runner.controller.brokers_changed({**live(1, 3, epoch=200)}))
    assert runner.leadership("t", 0) == "leader -1 epoch 4 isr 1 eligible 2 unclean 1"
    runner.run(runner.controller.brokers_changed({**live(1, 3, epoch=200), **live(2)}))
    assert runner.leadership("t", 0) == "leader 2 epoch 6 isr 2"


def test_the_last_in_sync_comes_back_unclean_and_an_eligible_one_lives() -> None:
    runner = started(1, 2, 3)
    ask(runner, 1, 2)
    ask(runner, 1)
    runner.run(runner.controller.brokers_changed({**unclean(1), **live(2, 3)}))
    assert runner.leadership("t", 0) == "leader 2 epoch 2 isr 2"


def test_unclean_start_ends_eligibility() -> None:
    runner = started(1, 2, 3)
    ask(runner, 1)
    lines = runner.run(runner.controller.brokers_changed({**live(1, 3), **unclean(2)}))
    assert runner.leadership("t", 0) == "leader 1 epoch 1 isr 1 eligible 3"
    assert lines.index("write t-0 leader 1 epoch 1 isr 1 eligible 3") < lines.index(
        "delete /pyrklog/unclean/2"
    )


def test_longest_log_leads_among_unclean_last_and_eligible() -> None:
    runner = started(1, 2, 3)
    ask(runner, 1, 2)
    ask(runner, 1)
    runner.run(runner.controller.brokers_changed({**unclean(1, 2), **live(3)}))
    marked = "isr 1 eligible 2 unclean 1,2"
    assert runner.leadership("t", 0).endswith(marked)
    runner.ends_answered(1, 0, 10)
    runner.ends_answered(2, 0, 20)
    assert runner.leadership("t", 0) == "leader 2 epoch 3 isr 2"


def test_next_controller_reads_eligible_replicas() -> None:
    runner = started(1, 2, 3)
    ask(runner, 1, 2)
    ask(runner, 1)
    following = runner.successor()
    following.start(live(2, 3))
    assert following.leadership("t", 0) == "leader 2 epoch 1 isr 2 eligible 1"


def test_a_replica_whose_directory_fails_is_not_eligible() -> None:
    runner = started(1, 2, 3)
    ask(runner, 1, 2)
    ask(runner, 1)
    living(runner, 1, 2, 3, epoch=100)
    runner.run(runner.controller.log_dirs_failed([2]))
    runner.lead_answered(2, ErrorCode.KAFKA_STORAGE_ERROR)
    assert runner.leadership("t", 0) == "leader 1 epoch 1 isr 1"


def test_lower_minimum_clears_eligible_replicas_before_the_leader_uses_it() -> None:
    runner = started(1, 2, 3)
    ask(runner, 1)
    assert runner.run(runner.controller.options_changed()) == []
    runner.minimums = {"t": 1}
    lines = runner.run(runner.controller.options_changed())
    assert lines[0] == "write t-0 leader 1 epoch 1 isr 1"
    assert "1 <- lead t-0:1@1" in lines
    runner.minimums = {"t": 2}
    runner.run(runner.controller.options_changed())
    living(runner, 2, 3)
    assert runner.leadership("t", 0) == "leader -1 epoch 2 isr 1", (
        "its high watermark may have moved"
    )


def test_minimum_lowered_without_a_leader_counts_after_the_election() -> None:
    runner = started(1, 2, 3)
    ask(runner, 1)
    following = runner.successor()
    following.minimums = {"t": 1}
    following.start(live(1, 2, 3))
    assert following.leadership("t", 0) == "leader 1 epoch 1 isr 1"


def test_minimum_lowered_without_a_leader_keeps_eligible_replicas() -> None:
    runner = started(1, 2, 3)
    ask(runner, 1, 2)
    ask(runner, 1)
    living(runner, 3)
    assert runner.leadership("t", 0) == "leader -1 epoch 1 isr 1 eligible 2"
    runner.minimums = {"t": 1}
    assert runner.run(runner.controller.options_changed()) == []
    living(runner, 2, 3)
    assert runner.leadership("t", 0) == "leader 2 epoch 2 isr 2", "it has everything"


def test_replica_that_left_at_minimum_one_is_not_eligible_later() -> None:
    runner = started(1, 2, 3, minimum=1)
    ask(runner, 1)
    runner.minimums = {"t": 3}
    runner.run(runner.controller.options_changed())
    assert runner.leadership("t", 0) == "leader 1 epoch 0 isr 1"
    ask(runner, 1, 2)
    assert runner.leadership("t", 0) == "leader 1 epoch 0 isr 1,2"


def test_a_replica_that_is_taken_away_is_not_eligible() -> None:
    runner = started(1, 2, 3, 4)
    ask(runner, 1, 2)
    ask(runner, 1)
    runner.run(runner.controller.reassignments.alter({T0: (1, 4)}, {}))
    assert runner.leadership("t", 0).endswith("isr 1 eligible 2"), "it is still a replica"
    ask(runner, 1, 4)
    assert runner.topics["t"].replicas[0] == (1, 4)
    ask(runner, 1)
    assert runner.leadership("t", 0).endswith("isr 1 eligible 4")


def test_foreign_state_write_is_decided_on_again() -> None:
    runner = started(1, 2, 3)
    leadership, version = runner.states[T0]
    runner.states[T0] = (leadership._replace(isr=(1, 3)), version + 1)
    living(runner, 1, 2)
    assert runner.leadership("t", 0) == "leader 1 epoch 1 isr 1 eligible 3"
