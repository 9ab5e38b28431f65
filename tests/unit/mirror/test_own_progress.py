"""A mirror does not believe a broker that shows less of its progress than was committed."""

from __future__ import annotations

from typing import Any

import pytest

from pyrklog.mirror import Names, Policy
from pyrklog.mirror.copy import Copier, Pace
from pyrklog.mirror.errors import AwayError
from pyrklog.mirror.state import Origin, Progress, claim_row, origin_row, progress_row
from pyrklog.scanning import LeaderNotAvailableError
from tests.unit.mirror.test_copy import Target as Writer
from tests.unit.mirror.test_refusals import Cluster, between

NAMES = Names("east", "west", Policy.PREFIX, "m")
STATE = NAMES.state_topic
LATER = progress_row(STATE, ("t", 0), Progress("east.t", 30, 0, 30))


class CutOff(Cluster):
    """The broker ``a`` led the topic of progress before, and shows it to clients that ask it first.
    With ``fails`` it shows nothing."""

    def __init__(self, bootstrap: str, *, fails: bool = False) -> None:
        before = [
            origin_row(STATE, Origin("A", "B", "prefix")),
            claim_row(STATE, "t", "east.t"),
            progress_row(STATE, ("t", 0), Progress("east.t", 10, 0, 10)),
        ]
        super().__init__("B", {"east.t": 30}, [*before, LATER])
        self.bootstrap = bootstrap
        self.fails = fails
        self.asked: list[str] = []
        self.writer = Writer()

    def records(self, topic: str, since: object = None, **how: object) -> Any:
        assert (topic, since) == (STATE, None)
        servers = str(how.get("servers", self.bootstrap))
        self.asked.append(servers)
        if not servers.startswith("a:1"):
            written = [row[2:] for rows in self.writer.transactions for row in rows]
            return [*self.rows[STATE], *written]
        if self.fails:
            raise LeaderNotAvailableError("no leader of partition 0 answers")
        return self.rows[STATE][:-1]


def begun(monkeypatch: pytest.MonkeyPatch, target: CutOff) -> Copier:
    """A session at a target whose bootstrap servers are these."""
    one = between(monkeypatch, Cluster("A", {"t": 50}), target, keeps=False)
    monkeypatch.setattr(
        one._target, "cluster", one._target.cluster.__class__("west", target.bootstrap)
    )
    copier = Copier(NAMES, target.writer, {}, {}, Pace())
    one._begin(copier)
    return copier


@pytest.mark.parametrize("fails", [False, True])
def test_a_deposed_leaders_positions_are_not_gone_on_from(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """What was copied since it was cut off would be copied twice."""
    target = CutOff("a:1,b:1", fails=fails)
    copier = begun(monkeypatch, target)
    assert copier.progress["t", 0].position == 30
    assert target.asked == ["a:1,b:1", "b:1,a:1"]


def test_nothing_is_copied_while_nobody_shows_what_was_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyrklog.mirror.own_progress.SHOWN_WITHIN_S", 0.0, raising=False)
    target = CutOff("a:1")
    with pytest.raises(AwayError, match=f"not known, so nothing is copied: topic {STATE} at west"):
        begun(monkeypatch, target)
    assert target.writer.records() == [[]]


def test_each_session_writes_a_mark_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    target = CutOff("b:1")
    for _ in range(2):
        begun(monkeypatch, target)
    marks = [row for rows in target.writer.transactions for row in rows]
    assert [(topic, value) for topic, _, _, value in marks] == [(STATE, None)] * 2
    assert len({key for _, _, key, _ in marks}) == 2
