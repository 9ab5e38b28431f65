"""ElectLeaders: elected and refused partitions, and the topic's options."""

from collections.abc import Sequence

import pytest

from pyrklog.cluster.requests import Elected, ElectionKind, TopicPartition
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import Leadership
from tests.unit.controller.runner import EPOCH, Runner, assignment, live

PREFERRED, UNCLEAN = ElectionKind.PREFERRED, ElectionKind.UNCLEAN
NONE, NOT_NEEDED = ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED


def elect(
    runner: Runner, kind: ElectionKind, keys: Sequence[TopicPartition] | None
) -> tuple[list[str], dict[TopicPartition, tuple[ErrorCode, int]]]:
    results: dict[TopicPartition, Elected] = {}
    lines = runner.run(runner.controller.elections.elect(kind, keys, results))
    shown = [line for line in lines if line.startswith(("write", "failed", "read"))]
    return shown, {key: (one.refusal.error, one.leader) for key, one in results.items()}


def runner_with(*leaderships: tuple[tuple[int, ...], int, tuple[int, ...]]) -> Runner:
    """Partitions of ``t``: replicas, leader, ISR; brokers 1, 2 and 3 live, others are dead."""
    runner = Runner()
    for index, (_, leader, isr) in enumerate(leaderships):
        runner.states[("t", index)] = (Leadership(leader, 3, isr, EPOCH), 5)
    runner.start(live(1, 2, 3), {"t": assignment(*[replicas for replicas, _, _ in leaderships])})
    return runner


def test_preferred_leaders_are_elected_on_request() -> None:
    runner = runner_with(
        ((1, 2), 2, (1, 2)),
        ((1, 2), 1, (1, 2)),
        ((1, 2), 2, (2,)),
        ((9, 2), 2, (2, 9)),
    )
    keys = [("t", index) for index in range(5)]
    assert elect(runner, PREFERRED, keys) == (
        [
            "failed t-2",
            "failed t-3",
            "write t-0 leader 1 epoch 4 isr 1,2",
        ],
        {
            ("t", 0): (NONE, 1),
            ("t", 1): (NOT_NEEDED, -1),
            ("t", 2): (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 2),
            ("t", 3): (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 2),
            ("t", 4): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        },
    )


def test_election_without_names_covers_all_partitions() -> None:
    runner = runner_with(((1, 2), 2, (1, 2)), ((2, 1), 2, (1, 2)))
    assert elect(runner, PREFERRED, None) == (
        ["write t-0 leader 1 epoch 4 isr 1,2"],
        {("t", 0): (NONE, 1), ("t", 1): (NOT_NEEDED, -1)},
    )


def test_requested_unclean_election_overrides_the_topic_option() -> None:
    runner = runner_with(((9, 2, 3), -1, (9,)), ((1, 2), 1, (1,)), ((9, 8), -1, (9,)))
    assert elect(runner, UNCLEAN, None) == (
        ["failed t-2", "write t-0 leader 2 epoch 4 isr 2 recovering"],
        {
            ("t", 0): (NONE, 2),
            ("t", 1): (NOT_NEEDED, -1),
            ("t", 2): (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, -1),
        },
    )


def test_unclean_election_prefers_an_in_sync_replica() -> None:
    runner = runner_with(((9, 2, 3), -1, (9,)))
    runner.states[("t", 0)] = (Leadership(-1, 4, (9, 3), EPOCH), 6)
    lines, results = elect(runner, UNCLEAN, [("t", 0)])
    assert lines == ["read t-0", "write t-0 leader 3 epoch 5 isr 3"]
    assert results == {("t", 0): (NONE, 3)}


@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
def test_a_topic_that_is_being_deleted_has_no_elections(kind: ElectionKind) -> None:
    runner = runner_with(((1, 9), 1, (1,)))
    runner.run(runner.controller.deletion_asked(["t"]))
    expected = {("t", 0): (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)}
    assert elect(runner, kind, [("t", 0)]) == ([], expected)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_preferred_election_skips_a_partition_without_a_first_leader(
    kind: ElectionKind, error: ErrorCode
) -> None:
    runner = Runner()
    runner.start(live(1), {"t": assignment((9,))})
    assert elect(runner, kind, [("t", 0)]) == ([], {("t", 0): (error, -1)})


def test_legacy_election_znode_is_deleted_after_any_outcome() -> None:
    runner = runner_with(((1, 2), 2, (1, 2)))
    elections = runner.controller.elections
    lines = runner.run(elections.asked_by_znode([("t", 0), ("t", 7)]))
    assert lines[0] == "write t-0 leader 1 epoch 4 isr 1,2"
    assert lines[-1] == "delete /admin/preferred_replica_election"
    assert runner.run(elections.asked_by_znode([("t", 7)])) == [
        "delete /admin/preferred_replica_election"
    ]
