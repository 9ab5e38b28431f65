import pytest

from pyrklog.base import pieces
from pyrklog.cluster.requests import (
    AlterPartitionRequest,
    IsrChange,
    IsrChangeResult,
    LeaderAndIsrRequest,
    TopicPartition,
)
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import Leadership
from tests.unit.controller.runner import EPOCH, Runner, assignment, live

ID = b"i" * 16
UNKNOWN = -1


def started(*brokers: int) -> Runner:
    """Topic t with one partition on 1, 2, 3; the ISR is the live ones."""
    runner = Runner()
    runner.start(live(*brokers))
    new = {"t": assignment((1, 2, 3))}
    runner.run(runner.controller.topics_changed(new, ["t"]))
    return runner


def change(
    *isr: tuple[int, int] | int,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    topic_id: bytes = ID,
    partition: int = 0,
    recovery_state: int = 0,
) -> IsrChange:
    members = [item if isinstance(item, tuple) else (item, UNKNOWN) for item in isr]
    return IsrChange(topic_id, partition, leader_epoch, partition_epoch, members, recovery_state)


def ask(runner: Runner, *changes: IsrChange) -> tuple[list[IsrChangeResult], list[str]]:
    results: list[IsrChangeResult] = []
    request = AlterPartitionRequest(1, 101, changes)
    lines = runner.run(runner.controller.alter_partitions(request, results))
    return results, lines


def test_a_member_leaves_and_comes_back() -> None:
    runner = started(1, 2, 3)
    results, lines = ask(runner, change(1, 2))
    assert results == [IsrChangeResult(ID, 0, ErrorCode.NONE, 1, 0, (1, 2), 0, 1)]
    assert lines == [
        "write t-0 leader 1 epoch 0 isr 1,2",
        "1 <- metadata t-0:1@0 brokers 1,2,3",
        "2 <- metadata t-0:1@0 brokers 1,2,3",
        "3 <- metadata t-0:1@0 brokers 1,2,3",
    ]
    results, _ = ask(runner, change(1, 2, (3, 103), partition_epoch=1))
    assert results[0].isr == (1, 2, 3)
    assert results[0].partition_epoch == 2


def test_isr_change_that_is_already_written_succeeds() -> None:
    runner = started(1, 2, 3)
    ask(runner, change(1, 2))
    # A retry after a lost answer, with an old partition epoch.
    results, lines = ask(runner, change(2, 1))
    assert results == [IsrChangeResult(ID, 0, ErrorCode.NONE, 1, 0, (1, 2), 0, 1)]
    assert lines == []


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (change(1, topic_id=b"u" * 16), ErrorCode.UNKNOWN_TOPIC_ID),
        (change(1, partition=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (change(1, leader_epoch=1), ErrorCode.NOT_CONTROLLER),
        (change(1, partition_epoch=5), ErrorCode.NOT_CONTROLLER),
        (change(1, 2, leader_epoch=-1), ErrorCode.FENCED_LEADER_EPOCH),
        (change(1, 2, partition_epoch=-1), ErrorCode.INVALID_UPDATE_VERSION),
        (change(1, 2, recovery_state=1), ErrorCode.INVALID_REQUEST),
        (change(1, recovery_state=1), ErrorCode.INVALID_REQUEST),
        (change(1, 4), ErrorCode.INELIGIBLE_REPLICA),
        (change(), ErrorCode.INVALID_REQUEST),
        (change(2), ErrorCode.INVALID_REQUEST),
        (change(1, 2, 2), ErrorCode.INVALID_REQUEST),
        (change(1, (2, 99)), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_invalid_isr_changes_are_refused(wrong: IsrChange, error: ErrorCode) -> None:
    runner = started(1, 2, 3, 4)
    before = runner.leadership("t", 0)
    results, lines = ask(runner, wrong)
    assert [item.error for item in results] == [error]
    assert lines == []
    assert runner.leadership("t", 0) == before


def test_a_dead_broker_may_not_join() -> None:
    runner = started(1, 2)
    results, _ = ask(runner, change(1, 2, 3))
    assert results[0].error is ErrorCode.INELIGIBLE_REPLICA


def test_state_written_by_another_is_read_again() -> None:
    runner = started(1, 2, 3)
    leadership, version = runner.states[("t", 0)]
    runner.states[("t", 0)] = (leadership._replace(isr=(1, 3)), version + 1)
    results, lines = ask(runner, change(1, 2))
    assert [item.error for item in results] == [ErrorCode.INVALID_UPDATE_VERSION]
    assert lines == ["refused t-0", "read t-0"]
    results, _ = ask(runner, change(1, partition_epoch=1))
    assert results[0].error is ErrorCode.NONE


def test_controlled_shutdown_moves_leaders() -> None:
    runner = started(1, 2, 3)
    remaining: list[TopicPartition] = []
    lines = runner.run(runner.controller.controlled_shutdown.shut_down(1, remaining))
    assert remaining == []
    assert runner.leadership("t", 0) == "leader 2 epoch 1 isr 2,3"
    assert "2 <- lead t-0:2@1" in lines
    results, _ = ask(runner, change(2, 3, 1, leader_epoch=1, partition_epoch=1))
    assert results[0].error is ErrorCode.INELIGIBLE_REPLICA, "it is about to end"
    remaining = []
    lines = runner.run(runner.controller.controlled_shutdown.shut_down(3, remaining))
    assert remaining == []
    assert runner.leadership("t", 0) == "leader 2 epoch 2 isr 2"
    assert not any("stop" in line for line in lines)


def test_partition_without_another_candidate_remains_at_shutdown() -> None:
    runner = started(1, 2, 3)
    ask(runner, change(1))
    remaining: list[TopicPartition] = []
    runner.run(runner.controller.controlled_shutdown.shut_down(1, remaining))
    assert remaining == [("t", 0)]
    assert runner.leadership("t", 0) == "leader 1 epoch 0 isr 1"


def test_a_broker_that_came_back_is_not_about_to_end() -> None:
    runner = started(1, 2, 3)
    runner.run(runner.controller.controlled_shutdown.shut_down(1, []))
    runner.run(runner.controller.brokers_changed(live(2, 3)))
    runner.run(runner.controller.brokers_changed({**live(2, 3), **live(1, epoch=200)}))
    epoch, version = runner.states[("t", 0)][0].leader_epoch, runner.states[("t", 0)][1]
    results, _ = ask(runner, change(2, 3, (1, 201), leader_epoch=epoch, partition_epoch=version))
    assert results[0].error is ErrorCode.NONE
    assert results[0].isr == (2, 3, 1)


def test_last_in_sync_replica_hands_over_to_an_eligible_one() -> None:
    runner = Runner()
    runner.minimums = {"t": 2}
    runner.states = {("t", 0): (Leadership(1, 4, (1,), EPOCH, eligible=(2, 3)), 9)}
    runner.start(live(1, 3), {"t": assignment((1, 2, 3))})
    remaining: list[tuple[str, int]] = []
    runner.run(runner.controller.controlled_shutdown.shut_down(1, remaining))
    assert runner.leadership("t", 0) == "leader 3 epoch 5 isr 3 eligible 1,2"
    assert remaining == []


def test_many_partitions_are_handed_over_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece sends its requests, so that the broker sees progress."""
    monkeypatch.setattr(pieces, "PARTITIONS_A_TURN", 2)
    runner = Runner()
    runner.start(live(1, 2))
    runner.run(runner.controller.topics_changed({"t": assignment(*[(1, 2)] * 5)}, ["t"]))
    lines = runner.run(runner.controller.controlled_shutdown.shut_down(1, []))
    orders = [line for line in lines if line.startswith(("write", "1 <- lead"))]
    kinds = [line.split()[0] for line in orders]
    assert kinds == ["write", "write", "1", "write", "write", "1", "write", "1"]


def test_new_partitions_are_not_led_by_brokers_shutting_down() -> None:
    runner = Runner()
    runner.start(live(1, 2, 3))
    runner.run(runner.controller.controlled_shutdown.shut_down(1, []))
    runner.run(runner.controller.suspects.suspect(2))
    runner.run(runner.controller.topics_changed({"t": assignment((1, 2, 3), (1, 2), (1,))}, ["t"]))
    assert runner.leadership("t", 0) == "leader 3 epoch 0 isr 3"
    told = runner.last(2, LeaderAndIsrRequest)
    assert isinstance(told, LeaderAndIsrRequest), "it follows, and may come in"
    assert [info.partition for info in told.topics[0].partitions] == [0, 1]
    assert runner.leadership("t", 1) == "leader 1 epoch 0 isr 1,2", "there is no other"
    assert runner.leadership("t", 2) == "leader 1 epoch 0 isr 1"
