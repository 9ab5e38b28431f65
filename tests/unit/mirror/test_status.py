"""What ``pyrklog mirror status`` says of a partition."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pyrklog.mirror import Cluster, MirrorError
from pyrklog.mirror.cluster import Logs
from pyrklog.mirror.names import Names, Policy
from pyrklog.mirror.state import Progress
from pyrklog.mirror.status import Standing, rows, stored
from pyrklog.scanning import UnknownTopicError

POSITION = 5
KNOWN = {
    (topic, number): Progress(topic, POSITION, 0, 5, topic_id="old")
    for topic, count in {"t": 2, "gone": 1, "anew": 1, "fewer": 2, "led": 2}.items()
    for number in range(count)
}


class Source:
    """Ends of each partition; ``deleted`` topics are gone when their logs are asked for."""

    def __init__(self, *deleted: str) -> None:
        self.cluster = Cluster("east", "h:1")
        self.counts = {"t": 2, "anew": 1, "fewer": 1, "led": 2}
        self.deleted = list(deleted)

    def topics(self) -> tuple[str, dict[str, int]]:
        return "A", dict(self.counts)

    def leaderless(self) -> set[tuple[str, int]]:
        return {("led", 1)}

    def logs(self, wanted: dict[str, list[int]], _isolation: str) -> Logs:
        if self.deleted:
            self.counts.pop(self.deleted[0], None)
            raise UnknownTopicError(f"there is no topic {self.deleted.pop(0)}")
        ends = {
            (topic, number): POSITION + number for topic, some in wanted.items() for number in some
        }
        ids = dict.fromkeys(wanted, "old") | {"anew": "new"}
        return Logs({}, ends, ids)


class Target:
    """Has no progress of the mirror that is asked for."""

    def __init__(self, *topics: str) -> None:
        self.cluster = Cluster("west", "h:2")
        self.counts = dict.fromkeys(topics, 1)

    def topics(self) -> tuple[str, dict[str, int]]:
        return "B", self.counts

    def records(self, _topic: str) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("there", "told"),
    [
        (("pyrklog-mirror.east.state.internal", "t"), "had, which is one of east$"),
        (("t",), "had$"),
    ],
)
def test_mirrors_that_a_target_knows_are_named(there: tuple[str, ...], told: str) -> None:
    target: Any = Target(*there)
    names = Names("source", "west", Policy.PREFIX, "source")
    with pytest.raises(MirrorError, match=r"west \(h:2\) knows no mirror source") as caught:
        stored(names, target)
    assert re.search(told, caught.value.fix or "")


def found(source: Any) -> dict[tuple[str, int], tuple[str, int | None]]:
    return {
        (one.topic, one.partition): (one.standing.value, one.lag) for one in rows(source, KNOWN)
    }


def test_each_partition_has_a_state() -> None:
    assert found(Source()) == {
        ("t", 0): ("copied", 0),
        ("t", 1): ("behind", 1),
        ("gone", 0): ("gone", None),
        ("anew", 0): ("created anew", None),
        ("fewer", 0): ("copied", 0),
        ("fewer", 1): ("created anew", None),
        ("led", 0): ("copied", 0),
        ("led", 1): ("no leader", None),
    }


def test_a_topic_that_is_deleted_meanwhile_hides_no_other() -> None:
    told = found(Source("t"))
    assert told["t", 0] == (Standing.GONE.value, None)
    assert told["led", 0] == ("copied", 0)
    with pytest.raises(MirrorError, match="east: there is no topic led"):
        found(Source("t", "led"))
