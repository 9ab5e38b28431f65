"""Where a mirror that keeps offsets goes on, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pyrklog.mirror import Cluster, MirrorError, keeping
from pyrklog.mirror.cluster import Logs
from pyrklog.mirror.keeping import Keeping, Resumed, resumed, why_not_begun
from pyrklog.mirror.state import Progress
from pyrklog.mirror.tails import Found, Record, Tail, first_foreign
from pyrklog.mirror.topics import Plan
from pyrklog.scanning import LeftOut
from tests.unit.mirror.test_copy import NAMES
from tests.unit.mirror.test_kept_copy import World

COPIED = Progress("east.t", 50, 4, 45, target_begin=10, begin=10)
"""Up to a record at 44; behind it are only markers up to 50."""


@pytest.mark.parametrize(
    ("end", "position", "epoch", "tail_begin"),
    [
        (45, 50, 4, None),
        (44, 44, -1, None),
        (12, 12, -1, None),
        (0, 10, -1, None),
        (46, 50, -1, 45),
        (60, 60, -1, 45),
    ],
)
def test_progress_is_the_end_of_the_targets_log(
    end: int, position: int, epoch: int, tail_begin: int | None
) -> None:
    found = COPIED._replace(position=position, epoch=epoch, target_end=end)
    assert resumed(COPIED, end) == Resumed(found, tail_begin)


@pytest.mark.parametrize(
    ("start", "end", "position", "why"),
    [
        (0, 0, 0, ""),
        (0, 0, 70, ""),
        (70, 70, 70, ""),
        (0, 3, 70, "has records already, at offsets 0 to 2"),
        (5, 6, 0, "has records already, at offsets 5 to 5"),
        (71, 71, 70, "ends at 71, behind where the copy begins (70)"),
    ],
)
def test_a_copy_begins_in_an_empty_log(start: int, end: int, position: int, why: str) -> None:
    found = why_not_begun(start, end, position)
    assert found.startswith(why)
    assert bool(found) == bool(why)


def at(offset: int, content: bytes = b"same", key: bytes | None = None) -> Record:
    return Record(offset, key or b"k%d" % offset, content)


def found(
    here: Sequence[int | Record],
    there: Sequence[int | Record],
    *,
    end: int = 100,
    is_compacted: bool = False,
) -> int | None:
    def rows(some: Sequence[int | Record]) -> Iterator[Record]:
        return (at(one) if isinstance(one, int) else one for one in some)

    return first_foreign(rows(here), rows(there), end, is_compacted=is_compacted)


def test_the_first_record_that_is_no_copy_is_found() -> None:
    assert found([], []) is None
    assert found([1, 2, 7], [1, 2, 7]) is None
    assert found([1, 2, 7], [1, at(2, b"other"), 7]) == 2
    assert found([1, 7], [1, 2, 7]) == 2
    assert found([1, 2, 7], [1, 7]) == 2, "one is missing: another lies in its place"
    assert found([], [5]) == 5
    assert found([1], [1, 5, 6]) == 5


def test_compaction_may_have_taken_records_of_either_side() -> None:
    assert found([1, 7], [1, 2, 7], is_compacted=True) is None
    assert found([1, 2], [1, at(2, b"other")], is_compacted=True) == 2
    # The source never had these.
    assert found([1, 2], [1, 2, 40], end=40, is_compacted=True) == 40
    # The target keeps the last record of a key.
    again = at(7, key=b"k2")
    assert found([1, 2, again], [1, again], is_compacted=True) is None
    assert found([1, 2, 7], [1, 7], is_compacted=True) == 2
    assert found([1, 2, 3], [1, 3, 4], end=4, is_compacted=True) == 2


def test_the_source_is_read_from_where_it_was_with_its_epoch() -> None:
    tail = Tail("t", 0, "east.t", 45, 60, 60, is_compacted=False, place=(50, 4))
    assert tail.source_begin() == (50, 4)
    assert tail._replace(begin=51).source_begin() == (51, -1), "deleted meanwhile"
    assert tail._replace(place=(-1, -1)).source_begin() == (45, -1)


class Admin:
    """A cluster with one topic ``t``, or its copy."""

    def __init__(self, alias: str, starts: dict[int, int], ends: dict[int, int]) -> None:
        self.cluster = Cluster(alias, "h:1")
        self.topic = "t" if alias == "east" else "east.t"
        self._starts, self._ends = starts, ends
        self.left_out: list[LeftOut] = []

    def logs(self, wanted: dict[str, list[int]], _isolation: str = "", **_how: bool) -> Logs:
        numbers = wanted.get(self.topic, [])
        return Logs(
            {(self.topic, one): self._starts[one] for one in numbers if one in self._starts},
            {(self.topic, one): self._ends[one] for one in numbers if one in self._ends},
            {self.topic: "id"},
            self.left_out,
        )

    def options(self, topics: Sequence[str]) -> dict[str, dict[str, tuple[str, bool]]]:
        return {topic: {"cleanup.policy": ("delete", False)} for topic in topics}


class Session:
    """With the logs of both sides, of a mirror that has copied up to ``known``."""

    def __init__(
        self,
        source: tuple[dict[int, int], dict[int, int]],
        target: tuple[dict[int, int], dict[int, int]],
        known: dict[int, Progress] | None = None,
    ) -> None:
        self.source, self.target = Admin("east", *source), Admin("west", *target)
        self.notes: list[str] = []
        both: tuple[Any, Any] = (self.source, self.target)
        self.keeping = Keeping(NAMES, *both, self.notes.append, is_whole=False)
        self.world = World({})
        self.copier = self.world.copier
        self.keeping._copier = self.copier
        self.copier.progress.update({("t", one): found for one, found in (known or {}).items()})

    def adopt(self, *, at_end: Sequence[str] = ()) -> Sequence[LeftOut]:
        numbers = sorted(self.target.logs({"east.t": [0, 1, 2]}).ends)
        logs = self.target.logs({"east.t": [number for _, number in numbers]})
        self.copier.add_target(logs.ends, logs.topic_ids)
        return self.keeping.adopt(Plan({"t": 3}), logs, at_end, [])


def test_new_partitions_are_noted_before_anything_is_written() -> None:
    session = Session(({0: 70, 1: 0}, {0: 90, 1: 5}), ({0: 0, 1: 0}, {0: 0, 1: 0}))
    assert session.adopt() == []
    noted = session.world.noted.progress()
    assert {key: (one.begin, one.position) for key, one in noted.items()} == {
        ("t", 0): (70, 70),
        ("t", 1): (0, 0),
    }
    assert session.copier.copyable({"t": [0, 1, 2]}) == {"t": [0, 1]}, "2 has no leader"


def test_topics_may_begin_at_their_ends() -> None:
    session = Session(({0: 70}, {0: 90}), ({0: 0}, {0: 0}))
    session.adopt(at_end=["t"])
    assert session.world.noted.progress()["t", 0].begin == 90


def test_a_topic_with_records_is_refused_and_nothing_noted() -> None:
    session = Session(({0: 0, 1: 0}, {0: 9, 1: 9}), ({0: 0, 1: 0}, {0: 0, 1: 3}))
    with pytest.raises(MirrorError) as refused:
        session.adopt()
    assert refused.value.what == (
        "partition 1 of topic east.t at west has records already, at offsets 0 to 2: a copy that "
        "keeps offsets begins in an empty topic"
    )
    assert session.world.noted.progress() == {}


@pytest.mark.parametrize("again", [(), ("t",)])
def test_what_cannot_begin_is_refused_before_a_session_has_anything(again: Sequence[str]) -> None:
    session = Session(({0: 0, 1: 0}, {0: 9, 1: 9}), ({0: 0, 1: 0}, {0: 0, 1: 3}))
    session.keeping._copier = None
    logs = session.target.logs({"east.t": [0, 1]})
    without = Plan({"t": 3}, offline=frozenset({("t", 1)}))
    assert session.keeping.refuse_filled(without, logs, (), again) == []
    with pytest.raises(MirrorError, match=r"partition 1 of topic east\.t at west has") as refused:
        session.keeping.refuse_filled(Plan({"t": 3}), logs, (), again)
    assert refused.value.fix == (
        "delete topic east.t at the target; --again t then copies it from its beginning; without "
        "--again the copy goes on where it is"
        if again
        else "delete topic east.t there, so that the mirror creates it; or leave t out with "
        "--topics"
    )


def test_where_a_copy_begins_counts_for_what_it_begins_in() -> None:
    """At its end the source is behind where the target's empty log is."""
    session = Session(({0: 4}, {0: 9}), ({0: 7}, {0: 7}))
    logs = session.target.logs({"east.t": [0]})
    session.keeping.refuse_filled(Plan({"t": 1}), logs, ["t"], ())
    with pytest.raises(MirrorError, match=r"ends at 7, behind where the copy begins \(4\)"):
        session.keeping.refuse_filled(Plan({"t": 1}), logs, (), ())


def test_a_source_made_anew_is_told_as_that() -> None:
    known = {0: Progress("east.t", 50, 4, 45, topic_id="former")}
    session = Session(({0: 0, 1: 0}, {0: 2, 1: 2}), ({0: 0, 1: 0}, {0: 45, 1: 0}), known)
    with pytest.raises(MirrorError, match="t was deleted and created anew at east") as refused:
        session.adopt()
    assert (refused.value.fix or "").startswith("delete topic east.t at the target; --again t")
    assert session.world.noted.progress() == {}


def test_a_target_that_lost_records_gets_them_again() -> None:
    known = {0: Progress("east.t", 50, 4, 45)}
    session = Session(({0: 0}, {0: 60}), ({0: 0}, {0: 20}), known)
    session.adopt()
    one = session.copier.progress["t", 0]
    assert (one.position, one.epoch, one.target_end) == (20, -1, 20)
    assert session.notes == [
        "partition 0 of topic east.t ends at 20 at the target, before 45: what was lost there is "
        "copied again, to the same offsets"
    ]
    at_target = Logs({}, {("east.t", 0): 19}, {})
    assert session.keeping.lacks(at_target)
    assert not session.keeping.lacks(Logs({}, {("east.t", 0): 20}, {}))


@pytest.mark.parametrize("foreign", [None, 47])
def test_what_is_not_noted_is_compared(
    monkeypatch: pytest.MonkeyPatch, foreign: int | None
) -> None:
    asked: list[Tail] = []

    def compare(_source: object, _target: object, tail: Tail) -> Found:
        asked.append(tail)
        return Found(foreign, 6)

    monkeypatch.setattr(keeping, "compare", compare)
    known = {0: Progress("east.t", 50, 4, 45)}
    session = Session(({0: 3}, {0: 60}), ({0: 8}, {0: 55}), known)
    if foreign is not None:
        with pytest.raises(MirrorError) as refused:
            session.adopt()
        assert "offset 47 of partition 0 of topic east.t at west is no copy" in refused.value.what
        assert "--again t" in (refused.value.fix or "")
        return
    session.adopt()
    assert asked == [Tail("t", 0, "east.t", 45, 55, 60, is_compacted=False, place=(50, 4))]
    one = session.copier.progress["t", 0]
    assert (one.position, one.epoch, one.target_end) == (55, 6, 55)


def test_partitions_of_the_source_that_do_not_answer_wait() -> None:
    session = Session(({0: 0}, {0: 9}), ({0: 0, 1: 0}, {0: 0, 1: 0}))
    session.source.left_out = [LeftOut("t", 1, "no answer")]
    assert session.adopt() == [LeftOut("t", 1, "no answer")]
    assert session.copier.copyable({"t": [0, 1]}) == {"t": [0]}
    session.source._starts[1], session.source._ends[1], session.source.left_out = 0, 4, []
    session.adopt()
    assert session.copier.copyable({"t": [0, 1]}) == {"t": [0, 1]}
