"""Leaders that do not answer hold up no others."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from pyrklog.mirror.silent import CALM_S, LOOK_MAX_S, LOOK_S, Partitions, Silent
from pyrklog.mirror.state import Partition
from pyrklog.scanning import LeaderNotAvailableError, LeftOut

ALL: Partitions = {"t": [0, 1, 2], "u": [0]}


class Cluster:
    """Answers looks when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.silent: set[Partition] = set()
        self.fails = False
        self.asked: list[dict[str, list[int]]] = []
        self.notes: list[str] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.found = Silent("source", self.ask, self.notes.append, clock=lambda: self.now)

    def ask(self, partitions: Partitions) -> Iterable[Partition]:
        self.asked.append({topic: list(some) for topic, some in partitions.items()})
        assert self.may_answer.wait(10)
        if self.fails:
            raise LeaderNotAvailableError("away")
        return self.silent

    def lose(self, *partitions: Partition) -> None:
        self.silent |= set(partitions)
        self.found.add([LeftOut(*one, "no answer") for one in partitions])

    def look(self) -> bool:
        """With the answer of the look that it starts."""
        before = threading.active_count()
        if self.found.look(ALL):
            return True
        for thread in threading.enumerate():
            if thread.name == "mirror-look" and self.may_answer.is_set():
                thread.join(10)
        assert threading.active_count() <= before
        return self.found.look(ALL)


def test_they_are_left_out_until_they_answer_a_look() -> None:
    cluster = Cluster()
    cluster.lose(("t", 1), ("u", 0))
    assert cluster.found.without(ALL) == {"t": [0, 2], "u": []}
    assert not cluster.look()
    assert cluster.asked == []
    cluster.now = LOOK_S
    assert not cluster.look()
    assert cluster.asked == [{"t": [1], "u": [0]}]
    cluster.silent.remove(("t", 1))
    cluster.now += LOOK_S
    assert cluster.look()
    assert cluster.found.without(ALL) == {"t": [0, 1, 2], "u": []}
    assert cluster.notes == [
        "partition 1 of topic t and 1 others at the source: no leader that answers (no answer); "
        "the mirror goes on without it",
        "partition 1 of topic t at the source: there is an answer again",
    ]


def test_a_look_holds_nobody_up_and_there_is_one_at_a_time() -> None:
    cluster = Cluster()
    cluster.lose(("t", 1))
    cluster.may_answer.clear()
    for step in range(1, 5):
        cluster.now = step * LOOK_S
        assert not cluster.found.look(ALL)
    assert len(cluster.asked) == 1
    cluster.silent.clear()
    cluster.may_answer.set()
    assert cluster.look()


def test_a_look_that_fails_changes_nothing() -> None:
    cluster = Cluster()
    cluster.lose(("t", 1))
    cluster.fails = True
    cluster.now = LOOK_S
    assert not cluster.look()
    assert cluster.found.without(ALL) == {"t": [0, 2], "u": [0]}


def test_those_that_answer_looks_alone_are_taken_less_and_less_often() -> None:
    cluster = Cluster()
    waits: list[float] = []
    for _ in range(9):
        cluster.lose(("t", 1))
        begun = cluster.now
        cluster.silent.clear()
        while not cluster.look():
            cluster.now += LOOK_S
        waits.append(cluster.now - begun)
    assert waits[:4] == [LOOK_S, 2 * LOOK_S, 4 * LOOK_S, 8 * LOOK_S]
    assert waits[-1] == LOOK_MAX_S
    cluster.now += CALM_S + 1
    cluster.lose(("t", 1))
    cluster.silent.clear()
    cluster.now += LOOK_S
    assert cluster.look()


def test_nothing_is_kept_of_topics_that_are_not_mirrored_any_more() -> None:
    cluster = Cluster()
    cluster.lose(("t", 1), ("gone", 0))
    assert not cluster.look()
    assert cluster.found._silent == {("t", 1)}
