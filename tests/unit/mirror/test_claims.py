"""No two mirrors copy the same topic to the same topic."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from pyrklog.mirror import MirrorError, Names, Policy
from pyrklog.mirror.claims import new_claims, without_doubles
from pyrklog.mirror.errors import AwayError
from pyrklog.mirror.others import Others
from pyrklog.mirror.state import (
    Origin,
    Progress,
    Row,
    claim_row,
    origin_row,
    progress_row,
    read_state,
)
from pyrklog.mirror.topics import Look

NAMES = Names("east", "west", Policy.PREFIX, "first")
OTHER = "pyrklog-mirror.second.state.internal"
LOOK = Look("A", "B", {"t": 1, "u": 2}, {})


class Target:
    """With the topic of progress of another mirror."""

    def __init__(self, *rows: Row, source_id: str = "A") -> None:
        origin = origin_row(OTHER, Origin(source_id, "B", "identity"))
        self.is_blind = False
        self.rows = [(row.key, row.value) for row in (origin, *rows)]

    def leaderless(self) -> set[tuple[str, int]]:
        return set()

    def topics(self) -> tuple[str, dict[str, int]]:
        return "B", {OTHER: 1, NAMES.state_topic: 1}

    def records(self, topic: str, *, exists: bool = False, **_how: float) -> Any:
        assert topic == OTHER
        if self.is_blind and exists:
            raise AwayError(f"a broker does not know topic {topic}")
        return [] if self.is_blind else self.rows


def left(target: Target, begun: Collection[str] = ()) -> Look:
    return without_doubles(NAMES, target, LOOK, begun, Others(target, "west", list[str]().append))


def progress(target: str) -> Row:
    return progress_row(OTHER, ("t", 0), Progress(target, 5, 0, 5))


@pytest.mark.parametrize("row", [progress("east.t"), claim_row(OTHER, "t", "east.t")])
def test_a_topic_that_another_mirror_copies_or_will_copy_is_refused(row: Row) -> None:
    with pytest.raises(MirrorError, match=r"topic t is copied to east\.t by another") as refused:
        left(Target(row))
    assert OTHER in str(refused.value)
    assert left(Target(row), {"t"}) == LOOK


@pytest.mark.parametrize(
    "target",
    [
        Target(),
        Target(progress("t"), claim_row(OTHER, "u", "u")),
        Target(progress("east.t"), source_id="C"),
        Target(claim_row(OTHER, "t", "east.t"), claim_row(OTHER, "t", None)),
    ],
)
def test_what_another_mirror_copies_elsewhere_or_from_elsewhere_is_none(target: Target) -> None:
    assert left(target) == LOOK


def test_claims_are_written_once() -> None:
    assert new_claims(NAMES, LOOK, {}) == {"t": "east.t", "u": "east.u"}
    assert new_claims(NAMES, LOOK, {"t": "east.t"}) == {"u": "east.u"}
    row = claim_row("s", "t", "east.t")
    assert read_state("s", [(row.key, row.value)]).claims == {"t": "east.t"}


def test_a_broker_that_does_not_know_a_topic_of_progress_yet_hides_no_mirror() -> None:
    """Topics that were looked at once are not looked at again."""
    target = Target(progress("east.t"))
    target.is_blind = True
    with pytest.raises(AwayError, match="does not know topic"):
        left(target)
