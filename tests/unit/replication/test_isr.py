"""The ISR as a leader sees it: one change at a time, and the high watermark never too high."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrklog.errors import ErrorCode
from pyrklog.replication.isr import GIVEN_UP, RESET, Committed, InSyncReplicas, Proposal

LEADER = 1


def replicas(isr: tuple[int, ...] = (1, 2), partition_epoch: int = 5) -> InSyncReplicas:
    return InSyncReplicas(LEADER, Committed(isr, 3, partition_epoch))


def maximal(state: InSyncReplicas) -> list[int]:
    return list(state.maximal)


def test_joining_replica_counts_for_the_high_watermark_at_once() -> None:
    state = replicas()
    proposal = state.caught_up([3])
    assert proposal == Proposal((1, 2, 3), 3, 5)
    assert (list(state.committed.isr), maximal(state)) == ([1, 2], [1, 2, 3])
    assert state.done(proposal, Committed((1, 2, 3), 3, 6))
    assert (list(state.committed.isr), maximal(state)) == ([1, 2, 3], [1, 2, 3])
    assert state.is_settled


def test_leaving_replica_counts_until_the_controller_has_written() -> None:
    state = replicas((1, 2, 3))
    proposal = state.behind([2])
    assert proposal == Proposal((1, 3), 3, 5)
    assert maximal(state) == [1, 2, 3]
    assert state.done(proposal, Committed((1, 3), 3, 6))
    assert maximal(state) == [1, 3]


def test_only_one_isr_change_is_pending() -> None:
    state = replicas((1, 2))
    assert state.behind([2]) is not None
    assert state.caught_up([3]) is None
    assert state.behind([2]) is None


@pytest.mark.parametrize("brokers", [[], [2], [1, 2]])
def test_members_do_not_join(brokers: list[int]) -> None:
    assert replicas().caught_up(brokers) is None


def test_the_leader_never_leaves() -> None:
    state = replicas((1, 2))
    assert state.behind([1, 9]) is None
    assert state.behind([1, 2]) == Proposal((1,), 3, 5)


@pytest.mark.parametrize("error", sorted(RESET))
def test_refused_proposal_can_be_repeated(error: ErrorCode) -> None:
    state = replicas()
    proposal = state.caught_up([3])
    assert proposal is not None
    assert not state.failed(proposal, error)
    assert maximal(state) == [1, 2]
    assert state.caught_up([3]) == proposal


@pytest.mark.parametrize("error", sorted(GIVEN_UP))
def test_abandoned_proposal_counts_until_the_next_leader_and_isr(error: ErrorCode) -> None:
    state = replicas()
    proposal = state.caught_up([3])
    assert proposal is not None
    assert not state.failed(proposal, error)
    assert maximal(state) == [1, 2, 3], "it may have been written"
    assert state.behind([2]) is None
    assert state.told(Committed((1, 2), 3, 7))
    assert maximal(state) == [1, 2]
    assert state.behind([2]) == Proposal((1,), 3, 7)


def test_other_errors_repeat_the_proposal() -> None:
    state = replicas()
    proposal = state.caught_up([3])
    assert proposal is not None
    assert state.failed(proposal, ErrorCode.NOT_CONTROLLER)
    assert state.pending == proposal


def test_answer_overtaken_by_a_newer_state_changes_nothing() -> None:
    state = replicas()
    proposal = state.caught_up([3])
    assert proposal is not None
    assert state.told(Committed((1,), 4, 8))
    assert not state.done(proposal, Committed((1, 2, 3), 3, 6))
    assert not state.failed(proposal, ErrorCode.FENCED_LEADER_EPOCH)
    assert (maximal(state), state.is_settled) == ([1], True)


@pytest.mark.parametrize("answer", [Committed((1,), 2, 9), Committed((1,), 3, 4)])
def test_answer_with_an_older_state_is_ignored(answer: Committed) -> None:
    state = replicas()
    proposal = state.caught_up([3])
    assert proposal is not None
    assert not state.done(proposal, answer)
    assert maximal(state) == [1, 2, 3]


def test_answer_with_an_equal_epoch_settles_the_proposal() -> None:
    state = replicas()
    proposal = state.caught_up([3])
    assert proposal is not None
    assert state.done(proposal, Committed((1, 2), 3, 5))
    assert (maximal(state), state.is_settled) == ([1, 2], True)


@pytest.mark.parametrize(
    "old", [Committed((1,), 3, 5), Committed((1,), 3, 4), Committed((1,), 2, 9)]
)
def test_older_leader_and_isr_changes_nothing(old: Committed) -> None:
    state = replicas()
    assert not state.told(old)
    assert state.committed.isr == (1, 2)


class WrittenByController:
    """The state node: compare-and-set, and answers that may get lost."""

    def __init__(self, committed: Committed) -> None:
        self.committed = committed

    def alter(self, proposal: Proposal) -> Committed | ErrorCode:
        _, leader_epoch, partition_epoch = self.committed[:3]
        if proposal.leader_epoch < leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if proposal.partition_epoch != partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        self.committed = Committed(proposal.isr, leader_epoch, partition_epoch + 1)
        return self.committed

    def remove(self, broker: int) -> None:
        """The controller removes a dead broker, in a new leader epoch."""
        isr, leader_epoch, partition_epoch = self.committed[:3]
        staying = tuple(one for one in isr if one != broker)
        self.committed = Committed(staying, leader_epoch + 1, partition_epoch + 1)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "leave", "deliver", "lose", "answer", "removed", "told"]),
        st.integers(2, 4),
    ),
    max_size=60,
)


@given(STEPS)
def test_members_always_include_the_written_isr(
    steps: list[tuple[str, int]],
) -> None:
    """Any replica elected from the written ISR has all that the leader has shown in its epoch."""
    written = WrittenByController(Committed((1, 2), 3, 5))
    state = InSyncReplicas(LEADER, written.committed)
    under_way: Proposal | None = None
    answers: list[tuple[Proposal, Committed | ErrorCode]] = []
    for step, broker in steps:
        match step:
            case "join":
                under_way = state.caught_up([broker]) or under_way
            case "leave":
                under_way = state.behind([broker]) or under_way
            case "deliver" | "lose" if under_way is not None:
                answer = written.alter(under_way)
                if step == "deliver":
                    answers.append((under_way, answer))
            case "answer" if answers:
                proposal, answer = answers.pop(0)
                if isinstance(answer, ErrorCode):
                    state.failed(proposal, answer)
                else:
                    state.done(proposal, answer)
            case "removed":
                written.remove(broker)
            case "told":
                state.told(written.committed)
        if written.committed.leader_epoch == state.committed.leader_epoch:
            assert set(written.committed.isr) <= set(state.maximal)
