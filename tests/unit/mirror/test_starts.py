"""Where a mirror begins to read, and whether it may go on at the target."""

from __future__ import annotations

import pytest

from pyrklog.mirror.cluster import Logs
from pyrklog.mirror.run import starts
from pyrklog.mirror.state import Progress
from pyrklog.mirror.target_logs import lost_at_target

KNOWN = {("old", 0): Progress("east.old", position=7, epoch=2, target_end=7, target_id="B")}


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_the_option_is_of_new_topics(start: str) -> None:
    found = starts({"old": [0, 1], "new": [0, 1]}, KNOWN, start, ())
    assert found == {"old": {0: (7, 2), 1: "earliest"}, "new": {0: start, 1: start}}


def test_a_topic_that_is_copied_again_or_came_later_is_copied_whole() -> None:
    found = starts({"new": [0], "later": [0]}, KNOWN, "latest", {"new", "later"})
    assert found == {"new": {0: "earliest"}, "later": {0: "earliest"}}


def test_partitions_that_are_left_out_get_no_place() -> None:
    assert starts({"old": [1]}, KNOWN, "latest", ()) == {"old": {1: "earliest"}}


@pytest.mark.parametrize(
    ("logs", "told"),
    [
        (Logs({}, {("east.old", 0): 7}, {"east.old": "B"}), None),
        (Logs({}, {("east.old", 0): 9}, {}), None),
        # It has no leader, or is not copied any more.
        (Logs({}, {}, {}), None),
        (Logs({}, {("east.old", 0): 6}, {"east.old": "B"}), "ends at 6 at the target, before 7"),
        (
            Logs({}, {("east.old", 0): 9}, {"east.old": "C"}),
            "deleted at the target and created anew",
        ),
    ],
)
def test_what_was_lost_at_the_target_is_noticed(logs: Logs, told: str | None) -> None:
    found = lost_at_target(KNOWN, logs)
    assert (found is None) == (told is None)
    if found is not None:
        assert told is not None
        assert told in found.what
        assert found.fix is not None
        assert found.fix.startswith("--again old ")


def test_a_copy_that_keeps_offsets_is_made_anew_in_a_topic_that_is_deleted_first() -> None:
    anew = Logs({}, {("east.old", 0): 9}, {"east.old": "C"})
    found = lost_at_target(KNOWN, anew, recopies=True)
    assert found is not None
    assert found.fix == (
        "delete topic east.old at the target; --again old then copies it from its beginning"
    )


def test_a_target_whose_id_was_not_known_is_taken() -> None:
    known = {("t", 0): Progress("east.t", 1, 0, 1)}
    assert lost_at_target(known, Logs({}, {("east.t", 0): 1}, {"east.t": "B"})) is None
