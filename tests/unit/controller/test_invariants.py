"""No decision of the controller may break what holds of every partition."""

from collections.abc import Sequence

import pytest

from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.cluster.image import LEADER_NONE
from pyrklog.controller.invariants import InvariantError, check_assignment, check_leadership
from pyrklog.controller.leader_election import Candidates
from pyrklog.controller.partitions import PartitionChanges
from pyrklog.metastore.znodes import Leadership
from tests.unit.controller.runner import EPOCH, Runner, assignment, live

KEY = ("t", 0)
REPLICAS = (1, 2, 3)


def leadership(
    leader: int = 1,
    isr: Sequence[int] = (1, 2),
    epoch: int = 5,
    eligible: Sequence[int] = (),
    unclean: Sequence[int] = (),
) -> Leadership:
    return Leadership(
        leader, epoch, tuple(isr), EPOCH, eligible=tuple(eligible), unclean=tuple(unclean)
    )


GOOD = leadership()
BROKEN = {
    "broker 3 leads, but is not in sync": leadership(3, epoch=6),
    "broker 4 is in sync, but no replica": leadership(isr=(1, 4)),
    "broker 2 is in sync twice": leadership(isr=(1, 2, 2)),
    "broker 4 is eligible, but no replica": leadership(eligible=(4,)),
    "broker 2 is eligible and in sync": leadership(eligible=(2,)),
    "broker 3 is unclean, but neither in sync nor eligible": leadership(unclean=(3,)),
    "broker 1 leads in an epoch that has passed": leadership(epoch=4),
    "broker 2 leads in the epoch of another leader": leadership(2),
}


@pytest.mark.parametrize("wrong", BROKEN)
def test_each_rule_for_leaders_and_isrs_is_kept(wrong: str) -> None:
    with pytest.raises(InvariantError, match=f"^t-0: {wrong} "):
        check_leadership(KEY, REPLICAS, GOOD, BROKEN[wrong])


@pytest.mark.parametrize(
    "after",
    [
        GOOD,
        leadership(2, epoch=6),
        leadership(LEADER_NONE, epoch=6),
        leadership(isr=(1, 2, 3)),
        leadership(LEADER_NONE, isr=(), epoch=6, eligible=(1, 3), unclean=(3,)),
    ],
)
def test_valid_leaderships_pass(after: Leadership) -> None:
    check_leadership(KEY, REPLICAS, GOOD, after)
    check_leadership(KEY, REPLICAS, None, after)


def test_foreign_violations_may_stay_but_not_grow() -> None:
    for wrong in BROKEN.values():
        check_leadership(KEY, REPLICAS, wrong, wrong)
    with pytest.raises(InvariantError, match="broker 5 is in sync"):
        check_leadership(KEY, REPLICAS, leadership(isr=(1, 4)), leadership(isr=(1, 4, 5)))
    # A topic that was given a replica twice.
    check_leadership(KEY, (1, 1, 2), None, leadership(isr=(1, 1, 2)))


ASSIGNMENTS = {
    "broker 2 is a replica twice": PartitionAssignment((1, 2, 2)),
    "broker 4 is being added, but no replica": PartitionAssignment((1, 2), (4,)),
    "broker 4 is being removed, but no replica": PartitionAssignment((1, 2), (), (4,)),
    "broker 2 is being added and removed": PartitionAssignment((1, 2), (2,), (2,)),
}


@pytest.mark.parametrize("wrong", ASSIGNMENTS)
def test_each_rule_for_reassignments_is_kept(wrong: str) -> None:
    after = ASSIGNMENTS[wrong]
    with pytest.raises(InvariantError, match=f"^t-0: {wrong} "):
        check_assignment(KEY, PartitionAssignment(REPLICAS), after)
    check_assignment(KEY, after, after)


def test_a_bug_in_an_election_reaches_neither_the_store_nor_a_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def election(candidates: Candidates) -> Leadership:
        return candidates.current._replace(leader=3, leader_epoch=1, isr=(1, 2))

    runner = Runner()
    runner.start(live(1, 2, 3))
    runner.run(runner.controller.topics_changed({"t": assignment(REPLICAS)}, ["t"]))
    states, sent = dict(runner.states), len(runner.sent)
    changes: PartitionChanges = runner.controller._partitions
    partition = runner.controller.state.partition(KEY)
    assert partition is not None
    with pytest.raises(InvariantError, match="broker 3 leads, but is not in sync"):
        runner.run(changes.to_online([partition], election))
    assert (runner.states, len(runner.sent)) == (states, sent)
