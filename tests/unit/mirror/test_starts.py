"""Where a mirror begins to read."""

from __future__ import annotations

from typing import Any

import pytest

from pyrklog.mirror.copy import Pace
from pyrklog.mirror.names import Cluster, Names, Patterns, Policy
from pyrklog.mirror.run import Options, starts
from pyrklog.mirror.state import Progress

KNOWN = {("old", 0): Progress("east.old", position=7, epoch=2, target_end=7)}


def options(**given: Any) -> Options:
    east, west = Cluster("east", "h:1"), Cluster("west", "h:2")
    every, none = Patterns([".*"], "--topics"), Patterns([], "--groups")
    return Options(east, west, Names("east", "west", Policy.PREFIX, "east"), every, none, **given)


@pytest.mark.parametrize(("start", "new"), [("earliest", "earliest"), ("latest", "latest")])
def test_the_option_is_of_new_topics(start: str, new: str) -> None:
    found = starts({"old": 2, "new": 2}, KNOWN, options(start=start, pace=Pace()))
    assert found == {"old": {0: (7, 2), 1: "earliest"}, "new": {0: new, 1: new}}


def test_a_topic_is_copied_again_from_its_beginning() -> None:
    assert starts({"new": 1}, KNOWN, options(start="latest", again=["new"])) == {
        "new": {0: "earliest"}
    }
