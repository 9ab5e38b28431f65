from pyrklog.controller.leader_election import (
    Candidates,
    offline_election,
    preferred_election,
    reassignment_election,
    shutdown_election,
    without_replica,
)
from pyrklog.metastore.znodes import RECOVERED, RECOVERING, Leadership


def candidates(
    live: set[int],
    *,
    isr: tuple[int, ...] = (1, 2, 3),
    leader: int = 1,
    unclean: bool = False,
    shutting_down: tuple[int, ...] = (),
    targets: tuple[int, ...] = (),
    recovery: int = RECOVERED,
) -> Candidates:
    return Candidates(
        assignment=(1, 2, 3, 4),
        live=live,
        current=Leadership(leader, 5, isr, 2, recovery),
        controller_epoch=9,
        unclean=unclean,
        shutting_down=shutting_down,
        targets=targets,
    )


def test_offline_takes_the_first_live_member_in_assignment_order() -> None:
    assert offline_election(candidates({3, 2, 4})) == Leadership(2, 6, (2, 3), 9)
    assert offline_election(candidates({3, 4}, isr=(3, 2))) == Leadership(3, 6, (3,), 9)


def test_offline_without_a_live_member() -> None:
    assert offline_election(candidates({4})) is None
    assert offline_election(candidates({4}, unclean=True)) == Leadership(4, 6, (4,), 9, RECOVERING)
    assert offline_election(candidates(set(), unclean=True)) is None


def test_a_clean_election_does_not_end_a_recovery() -> None:
    elected = offline_election(candidates({2}, recovery=RECOVERING))
    assert elected is not None
    assert elected.recovery_state == RECOVERING


def test_unclean_is_the_last_resort() -> None:
    elected = offline_election(candidates({3, 1}, isr=(3,), unclean=True))
    assert elected == Leadership(3, 6, (3,), 9)


def test_preferred_election_takes_the_first_replica_or_none() -> None:
    assert preferred_election(candidates({1, 2}, leader=2)) == Leadership(1, 6, (1, 2, 3), 9)
    assert preferred_election(candidates({2})) is None
    assert preferred_election(candidates({1, 2}, isr=(2,))) is None


def test_reassignment_takes_the_first_target_in_sync() -> None:
    assert reassignment_election(candidates({1, 3, 4}, targets=(4, 3))) == Leadership(
        3, 6, (3,), 9
    ), "those that leave are not in sync any more"
    assert reassignment_election(candidates({1}, targets=(4, 3))) is None


def test_a_broker_that_leaves_in_good_order_leaves_the_isr_too() -> None:
    assert shutdown_election(candidates({1, 2, 3}, shutting_down=(1,))) == Leadership(
        2, 6, (2, 3), 9
    )
    assert shutdown_election(candidates({1}, shutting_down=(1,), isr=(1,))) is None


def test_a_replica_goes_offline() -> None:
    current = Leadership(1, 5, (1, 2), 2)
    assert without_replica(current, 2, 9) == Leadership(1, 6, (1,), 9)
    assert without_replica(current, 1, 9) == Leadership(-1, 6, (2,), 9)
    assert without_replica(current, 3, 9) is None
    assert without_replica(Leadership(1, 5, (1,), 2), 1, 9) == Leadership(-1, 6, (1,), 9)
