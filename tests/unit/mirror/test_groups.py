"""Offsets of groups: translated, written once, and never moved backwards."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import TopicPartition

from pyrklog.mirror import MirrorError, Names, Patterns, Policy
from pyrklog.mirror.checkpoints import Checkpoint
from pyrklog.mirror.errors import AwayError
from pyrklog.mirror.groups import Groups
from pyrklog.mirror.spans import Span, Spans
from pyrklog.mirror.state import Row

NAMES = Names("east", "west", Policy.PREFIX, "east")


class Fake:
    """A cluster's groups: offsets, and who has members."""

    def __init__(self, offsets: dict[str, dict[tuple[str, int], int]]) -> None:
        self.offsets = offsets
        self.busy: set[str] = set()
        self.refuses: MirrorError | None = None

    def groups(self) -> list[str]:
        return list(self.offsets)

    def committed(self, groups: Sequence[str]) -> dict[str, dict[tuple[str, int], TopicPartition]]:
        return {
            group: {key: TopicPartition(*key, at) for key, at in self.offsets[group].items()}
            for group in groups
            if group in self.offsets
        }

    def without_members(self, groups: Sequence[str]) -> list[str]:
        return [group for group in groups if group not in self.busy]

    def commit(self, group: str, offsets: Sequence[TopicPartition]) -> None:
        if self.refuses is not None:
            raise self.refuses
        for one in offsets:
            self.offsets.setdefault(group, {})[one.topic, one.partition] = one.offset


def spans(*some: Span) -> Spans:
    found = Spans()
    found.add(some)
    return found


KNOWN = {("t", 0): spans(Span(0, 100, 10)), ("t", 1): spans(Span(5, 0, 5))}


def synced(
    source: Fake, target: Fake, notes: list[str], pattern: str = ".*"
) -> tuple[Groups, list[Row]]:
    rows: list[Row] = []
    groups = Groups(NAMES, Patterns([pattern], "--groups"), source, target, notes.append)
    groups.sync(KNOWN, rows.extend)
    return groups, rows


def test_offsets_are_translated_where_that_is_known() -> None:
    source = Fake({"g": {("t", 0): 4, ("t", 1): 3, ("other", 0): 9}})
    target = Fake({})
    _, rows = synced(source, target, [])
    one = Checkpoint("g", "east.t", 0, 4, 104)
    assert rows == [Row("east.checkpoints.internal", one.key(), one.value())]
    assert target.offsets == {"g": {("east.t", 0): 104}}


def test_groups_are_chosen() -> None:
    source, target = Fake({"g": {("t", 0): 4}, "h": {("t", 0): 4}}), Fake({})
    synced(source, target, [], "h")
    assert target.offsets.keys() == {"h"}


def test_a_checkpoint_is_written_when_it_changed() -> None:
    source, target = Fake({"g": {("t", 0): 4}}), Fake({})
    groups, _ = synced(source, target, [])
    rows: list[Row] = []
    groups.sync(KNOWN, rows.extend)
    assert rows == []
    source.offsets["g"]["t", 0] = 10
    groups.sync(KNOWN, rows.extend)
    assert [row.value for row in rows] == [Checkpoint("g", "east.t", 0, 10, 111).value()]
    assert target.offsets["g"]["east.t", 0] == 111


def test_a_group_is_not_moved_back() -> None:
    target = Fake({"g": {("east.t", 0): 106}})
    synced(Fake({"g": {("t", 0): 4}}), target, [])
    assert target.offsets["g"]["east.t", 0] == 106


def test_a_group_with_members_is_left_alone() -> None:
    target = Fake({})
    target.busy = {"g"}
    _, rows = synced(Fake({"g": {("t", 0): 4}}), target, [])
    assert len(rows) == 1
    assert target.offsets == {}


def test_a_refused_commit_is_told_and_the_next_try_succeeds() -> None:
    source, target, notes = Fake({"g": {("t", 0): 4}}), Fake({}), list[str]()
    target.refuses = MirrorError("a member has joined")
    groups, _ = synced(source, target, notes)
    assert notes == ["a member has joined"]
    target.refuses = None
    groups.sync(KNOWN, list[Row]().extend)
    assert target.offsets["g"]["east.t", 0] == 104


def test_a_cluster_that_is_away_ends_the_round() -> None:
    target = Fake({})
    target.refuses = AwayError("away")
    try:
        synced(Fake({"g": {("t", 0): 4}}), target, [])
    except AwayError:
        return
    raise AssertionError("not told")
