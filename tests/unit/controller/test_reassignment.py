"""Reassignments as in seed 000 (part 2) and cluster.md, section 6."""

import pytest

from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.cluster.requests import (
    AlterPartitionRequest,
    IsrChange,
    IsrChangeResult,
    LeaderAndIsrRequest,
    Refusal,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from pyrklog.controller.state import ReplicaState
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import Leadership
from tests.unit.controller.runner import EPOCH, CrashedError, Runner, assignment, live

T0 = ("t", 0)
OLD, NEW = (1, 2, 3), (4, 5, 6)
Wanted = dict[TopicPartition, tuple[int, ...] | None]


def cluster(*replicas: tuple[int, ...], brokers: tuple[int, ...] = (1, 2, 3, 4, 5, 6)) -> Runner:
    """A controller of these brokers; the first replicas lead topic ``t``, all are in sync."""
    runner = Runner()
    assigned = replicas or (OLD,)
    for index, members in enumerate(assigned):
        runner.states[("t", index)] = (Leadership(members[0], 3, members, EPOCH - 1), 5)
    runner.start(live(*brokers), {"t": assignment(*assigned)})
    return runner


def alter(runner: Runner, wanted: Wanted) -> tuple[list[str], dict[TopicPartition, Refusal]]:
    results: dict[TopicPartition, Refusal] = {}
    lines = runner.run(runner.controller.reassignments.alter(wanted, results))
    return lines, results


def move(runner: Runner, wanted: Wanted) -> list[str]:
    lines, results = alter(runner, wanted)
    assert {key: one.error for key, one in results.items()} == dict.fromkeys(wanted, ErrorCode.NONE)
    return lines


def refused(runner: Runner, wanted: Wanted) -> ErrorCode:
    lines, results = alter(runner, wanted)
    assert lines == []
    (result,) = results.values()
    return result.error


def in_sync(runner: Runner, *isr: int, partition: int = 0) -> list[str]:
    found = runner.controller.state.partition(("t", partition))
    assert found is not None
    assert found.leadership is not None
    change = IsrChange(
        found.topic.id,
        partition,
        found.leadership.leader_epoch,
        found.partition_epoch,
        [(broker, -1) for broker in isr],
        0,
    )
    results: list[IsrChangeResult] = []
    request = AlterPartitionRequest(found.leadership.leader, -1, [change])
    lines = runner.run(runner.controller.alter_partitions(request, results))
    assert [result.error for result in results] == [ErrorCode.NONE]
    return lines


def without_metadata(lines: list[str]) -> list[str]:
    return [line for line in lines if "<- metadata" not in line]


def znode(runner: Runner) -> tuple[object, ...]:
    node = runner.topics["t"]
    return node.replicas[0], node.adding.get(0, ()), node.removing.get(0, ())


# --- an example, step by step --------------------------------------------------------------------


def test_from_1_2_3_to_4_5_6_step_by_step() -> None:
    """Each write and request: topic znode first, then leader and ISR, topic znode last."""
    runner = cluster()
    assert without_metadata(move(runner, {T0: NEW})) == [
        "assign t-0 4,5,6,1,2,3 +4,5,6 -1,2,3",
        "write t-0 leader 1 epoch 4 isr 1,2,3",
        "1 <- lead t-0:1@4",
        "2 <- lead t-0:1@4",
        "3 <- lead t-0:1@4",
        "4 <- lead t-0:1@4 new",
        "5 <- lead t-0:1@4 new",
        "6 <- lead t-0:1@4 new",
    ]
    told = runner.last(1, LeaderAndIsrRequest)
    assert isinstance(told, LeaderAndIsrRequest)
    info = told.topics[0].partitions[0]
    assert (info.replicas, info.adding, info.removing) == ((4, 5, 6, 1, 2, 3), NEW, OLD)
    assert znode(runner) == ((4, 5, 6, 1, 2, 3), NEW, OLD)
    assert without_metadata(in_sync(runner, 1, 2, 3, 4, 5)) == [
        "write t-0 leader 1 epoch 4 isr 1,2,3,4,5"
    ]
    assert without_metadata(in_sync(runner, 1, 2, 3, 4, 5, 6)) == [
        "write t-0 leader 1 epoch 4 isr 1,2,3,4,5,6",
        "write t-0 leader 4 epoch 5 isr 4,5,6",
        "4 <- lead t-0:4@5",
        "5 <- lead t-0:4@5",
        "6 <- lead t-0:4@5",
        "1 <- stop t-0@5",
        "2 <- stop t-0@5",
        "3 <- stop t-0@5",
        "1 <- stop t-0@5 delete",
        "2 <- stop t-0@5 delete",
        "3 <- stop t-0@5 delete",
        "assign t-0 4,5,6",
    ]
    assert znode(runner) == (NEW, (), ())
    partition = runner.controller.state.partition(T0)
    assert partition is not None
    assert partition.replica_states == dict.fromkeys(NEW, ReplicaState.ONLINE)
    # At the end all are told, even those without a replica.
    assert runner.run(runner.controller.brokers_changed(live(*OLD, *NEW))) == []


def test_reassignment_that_the_store_refuses_does_not_begin() -> None:
    runner = cluster()
    runner.too_large.add("t")
    results: dict[TopicPartition, Refusal] = {}
    runner.run(runner.controller.reassignments.alter({T0: NEW}, results))
    assert results[T0].error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert runner.controller.reassignments.list(None) == {}


def test_brokers_learn_of_each_step_before_its_control_requests() -> None:
    runner = cluster((1,), brokers=(1, 2))
    lines = move(runner, {T0: (2,)}) + in_sync(runner, 1, 2)
    shown = [line.replace(" brokers 1,2", "") for line in lines]
    assert shown == [
        "assign t-0 2,1 +2 -1",
        "write t-0 leader 1 epoch 4 isr 1",
        "1 <- metadata t-0:1@4",
        "2 <- metadata t-0:1@4",
        "1 <- lead t-0:1@4",
        "2 <- lead t-0:1@4 new",
        "write t-0 leader 1 epoch 4 isr 1,2",
        "1 <- metadata t-0:1@4",
        "2 <- metadata t-0:1@4",
        "write t-0 leader 2 epoch 5 isr 2",
        "1 <- metadata t-0:2@5",
        "2 <- metadata t-0:2@5",
        "2 <- lead t-0:2@5",
        "1 <- metadata t-0:2@5",
        "2 <- metadata t-0:2@5",
        "1 <- stop t-0@5",
        "1 <- stop t-0@5 delete",
        "assign t-0 2",
        "1 <- metadata t-0:2@5",
        "2 <- metadata t-0:2@5",
    ]


def test_a_leader_that_stays_only_hears_of_its_new_replicas() -> None:
    runner = cluster()
    move(runner, {T0: (4, 1)})
    assert without_metadata(in_sync(runner, 1, 2, 3, 4)) == [
        "write t-0 leader 1 epoch 4 isr 1,2,3,4",
        "write t-0 leader 1 epoch 5 isr 1,4",
        "1 <- lead t-0:1@5",
        "4 <- lead t-0:1@5",
        "2 <- stop t-0@5",
        "3 <- stop t-0@5",
        "2 <- stop t-0@5 delete",
        "3 <- stop t-0@5 delete",
        "assign t-0 4,1",
    ]


def test_fewer_replicas_and_another_order_need_not_wait() -> None:
    runner = cluster(OLD, OLD)
    assert without_metadata(move(runner, {T0: (2, 1)})) == [
        "assign t-0 2,1,3 -3",
        "write t-0 leader 1 epoch 4 isr 1,2",
        "1 <- lead t-0:1@4",
        "2 <- lead t-0:1@4",
        "3 <- stop t-0@4",
        "3 <- stop t-0@4 delete",
        "assign t-0 2,1",
    ]


def test_another_order_alone_disturbs_no_replica() -> None:
    """Clients hear of it; leaders and followers go on in their epoch."""
    runner = cluster()
    lines = move(runner, {T0: (3, 2, 1)})
    assert without_metadata(lines) == ["assign t-0 3,2,1"]
    assert "1 <- metadata t-0:1@3" in [line.partition(" brokers")[0] for line in lines]
    told = runner.last(1, UpdateMetadataRequest)
    assert isinstance(told, UpdateMetadataRequest)
    assert told.topics[0].partitions[0].replicas == (3, 2, 1)


def test_partitions_of_a_topic_are_written_together() -> None:
    runner = cluster((1,), (1,), (2,))
    lines = move(runner, {("t", index): (4,) for index in range(3)})
    assert [line for line in lines if line.startswith(("assign", "write"))] == [
        "assign t-0 4,1 +4 -1",
        "assign t-1 4,1 +4 -1",
        "assign t-2 4,2 +4 -2",
        "write t-0 leader 1 epoch 4 isr 1",
        "write t-1 leader 1 epoch 4 isr 1",
        "write t-2 leader 2 epoch 4 isr 2",
    ]
    assert len([line for line in lines if line.startswith("4 <- lead")]) == 1


# --- crashes -------------------------------------------------------------------------------------


def finish(runner: Runner) -> None:
    """Brokers' part until nothing moves: the assigned replicas catch up."""
    partition = runner.controller.state.partition(T0)
    assert partition is not None
    if partition.is_moving:
        in_sync(runner, *sorted(partition.replicas))


def deleted(*runners: Runner) -> set[int]:
    return {
        broker
        for runner in runners
        for broker, request in runner.sent
        if isinstance(request, StopReplicaRequest) and any(item.delete for item in request.replicas)
    }


def crash_and_go_on(actions: int) -> bool:
    """One controller crashes after so many actions, the next one ends it; False: it did not."""
    first = cluster()
    sent_before = len(first.sent)
    assert sent_before
    first.actions_left = actions
    try:
        move(first, {T0: NEW})
        finish(first)
    except CrashedError:
        pass
    else:
        return False
    before = (znode(first), first.leadership("t", 0))
    second = first.successor()
    second.start(live(*OLD, *NEW))
    finish(second)
    if not first.topics["t"].adding and before[0] == (OLD, (), ()):
        assert second.leadership("t", 0) == "leader 1 epoch 3 isr 1,2,3"
        return True
    assert znode(second) == (NEW, (), ()), before
    leadership, _ = second.states[T0]
    assert (leadership.leader, set(leadership.isr)) == (4, set(NEW))
    # Replicas that the znode no longer names were stopped before.
    assert deleted(first, second) == set(OLD)
    return True


def test_next_controller_finishes_a_reassignment_after_a_crash_at_any_write() -> None:
    crashes = 0
    while crash_and_go_on(crashes):
        crashes += 1
    # Each znode and each request to each broker is covered.
    assert crashes > 40


@pytest.mark.parametrize("actions", range(12))
def test_controllers_that_crash_one_after_the_other_end_it_at_last(actions: int) -> None:
    runner = cluster()
    move(runner, {T0: NEW})
    for more in range(20):
        runner = runner.successor()
        runner.actions_left = actions + more
        try:
            runner.start(live(*OLD, *NEW))
            finish(runner)
            break
        except CrashedError:
            continue
    runner = runner.successor()
    runner.start(live(*OLD, *NEW))
    finish(runner)
    assert znode(runner) == (NEW, (), ())
    assert set(runner.states[T0][0].isr) == set(NEW)


# --- cancelled, replaced -------------------------------------------------------------------------


def test_a_reassignment_is_cancelled() -> None:
    runner = cluster()
    move(runner, {T0: NEW})
    in_sync(runner, 1, 2, 3, 4)
    assert without_metadata(move(runner, {T0: None})) == [
        "write t-0 leader 1 epoch 5 isr 1,2,3",
        "1 <- lead t-0:1@5",
        "2 <- lead t-0:1@5",
        "3 <- lead t-0:1@5",
        "4 <- stop t-0@4",
        "5 <- stop t-0@4",
        "6 <- stop t-0@4",
        "4 <- stop t-0@5 delete",
        "5 <- stop t-0@5 delete",
        "6 <- stop t-0@5 delete",
        "assign t-0 1,2,3",
        "write t-0 leader 1 epoch 6 isr 1,2,3",
        "1 <- lead t-0:1@6",
        "2 <- lead t-0:1@6",
        "3 <- lead t-0:1@6",
    ]
    assert runner.controller.reassignments.list(None) == {}
    assert refused(runner, {T0: None}) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_reassignment_is_replaced_by_another() -> None:
    """What only the first one added goes at once; what both name stays."""
    runner = cluster()
    move(runner, {T0: (4, 5)})
    assert without_metadata(move(runner, {T0: (5, 6)})) == [
        "4 <- stop t-0@4",
        "4 <- stop t-0@4 delete",
        "assign t-0 5,6,1,2,3 +5,6 -1,2,3",
        "write t-0 leader 1 epoch 5 isr 1,2,3",
        "1 <- lead t-0:1@5",
        "2 <- lead t-0:1@5",
        "3 <- lead t-0:1@5",
        "5 <- lead t-0:1@5 new",
        "6 <- lead t-0:1@5 new",
    ]
    in_sync(runner, 1, 2, 3, 5, 6)
    assert znode(runner) == ((5, 6), (), ())
    assert deleted(runner) == {1, 2, 3, 4}


def test_a_cancellation_may_not_lose_what_was_acknowledged() -> None:
    """The old replicas died; the new one leads alone and must stay."""
    runner = cluster((1,), brokers=(1, 2, 3))
    move(runner, {T0: (2, 3)})
    in_sync(runner, 1, 2)
    runner.run(runner.controller.brokers_changed(live(2, 3)))
    assert runner.leadership("t", 0) == "leader 2 epoch 5 isr 2"
    assert refused(runner, {T0: None}) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert refused(runner, {T0: (3,)}) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    # The move is undone: the dead replica is forgotten.
    in_sync(runner, 2, 3)
    assert znode(runner) == ((2, 3), (), ())
    assert deleted(runner) == set()


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "targets", "error"),
    [
        (T0, (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (T0, (1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (T0, (1, -2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (T0, (1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (T0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (("t", 7), None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (("t", 7), (1, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("u", 0), (1, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("u", 0), (1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_impossible_reassignments_are_refused(
    key: TopicPartition, targets: tuple[int, ...] | None, error: ErrorCode
) -> None:
    assert refused(cluster(), {key: targets}) is error


def test_a_broker_that_is_about_to_end_gets_no_replica() -> None:
    runner = cluster()
    runner.run(runner.controller.controlled_shutdown.shut_down(4, []))
    assert refused(runner, {T0: (4, 5)}) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_good_partitions_move_beside_bad_ones() -> None:
    runner = cluster(OLD, OLD)
    _, results = alter(runner, {T0: (4,), ("t", 1): ()})
    assert results[T0].error is ErrorCode.NONE
    assert results[("t", 1)].error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert runner.controller.reassignments.list(None) == {
        T0: PartitionAssignment((4, 1, 2, 3), (4,), (1, 2, 3))
    }
    assert runner.controller.reassignments.list([("t", 1), ("u", 0)]) == {}


# --- brokers come and go -------------------------------------------------------------------------


def test_a_target_that_dies_is_waited_for() -> None:
    runner = cluster()
    move(runner, {T0: NEW})
    runner.run(runner.controller.brokers_changed(live(1, 2, 3, 4, 5)))
    in_sync(runner, 1, 2, 3, 4, 5)
    assert znode(runner) == ((4, 5, 6, 1, 2, 3), NEW, OLD)
    back = without_metadata(runner.run(runner.controller.brokers_changed(live(*OLD, *NEW))))
    assert back[0] == "6 <- lead t-0:1@4"
    assert "6 <- lead t-0:1@5 new" in back
    in_sync(runner, 1, 2, 3, 4, 5, 6)
    assert znode(runner) == (NEW, (), ())


def test_the_last_target_came_into_the_isr_and_died() -> None:
    """All targets are in sync but dead: nobody is removed before one is back."""
    runner = cluster((1, 2), brokers=(1, 2, 3))
    runner.states[T0] = (Leadership(-1, 6, (3,), EPOCH), 9)
    runner.topics["t"] = runner.topics["t"]._replace(
        replicas={0: (3, 1, 2)}, adding={0: (3,)}, removing={0: (1, 2)}
    )
    second = runner.successor()
    second.start(live(1, 2))
    assert znode(second) == ((3, 1, 2), (3,), (1, 2))
    assert deleted(second) == set()
    second.run(second.controller.brokers_changed(live(1, 2, 3)))
    assert znode(second) == ((3,), (), ())
    assert second.leadership("t", 0).startswith("leader 3 ")
    assert deleted(second) == {1, 2}


def test_a_replica_on_a_dead_broker_is_forgotten() -> None:
    """As in Kafka: its log stays there until the partition is assigned to that broker again."""
    runner = cluster()
    runner.run(runner.controller.brokers_changed(live(1, 2, 4)))
    move(runner, {T0: (1, 4)})
    in_sync(runner, 1, 2, 4)
    assert znode(runner) == ((1, 4), (), ())
    assert deleted(runner) == {2}
    assert runner.run(runner.controller.brokers_changed(live(1, 2, 3, 4)))
    partition = runner.controller.state.partition(T0)
    assert partition is not None
    assert set(partition.replica_states) == {1, 4}


def test_a_partition_that_never_had_a_leader_is_given_to_others() -> None:
    runner = Runner()
    runner.start(live(1))
    runner.topics["t"] = assignment((2,))
    runner.run(runner.controller.topics_changed({"t": assignment((2,))}, ["t"]))
    assert without_metadata(move(runner, {T0: (1,)})) == [
        "assign t-0 1,2 +1 -2",
        "write t-0 leader 1 epoch 0 isr 1",
        "1 <- lead t-0:1@0 new offline 2",
        "write t-0 leader 1 epoch 1 isr 1",
        "1 <- lead t-0:1@1",
        "assign t-0 1",
    ]


def test_foreign_state_write_is_read_and_retried() -> None:
    runner = cluster((1, 2))
    runner.states[T0] = (Leadership(2, 8, (2,), EPOCH - 1), 11)
    lines = without_metadata(move(runner, {T0: (3,)}))
    assert lines[1:4] == ["refused t-0", "read t-0", "write t-0 leader 2 epoch 9 isr 2"]


# --- deletion ------------------------------------------------------------------------------------


def test_a_topic_that_moves_is_deleted_when_it_has_arrived() -> None:
    runner = cluster((1,), brokers=(1, 2))
    move(runner, {T0: (2,)})
    assert runner.run(runner.controller.deletion_asked(["t"])) == []
    assert refused(runner, {T0: (1,)}) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    lines = in_sync(runner, 1, 2)
    assert lines.index("assign t-0 2") < lines.index("2 <- stop t-0@-2 delete")
    assert runner.stop_answered(2) == ["delete nodes t"]


def test_the_mark_of_a_topic_that_moves_outlives_the_controller() -> None:
    runner = cluster((1,), brokers=(1, 2))
    move(runner, {T0: (2,)})
    second = runner.successor()
    second.start(live(1, 2), to_delete=["t"])
    assert second.controller.state.deletion_blocked == {"t"}
    move(second, {T0: None})
    assert second.stop_answered(1) == ["delete nodes t"]


def test_reassignment_of_a_vanished_topic_ends() -> None:
    runner = cluster()
    del runner.topics["t"]
    lines, results = alter(runner, {T0: NEW})
    assert lines == []
    assert results[T0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- the legacy znode ----------------------------------------------------------------------------


def asked_by_znode(runner: Runner, wanted: dict[TopicPartition, tuple[int, ...]]) -> list[str]:
    runner.to_reassign = wanted
    return runner.run(runner.controller.reassignments.asked_by_znode(wanted))


def test_the_znode_goes_with_its_last_partition() -> None:
    runner = cluster((1,), (1,), brokers=(1, 2))
    lines = asked_by_znode(runner, {T0: (2,), ("t", 1): (2,), ("t", 9): (2,)})
    assert lines[:2] == ["failed t-9", "unmark reassignment t-9"]
    assert "unmark reassignment t-0" in in_sync(runner, 1, 2)
    assert runner.to_reassign == {("t", 1): (2,)}
    in_sync(runner, 1, 2, partition=1)
    assert runner.to_reassign is None


def test_the_znode_is_looked_at_again_and_again() -> None:
    runner = cluster((1,), brokers=(1, 2))
    asked_by_znode(runner, {T0: (2,)})
    assert asked_by_znode(runner, {T0: (2,)}) == []
    in_sync(runner, 1, 2)
    assert asked_by_znode(runner, {T0: (2,)}) == ["unmark reassignment t-0"]
    assert asked_by_znode(runner, {T0: (9,)}) == ["failed t-0", "unmark reassignment t-0"]
    assert asked_by_znode(runner, {}) == []
    assert runner.to_reassign is None


def test_the_api_overrides_the_znode() -> None:
    runner = cluster((1,), brokers=(1, 2, 3))
    asked_by_znode(runner, {T0: (2,)})
    assert move(runner, {T0: (3,)})[0] == "unmark reassignment t-0"
    assert runner.to_reassign is None


def test_the_next_controller_finds_the_znode() -> None:
    runner = cluster((1,), brokers=(1, 2))
    runner.to_reassign = {T0: (2,)}
    second = runner.successor()
    second.start(live(1, 2))
    assert second.to_reassign is not None
    second.run(second.controller.reassignments.asked_by_znode(second.to_reassign))
    third = second.successor()
    third.start(live(1, 2))
    in_sync(third, 1, 2)
    assert znode(third) == ((2,), (), ())
    assert third.to_reassign is None


@pytest.mark.parametrize(
    ("isr", "lives"),
    [((1,), 2), ((1,), 3), (None, 3)],
    ids=["nobody in sync lives", "no replica lives", "nobody ever led"],
)
def test_reordering_replicas_needs_no_leader(isr: tuple[int, ...] | None, lives: int) -> None:
    """Nothing moves, so no later event would lead back to it, and the znode would stay."""
    runner = Runner()
    if isr is not None:
        runner.states[T0] = (Leadership(-1, 3, isr, EPOCH - 1), 5)
    runner.start(live(lives), {"t": assignment((1, 2))})
    assert "unmark reassignment t-0" in asked_by_znode(runner, {T0: (2, 1)})
    assert runner.to_reassign is None
    assert znode(runner) == ((2, 1), (), ())
    runner.run(runner.controller.brokers_changed(live(1, 3)))
    assert runner.states[T0][0].leader == 1


# --- the assignment ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("current", "targets", "wanted"),
    [
        (((1, 2, 3),), NEW, ((4, 5, 6, 1, 2, 3), NEW, OLD)),
        (((1, 2, 3),), (3, 4, 2), ((3, 4, 2, 1), (4,), (1,))),
        (((1, 2, 3),), (1, 2), ((1, 2, 3), (), (3,))),
        (((1, 2, 3),), (3, 2, 1), ((3, 2, 1), (), ())),
        (((4, 1, 2), (4,), (2,)), (5, 1), ((5, 1, 2), (5,), (2,))),
        (((4, 1, 2), (4,), (2,)), (1, 2), ((1, 2), (), ())),
    ],
)
def test_target_assignments_are_merged_with_current_replicas(
    current: tuple[tuple[int, ...], ...], targets: tuple[int, ...], wanted: tuple[object, ...]
) -> None:
    found = PartitionAssignment(*current).towards(targets)
    assert tuple(found) == wanted
    assert found.targets == targets
