"""Offsets of groups: translated, written once, and never moved backwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicPartition

from pyrklog.mirror import Cluster, Kind, MirrorError, Names, Patterns, Policy
from pyrklog.mirror.checkpoints import Checkpoint
from pyrklog.mirror.cluster import ClusterAdmin
from pyrklog.mirror.errors import AwayError
from pyrklog.mirror.groups import Groups
from pyrklog.mirror.spans import Span, Spans
from pyrklog.mirror.state import Row

NAMES = Names("east", "west", Policy.PREFIX, "east")


class Fake:
    """A cluster's groups: offsets, and who has members."""

    def __init__(
        self, offsets: dict[str, dict[tuple[str, int], int]], metadata: str | None = None
    ) -> None:
        self.offsets = offsets
        self.metadata = metadata
        self.busy: set[str] = set()
        self.refuses: MirrorError | None = None

    def groups(self) -> list[str]:
        return list(self.offsets)

    def committed(
        self,
        groups: Sequence[str],
        partitions: Iterable[tuple[str, int]],
        note: Callable[[str], None] | None = None,
    ) -> dict[str, dict[tuple[str, int], TopicPartition]]:
        wanted = set(partitions)
        return {
            group: {
                key: TopicPartition(*key, at, self.metadata)
                if self.metadata is not None
                else TopicPartition(*key, at)
                for key, at in self.offsets.get(group, {}).items()
                if key in wanted
            }
            for group in groups
        }

    def without_members(
        self, groups: Sequence[str], note: Callable[[str], None] | None = None
    ) -> list[str]:
        return [group for group in groups if group not in self.busy]

    def commit(self, group: str, offsets: Sequence[TopicPartition]) -> None:
        if self.refuses is not None:
            raise self.refuses
        for one in offsets:
            self.offsets.setdefault(group, {})[one.topic, one.partition] = one.offset
            self.metadata = one.metadata


def spans(*some: Span) -> Spans:
    found = Spans()
    found.add(some)
    return found


KNOWN = {("t", 0): spans(Span(0, 100, 10)), ("t", 1): spans(Span(5, 0, 5))}


def groups_of(
    source: Fake,
    target: Fake,
    notes: list[str] | None = None,
    pattern: str = ".*",
    stored: Sequence[Row] = (),
) -> Groups:
    told = [(row.key, row.value) for row in stored]
    notes = [] if notes is None else notes
    wanted = Patterns([pattern], "--groups")
    return Groups(NAMES, wanted, source, target, notes.append, lambda: told)


def synced(
    source: Fake, target: Fake, notes: list[str], pattern: str = ".*"
) -> tuple[Groups, list[Row]]:
    rows: list[Row] = []
    groups = groups_of(source, target, notes, pattern)
    groups.sync(KNOWN, rows.extend)
    return groups, rows


def test_offsets_are_translated_where_that_is_known() -> None:
    source = Fake({"g": {("t", 0): 4, ("t", 1): 3, ("other", 0): 9}})
    target = Fake({})
    _, rows = synced(source, target, [])
    one = Checkpoint("g", "east.t", 0, 4, 104)
    assert rows == [Row("east.checkpoints.internal", one.key(), one.value())]
    assert target.offsets == {"g": {("east.t", 0): 104}}


@pytest.mark.parametrize(
    ("metadata", "told", "committed"),
    [("at 12 o'clock", "at 12 o'clock", "at 12 o'clock"), ("", "", None), (None, "", None)],
)
def test_the_note_of_a_commit_goes_with_it(
    metadata: str | None, told: str, committed: str | None
) -> None:
    """As MirrorMaker has it. An empty one is not given: librdkafka's binding would commit a zero
    byte."""
    source, target = Fake({"g": {("t", 0): 4}}, metadata), Fake({})
    _, rows = synced(source, target, [])
    assert [row.value for row in rows] == [Checkpoint("g", "east.t", 0, 4, 104, told).value()]
    assert target.metadata == committed


def test_groups_are_chosen() -> None:
    source, target = Fake({"g": {("t", 0): 4}, "h": {("t", 0): 4}}), Fake({})
    synced(source, target, [], "h")
    assert target.offsets.keys() == {"h"}


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_pattern_that_matches_no_group_is_told_once(is_whole: bool) -> None:
    source, notes = Fake({"billing": {("t", 0): 4}}), list[str]()
    wanted = Patterns(["biling", "x.*", "b.*"], "--groups")
    groups = Groups(NAMES, wanted, source, Fake({}), notes.append, tuple, is_whole=is_whole)
    for _ in range(2):
        groups.sync(KNOWN, list[Row]().extend)
    later = "" if is_whole else ", so far"
    assert notes == [
        f"no group of east matches --groups 'biling'{later}; did you mean billing?",
        f"no group of east matches --groups 'x.*'{later}",
    ]


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


ODD = KafkaError(KafkaError.INCONSISTENT_GROUP_PROTOCOL, "of another type")


class Described:
    """A client whose target describes groups; of one it does not."""

    def __init__(self, error: KafkaError) -> None:
        self._error = error
        self.committed: list[str] = []

    def describe_consumer_groups(self, groups: Sequence[str], **_how: float) -> dict[str, Any]:
        found = {}
        for group in groups:
            found[group] = Future[Any]()
            if group == "odd":
                found[group].set_exception(KafkaException(self._error))
            else:
                found[group].set_result(SimpleNamespace(state=ConsumerGroupState.EMPTY))
        return found

    def alter_consumer_group_offsets(self, wanted: Sequence[Any], **_how: float) -> dict[str, Any]:
        (one,) = wanted
        self.committed.append(one.group_id)
        done = Future[Any]()
        done.set_result(SimpleNamespace(topic_partitions=[]))
        return {one.group_id: done}


def target_with(monkeypatch: pytest.MonkeyPatch, admin: Described, failing: str = "") -> Any:
    """Offsets of the group ``failing`` are not told."""

    def asked(_settings: object, group: str, *_others: object) -> list[TopicPartition]:
        if group == failing:
            raise KafkaException(ODD)
        return []

    monkeypatch.setattr("pyrklog.mirror.cluster.committed_partitions", asked)
    target = ClusterAdmin(Cluster("west", "h:1"), 1)
    target.__dict__["_admin"] = admin
    return target


@pytest.mark.parametrize("failing", ["describe", "offsets"])
def test_a_group_that_the_target_does_not_tell_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """It is left alone: of offsets that are not known it is not known whether they go back."""
    admin, notes = Described(ODD), list[str]()
    odd, is_offsets = ("g", True) if failing == "offsets" else ("odd", False)
    target = target_with(monkeypatch, admin, odd if is_offsets else "")
    source = Fake({"h": {("t", 0): 4}, odd: {("t", 0): 4}})
    groups = groups_of(source, target, notes)
    for _ in range(2):
        groups.sync(KNOWN, list[Row]().extend)
    assert admin.committed == ["h", "h"]
    (note,) = notes
    assert f"group {odd} at west" in note
    assert "of another type" in note


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._ALL_BROKERS_DOWN, Kind.UNREACHABLE),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, Kind.UNREACHABLE),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, Kind.DENIED),
    ],
)
def test_a_failure_of_the_cluster_is_no_groups(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: Kind
) -> None:
    target = target_with(monkeypatch, Described(KafkaError(code, "so")))
    groups = groups_of(Fake({"odd": {("t", 0): 4}}), target)
    with pytest.raises(MirrorError, match="group odd at west: so") as failed:
        groups.sync(KNOWN, list[Row]().extend)
    assert failed.value.kind is kind


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


def test_a_group_that_reads_on_far_behind_is_moved_on() -> None:
    source, target = Fake({"g": {("t", 0): 0}}), Fake({})
    groups = groups_of(source, target)
    known, lag, reached = Spans(), 7_200, list[int]()
    for number in range(5 * lag):
        known.add([Span(100 * number, 101 * number, 100)])
        if number > lag and number % 720 == 0:
            source.offsets["g"]["t", 0] = 100 * (number - lag)
            groups.sync({("t", 0): known}, list[Row]().extend)
            reached.append(target.offsets["g"]["east.t", 0])
            assert reached[-1] >= 101 * (number - lag - lag // 30)
    assert len(set(reached)) == len(reached) > 20


def thinned() -> tuple[Spans, Spans]:
    """The same records, of which more and less is known."""
    some = [Span(10 * number, 11 * number, 10) for number in range(20)]
    more, less = spans(*some), spans(*some)
    less.thin(1)
    assert more.translate(105) == 115
    assert less.bounds(105) == (10, 209)
    return more, less


def told_by(groups: Groups, known: Spans) -> list[bytes | None]:
    rows: list[Row] = []
    groups.sync({("t", 0): known}, rows.extend)
    return [row.value for row in rows]


def value(source: int, target: int) -> bytes:
    return Checkpoint("g", "east.t", 0, source, target).value()


def test_checkpoints_of_a_group_that_stands_still_do_not_go_back() -> None:
    more, less = thinned()
    source, target = Fake({"g": {("t", 0): 105}}), Fake({})
    groups = groups_of(source, target)
    assert told_by(groups, more) == [value(105, 115)]
    assert told_by(groups, less) == []
    source.offsets["g"]["t", 0] = 106
    assert told_by(groups, less) == []
    assert told_by(groups, more) == [value(106, 116)]
    # A rewind is told.
    source.offsets["g"]["t", 0] = 104
    assert told_by(groups, less) == [value(104, 10)]


def test_a_restart_keeps_to_what_was_told() -> None:
    _, less = thinned()
    source, target = Fake({"g": {("t", 0): 105}}), Fake({})
    one = Checkpoint("g", "east.t", 0, 105, 115, "note")
    row = Row("east.checkpoints.internal", one.key(), one.value())
    assert told_by(groups_of(source, target, stored=[row]), less) == []
    deleted = row._replace(value=None)
    other = row._replace(value=b"of a later version")
    for gone in (deleted, other):
        assert told_by(groups_of(source, target, stored=[row, gone]), less) == [value(105, 10)]
    # Only what is known now is committed.
    assert target.offsets["g"]["east.t", 0] == 10


def test_a_checkpoint_that_cannot_be_right_is_replaced() -> None:
    """The target's topic was created anew since, and is shorter."""
    more, _ = thinned()
    one = Checkpoint("g", "east.t", 0, 90, 4711)
    row = Row("east.checkpoints.internal", one.key(), one.value())
    source, target = Fake({"g": {("t", 0): 105}}), Fake({})
    assert told_by(groups_of(source, target, stored=[row]), more) == [value(105, 115)]


def test_nothing_is_kept_of_groups_that_are_gone() -> None:
    source, target = Fake({}), Fake({})
    stored = [Row("c", b"of another group", b"v")]
    groups = groups_of(source, target, stored=stored)
    more, _ = thinned()
    for number in range(100):
        source.offsets = {f"g-{number}": {("t", 0): 105}}
        assert len(told_by(groups, more)) == 1
    assert groups._told._told is not None
    assert len(groups._told._told) == 1


@pytest.mark.parametrize("group", ["connect-sink", "console-consumer-4711", "__admin"])
def test_groups_of_tools_are_left_out_and_that_is_told_once(group: str) -> None:
    source, target = Fake({"g": {("t", 0): 4}, group: {("t", 0): 4}}), Fake({})
    notes: list[str] = []
    groups, _ = synced(source, target, notes)
    groups.sync(KNOWN, list[Row]().extend)
    assert target.offsets.keys() == {"g"}
    (note,) = notes
    assert "are left out, as MirrorMaker does" in note


@pytest.mark.parametrize("pattern", ["connect-sink", "connect-.*", r"connect\-.*", "g|connect-.*"])
def test_groups_of_tools_are_taken_by_a_pattern_that_names_them(pattern: str) -> None:
    source, target = Fake({"connect-sink": {("t", 0): 4}}), Fake({})
    notes: list[str] = []
    synced(source, target, notes, pattern)
    assert target.offsets.keys() == {"connect-sink"}
    assert notes == []
