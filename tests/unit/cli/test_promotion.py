"""When new replicas may become whole early: the reasons against it."""

from collections.abc import Mapping
from typing import Any

import pytest

from pyrklog.cli import promotion
from pyrklog.cli.expansion import BACK_FILL, Backlog
from pyrklog.cli.group_witness import OFFSETS_TOPIC
from pyrklog.cli.promotion import (
    Commits,
    Findings,
    Promotion,
    Reader,
    _reader,
    objections,
    wanted,
)
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.list_offsets import (
    EARLIEST,
    LIST_OFFSETS,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.unit.cli.reassigning import NO_CONNECTION, FakeAdmin

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


class Coordinators(FakeAdmin):
    """``looks``: the leader of partition 1 of ``__consumer_offsets`` at each look, with its epoch,
    or the error that it answers. Partition 0 is led by broker 1 in epoch 7."""

    def __init__(self, *looks: tuple[int, int | ErrorCode]) -> None:
        super().__init__({KEY: (1, 2)})
        self.looks = list(looks)

    def leaders(self) -> dict[tuple[str, int], int]:
        return {KEY: 1, (OFFSETS_TOPIC, 0): 1, (OFFSETS_TOPIC, 1): self.looks[0][0]}

    def ask_each(self, api: Any, version: int, requests: Mapping[int, Any]) -> dict[int, Any]:
        assert api is LIST_OFFSETS
        assert version >= 4
        leader, told = self.looks.pop(0)
        found = {}
        for broker in requests.keys() & set(self.brokers):
            answers = []
            for topic in requests[broker].topics:
                for one in topic.partitions:
                    epoch = told if one.partition_index == 1 else 7
                    if one.timestamp == EARLIEST:
                        epoch = 0  # of the first record
                    is_error = isinstance(epoch, ErrorCode)
                    answers.append(
                        ListOffsetsPartitionResponse(
                            one.partition_index,
                            epoch if is_error else 0,
                            leader_epoch=-1 if is_error else epoch,
                        )
                    )
            topics = [ListOffsetsTopicResponse(OFFSETS_TOPIC, answers)]
            found[broker] = ListOffsetsResponse(topics=topics)
        assert leader in found or leader not in self.brokers
        return found


@pytest.mark.parametrize(
    ("looks", "why"),
    [
        ([(2, 3), (2, 3)], None),
        ([(-1, 0), (-1, 0)], "has no leader"),
        ([(-1, 0), (2, 3)], "has no leader"),
        ([(2, 3), (-1, 0)], "has no leader"),
        ([(2, ErrorCode.NOT_LEADER_OR_FOLLOWER), (2, 3)], "is not confirmed by its leader 2"),
        ([(9, 3), (9, 3)], "is not confirmed by its leader 9"),
        ([(2, 3), (1, 4)], "has got another leader meanwhile"),
        ([(2, 3), (2, 5)], "has got another leader meanwhile"),
    ],
)
def test_groups_that_nobody_tells_of_hold_it_up(
    monkeypatch: pytest.MonkeyPatch, looks: list[tuple[int, int | ErrorCode]], why: str | None
) -> None:
    """Those of a partition of ``__consumer_offsets`` without a leader are in no list."""
    monkeypatch.setattr(promotion, "_readers", lambda *_: {KEY: CALM})
    monkeypatch.setattr(promotion, "policies", lambda *_: {"t": DELETE})
    monkeypatch.setattr(promotion, "list_groups", lambda _: [])
    told = Findings(NO_CONNECTION, Coordinators(*looks), [KEY]).objections(ONE, ())
    expected = f"not all groups are known: partition 1 of {OFFSETS_TOPIC} {why}"
    assert told == ([] if why is None else [expected])
