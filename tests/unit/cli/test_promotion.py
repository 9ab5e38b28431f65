"""When new replicas may become whole early: the reasons against it."""

import pytest

from pyrklog.cli.expansion import BACK_FILL, Backlog
from pyrklog.cli.promotion import Commits, Promotion, Reader, _reader, objections, wanted
from pyrklog.protocol.errors import ErrorCode

KEY = ("t", 0)
ONE = Promotion(KEY, 100, 500)
CALM = [Reader(1, 500, 600_000), Reader(2, 2**63 - 1, 600_000)]
DELETE = {"delete"}


def test_all_partial_replicas_become_whole() -> None:
    lacks = {
        KEY: [
            Backlog(4, 500, 100, BACK_FILL),
            Backlog(5, 700, 100, BACK_FILL),
            Backlog(6, 100, 100, BACK_FILL),
        ],
        ("t", 1): [Backlog(4, 100, 100, BACK_FILL)],
        ("t", 2): [Backlog(4, None, 100, BACK_FILL)],
    }
    (found,) = wanted(lacks)
    assert found == Promotion(KEY, 100, 700)
    assert found.records == 600


def test_nothing_is_in_the_way() -> None:
    groups = {"live": Commits(False, {KEY: 500}), "other": Commits(False, {("t", 1): 0})}
    assert objections(ONE, DELETE, groups, CALM) == []


@pytest.mark.parametrize("policy", [{"compact"}, {"compact", "delete"}, None])
def test_only_topics_that_are_deleted_from_are_promoted(policy: set[str] | None) -> None:
    (why,) = objections(ONE, policy, {}, CALM)
    assert "cleanup.policy" in why


def test_a_group_that_is_behind_holds_it_up_alive_or_dead() -> None:
    groups = {"billing": Commits(False, {KEY: 120}), "old": Commits(True, {KEY: 499})}
    assert objections(ONE, DELETE, groups, CALM) == [
        "group billing has committed 120, 380 below 500",
        "group old has committed 499, 1 below 500; nobody is in it: --without-group old passes "
        "over it",
    ]


def test_only_a_group_without_members_is_passed_over() -> None:
    groups = {"billing": Commits(False, {KEY: 120}), "old": Commits(True, {KEY: 0})}
    (why,) = objections(ONE, DELETE, groups, CALM, ("old", "billing"))
    assert why.startswith("group billing")


def test_a_consumer_that_reads_what_would_go_holds_it_up() -> None:
    """It may be in no group, or commit nothing."""
    (why,) = objections(ONE, DELETE, {}, [*CALM, Reader(3, 101, 60_000)])
    assert why == (
        "a consumer has fetched 101 from broker 3 within the last 60 s, 399 below 500; it counts "
        "for 60 s at most, if none fetches there again"
    )


def test_how_long_is_left_of_a_window_that_nobody_has_looked_at() -> None:
    told = _reader(3, (ErrorCode.OFFSET_NOT_AVAILABLE, -1), 600_000)
    assert told.lowest is None
    assert told.why == "has not looked at consumers for 600 s yet; that takes 600 s more at most"


def test_what_is_not_known_holds_it_up() -> None:
    (why,) = objections(ONE, DELETE, {}, [*CALM, Reader(3, None, 0, "does not tell")])
    assert why == "broker 3 does not tell"
