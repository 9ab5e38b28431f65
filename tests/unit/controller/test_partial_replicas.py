"""Replicas that start at the leader's end (expansion.md): the controller's part."""

import pytest

from pyrklog.cluster.requests import (
    AlterPartitionRequest,
    IsrChange,
    IsrChangeResult,
    LeaderAndIsrRequest,
    Refusal,
    TopicPartition,
    UpdateMetadataRequest,
)
from pyrklog.controller.invariants import InvariantError, check_leadership
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import Leadership
from tests.unit.controller.runner import EPOCH, CrashedError, Runner, assignment, live

T0 = ("t", 0)
ALL = (1, 2, 3, 4, 5)


def cluster(*, knowing: tuple[int, ...] = ALL, unclean: tuple[str, ...] = ()) -> Runner:
    """Broker 1 leads t-0 on 1, 2 and 3; all five brokers live."""
    runner = Runner(unclean=unclean)
    runner.states[T0] = (Leadership(1, 3, (1, 2, 3), EPOCH - 1), 5)
    runner.start(live(*ALL, knowing=knowing), {"t": assignment((1, 2, 3))})
    return runner


def expand(runner: Runner, *targets: int) -> list[str]:
    results: dict[TopicPartition, Refusal] = {}
    lines = runner.run(runner.controller.reassignments.alter({T0: targets}, results, [T0]))
    assert results[T0].error is ErrorCode.NONE
    return without_metadata(lines)


def without_metadata(lines: list[str]) -> list[str]:
    return [line for line in lines if "<- metadata" not in line]


def alter(runner: Runner, isr: tuple[int, ...], whole: tuple[int, ...] = ()) -> ErrorCode:
    found = runner.controller.state.partition(T0)
    assert found is not None
    assert found.leadership is not None
    change = IsrChange(
        found.topic.id,
        0,
        found.leadership.leader_epoch,
        found.partition_epoch,
        [(broker, -1) for broker in isr],
        0,
        whole,
    )
    results: list[IsrChangeResult] = []
    request = AlterPartitionRequest(found.leadership.leader, -1, [change])
    runner.run(runner.controller.alter_partitions(request, results))
    return results[0].error


def told(runner: Runner, broker: int) -> tuple[int, ...]:
    """The partial replicas in the broker's last LeaderAndIsr."""
    request = runner.last(broker, LeaderAndIsrRequest)
    assert isinstance(request, LeaderAndIsrRequest)
    return request.topics[0].partitions[0].partial


def assigned(runner: Runner) -> tuple[int, ...]:
    return runner.topics["t"].replicas[0]


def test_from_the_start_to_the_end_step_by_step() -> None:
    runner = cluster()
    assert expand(runner, 4, 2, 3) == [
        "partial t-0 4",
        "assign t-0 4,2,3,1 +4 -1",
        "write t-0 leader 1 epoch 4 isr 1,2,3",
        "1 <- lead t-0:1@4",
        "2 <- lead t-0:1@4",
        "3 <- lead t-0:1@4",
        "4 <- lead t-0:1@4 new",
    ]
    assert told(runner, 1) == told(runner, 4) == (4,)
    assert alter(runner, (1, 2, 3, 4)) is ErrorCode.INELIGIBLE_REPLICA
    assert runner.partial == {T0: (4,)}
    assert alter(runner, (1, 2, 3, 4), whole=(4,)) is ErrorCode.NONE
    assert runner.partial == {}
    assert assigned(runner) == (4, 2, 3)
    assert runner.states[T0][0].leader == 4
    assert told(runner, 4) == ()


def test_a_whole_replica_among_partial_ones_does_not_end_it() -> None:
    runner = cluster()
    expand(runner, 4, 5, 3)
    assert alter(runner, (1, 2, 3, 4, 5), whole=(4,)) is ErrorCode.INELIGIBLE_REPLICA
    assert alter(runner, (1, 2, 3, 4), whole=(4,)) is ErrorCode.NONE
    assert runner.partial == {T0: (5,)}
    assert assigned(runner) == (4, 5, 3, 1, 2)
    assert alter(runner, (1, 2, 3, 4, 5), whole=(5,)) is ErrorCode.NONE
    assert assigned(runner) == (4, 5, 3)


def test_a_replica_that_was_whole_comes_back_as_any_other() -> None:
    runner = cluster()
    expand(runner, 4, 5, 3)
    assert alter(runner, (1, 2, 3, 4), whole=(4,)) is ErrorCode.NONE
    assert alter(runner, (1, 2, 3)) is ErrorCode.NONE
    assert alter(runner, (1, 2, 3, 4)) is ErrorCode.NONE


@pytest.mark.parametrize("unclean", [(), ("t",)])
def test_a_partial_replica_is_never_elected(unclean: tuple[str, ...]) -> None:
    runner = cluster(unclean=unclean)
    expand(runner, 4, 1, 2)
    alter(runner, (1,))
    runner.run(runner.controller.brokers_changed(live(4, 5, knowing=ALL)))
    state = runner.states[T0][0]
    assert (state.leader, state.isr) == (-1, (1,))
    assert runner.partial == {T0: (4,)}
    # A replica with older records is elected uncleanly, though it comes behind in the assignment.
    runner.run(runner.controller.brokers_changed(live(2, 4, 5, epoch=200, knowing=ALL)))
    assert runner.states[T0][0].leader == (2 if unclean else -1)


def test_the_invariant_is_checked_before_the_write() -> None:
    before = Leadership(1, 3, (1, 2), EPOCH)
    for after in (
        Leadership(1, 4, (1, 2, 4), EPOCH),
        Leadership(4, 4, (4,), EPOCH),
        Leadership(1, 4, (1,), EPOCH, eligible=(4,)),
    ):
        check_leadership(T0, (1, 2, 4), before, after)
        with pytest.raises(InvariantError, match="broker 4 lacks older records"):
            check_leadership(T0, (1, 2, 4), before, after, (4,))


# --- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("knowing", [(1, 2, 3, 5), (2, 3, 4, 5)])
def test_a_replica_copies_where_it_or_its_leader_is_of_another_version(
    knowing: tuple[int, ...],
) -> None:
    runner = cluster(knowing=knowing)
    assert expand(runner, 4, 2, 3)[0] == "assign t-0 4,2,3,1 +4 -1"
    assert runner.partial == {}
    assert alter(runner, (1, 2, 3, 4)) is ErrorCode.NONE
    assert assigned(runner) == (4, 2, 3)


def test_a_leader_of_another_version_ends_it_before_it_hears_of_its_office() -> None:
    runner = cluster(knowing=(1, 3, 4, 5))
    expand(runner, 4, 2, 3)
    lines = runner.run(runner.controller.brokers_changed(live(2, 3, 4, 5, knowing=(3, 4, 5))))
    assert runner.states[T0][0].leader == 2
    (office, *_) = [line for line in lines if line.startswith("2 <- lead")]
    assert lines.index("partial t-0") < lines.index(office)
    assert told(runner, 2) == told(runner, 4) == ()
    assert alter(runner, (2, 3, 4)) is ErrorCode.NONE


def test_where_neither_knows_it_stays_out() -> None:
    """The replica's broker was replaced by an older version, which may follow on."""
    runner = cluster(knowing=(1, 3, 4, 5))
    expand(runner, 4, 2, 3)
    runner.run(runner.controller.brokers_changed(live(1, 2, 3, 5, knowing=(1, 3, 5))))
    runner.run(runner.controller.brokers_changed(live(*ALL, epoch=200, knowing=(1, 3, 5))))
    alter(runner, (1, 2))
    runner.run(runner.controller.brokers_changed(live(2, 3, 4, 5, epoch=300, knowing=(3, 5))))
    assert runner.states[T0][0].leader == 2
    assert runner.partial == {T0: (4,)}
    assert alter(runner, (2, 3, 4)) is ErrorCode.INELIGIBLE_REPLICA


# --- ends ----------------------------------------------------------------------------------------


def test_a_cancellation_leaves_nothing() -> None:
    runner = cluster()
    expand(runner, 4, 2, 3)
    results: dict[TopicPartition, Refusal] = {}
    lines = runner.run(runner.controller.reassignments.alter({T0: None}, results))
    assert results[T0].error is ErrorCode.NONE
    assert lines.index("assign t-0 2,3,1") < lines.index("partial t-0")
    assert any("delete" in line and line.startswith("4 <- stop") for line in lines)
    assert runner.partial == {}


def test_another_target_keeps_a_partial_replica_that_stays() -> None:
    runner = cluster()
    expand(runner, 4, 2, 3)
    expand(runner, 4, 5, 3)
    assert runner.partial == {T0: (4, 5)}
    results: dict[TopicPartition, Refusal] = {}
    runner.run(runner.controller.reassignments.alter({T0: (5, 2, 3)}, results))
    assert runner.partial == {T0: (5,)}


def test_a_replica_that_copies_already_is_not_made_partial() -> None:
    runner = cluster()
    results: dict[TopicPartition, Refusal] = {}
    runner.run(runner.controller.reassignments.alter({T0: (4, 2, 3)}, results))
    expand(runner, 4, 5, 3)
    assert runner.partial == {T0: (5,)}


def test_a_refused_reassignment_leaves_nothing() -> None:
    runner = cluster()
    runner.too_large.add("t")
    results: dict[TopicPartition, Refusal] = {}
    runner.run(runner.controller.reassignments.alter({T0: (4, 2, 3)}, results, [T0]))
    assert results[T0].error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert runner.partial == {}


def test_a_partition_without_records_has_none() -> None:
    runner = Runner()
    runner.start(live(4, 5, knowing=ALL), {"t": assignment((1, 2))})
    expand(runner, 4, 5)
    assert runner.partial == {}
    assert runner.states[T0][0].isr == (4, 5)


# --- crashes -------------------------------------------------------------------------------------


def _begin(runner: Runner) -> None:
    expand(runner, 4, 2, 3)


def _finish(runner: Runner) -> None:
    found = runner.controller.state.partition(T0)
    assert found is not None
    if not found.is_moving:
        return
    if found.partial:
        assert alter(runner, (1, 2, 3, 4)) is ErrorCode.INELIGIBLE_REPLICA
    assert alter(runner, (1, 2, 3, 4), whole=(4,)) is ErrorCode.NONE


@pytest.mark.parametrize("first", range(14))
@pytest.mark.parametrize("second", range(0, 40, 3))
def test_controllers_crash_at_any_write(first: int, second: int) -> None:
    """One while it begins, the next while it takes over or finishes; the third one ends it."""
    runner = cluster()
    runner.actions_left = first
    try:
        _begin(runner)
    except CrashedError:
        pass
    runner = runner.successor()
    runner.actions_left = second
    try:
        runner.start(live(*ALL, epoch=200, knowing=ALL))
        _finish(runner)
    except CrashedError:
        pass
    runner = runner.successor()
    runner.start(live(*ALL, epoch=300, knowing=ALL))
    found = runner.controller.state.partition(T0)
    assert found is not None
    if found.is_moving:
        # A void entry, or none, lets nobody in who was not whole before.
        assert found.partial == ((4,) if 4 not in runner.states[T0][0].isr else ())
        _finish(runner)
        assert assigned(runner) == (4, 2, 3)
    assert runner.partial == {}


def test_void_entries_are_removed_at_a_start() -> None:
    runner = Runner()
    runner.states[T0] = (Leadership(1, 3, (1, 4), EPOCH - 1), 5)
    topic = assignment((4, 5, 1))._replace(adding={0: (4, 5)}, removing={0: (1,)})
    # 4 is whole, 3 is not a replica any more.
    runner.partial[T0] = (3, 4, 5)
    lines = runner.start(live(*ALL, knowing=ALL), {"t": topic})
    assert "partial t-0 5" in lines
    assert told(runner, 1) == (5,)


def test_an_apache_controller_may_have_made_another_version_lead() -> None:
    runner = Runner()
    runner.states[T0] = (Leadership(2, 3, (1, 2), EPOCH - 1), 5)
    topic = assignment((4, 1, 2))._replace(adding={0: (4,)})
    runner.partial[T0] = (4,)
    runner.start(live(1, 2, 4, knowing=(1, 4)), {"t": topic})
    assert runner.partial == {}


def test_elections_by_memory_know_partial_replicas() -> None:
    """An epoch in which a partial replica is not listed makes it copy everything."""
    runner = cluster()
    expand(runner, 4, 2, 3)
    request = runner.last(2, UpdateMetadataRequest)
    assert isinstance(request, UpdateMetadataRequest)
    following = runner.successor()
    brokers = live(2, 3, 4, 5, knowing=ALL)
    steps = following.controller.elect_by_memory(brokers, runner.topics, request.topics)
    following.run(steps)
    assert following.states[T0][0].leader == 2
    assert told(following, 4) == told(following, 2) == (4,)
