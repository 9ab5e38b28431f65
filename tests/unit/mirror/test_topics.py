"""The target's topics follow the source's, and no circle is closed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from pyrklog.mirror import Kind, MirrorError, Names, Patterns, Policy
from pyrklog.mirror.errors import AwayError
from pyrklog.mirror.state import Origin, chain_row, origin_row
from pyrklog.mirror.topics import Plan, Topics, Wanted, own_options

Value = tuple[str | None, bool]
PREFIX = Names("east", "west", Policy.PREFIX, "east")
IDENTITY = Names("east", "west", Policy.IDENTITY, "east")


class Fake:
    """A cluster with topics, their partitions and options."""

    def __init__(self, cluster_id: str, topics: dict[str, int]) -> None:
        self.blind: set[str] = set()
        """Topics that exist, and that the broker that is asked does not know."""
        self.id = cluster_id
        self.counts = topics
        self.own: dict[str, dict[str, str]] = {}
        self.rows: dict[str, list[tuple[bytes, bytes | None]]] = {}
        self.without_leader: set[tuple[str, int]] = set()

    def topics(self) -> tuple[str, dict[str, int]]:
        return self.id, dict(self.counts)

    def leaderless(self) -> set[tuple[str, int]]:
        return self.without_leader

    def create(
        self, topic: str, partitions: int, replicas: int, options: Mapping[str, str]
    ) -> bool:
        self.counts[topic] = partitions
        self.own[topic] = dict(options)
        return True

    def add_partitions(self, topic: str, count: int) -> None:
        assert count > self.counts[topic]
        self.counts[topic] = count

    def options(self, topics: Sequence[str]) -> dict[str, dict[str, Value]]:
        defaults: dict[str, Value] = {
            "retention.ms": ("1", False),
            "cleanup.policy": ("delete", False),
            "min.insync.replicas": ("1", False),
        }
        return {
            topic: defaults | {k: (v, True) for k, v in self.own.get(topic, {}).items()}
            for topic in topics
        }

    def set_options(self, topic: str, options: Mapping[str, str]) -> None:
        self.own.setdefault(topic, {}).update(options)

    def records(self, topic: str, *, exists: bool = False, **_how: float) -> Any:
        if topic in self.blind:
            if exists:
                raise AwayError(f"a broker does not know topic {topic}")
            return []
        return self.rows[topic]


def topics(names: Names, source: Fake, target: Fake, notes: list[str] | None = None) -> Topics:
    wanted = Wanted(Patterns([".*"], "--topics"))
    note = (notes if notes is not None else []).append
    return Topics(names, wanted, source, target, note, absent_s=0.6)


def synced(one: Topics, mirrored: Collection[str] = ()) -> Plan:
    return one.apply(one.look(mirrored))


def test_a_topic_is_made_with_partitions_and_options() -> None:
    source, target = Fake("A", {"t": 3}), Fake("B", {})
    source.own["t"] = {"retention.ms": "5", "min.insync.replicas": "2", "strange": "x"}
    plan = synced(topics(PREFIX, source, target))
    assert plan.topics == {"t": 3}
    assert target.counts == {"east.t": 3}
    assert target.own["east.t"] == {"retention.ms": "5"}


def test_partitions_and_options_follow() -> None:
    source, target = Fake("A", {"t": 3}), Fake("B", {})
    syncing = topics(PREFIX, source, target)
    assert synced(syncing).grown == frozenset()
    source.counts["t"] = 5
    source.own["t"] = {"cleanup.policy": "compact"}
    target.own["east.t"]["retention.ms"] = "7"
    assert synced(syncing).grown == {"east.t"}
    assert target.counts == {"east.t": 5}
    assert target.own["east.t"] == {"cleanup.policy": "compact", "retention.ms": "7"}
    target.counts["east.t"] = 9
    assert synced(syncing).grown == frozenset()
    assert target.counts == {"east.t": 9}


def test_a_topic_that_is_gone_is_told_once() -> None:
    notes: list[str] = []
    source, target = Fake("A", {"t": 1, "u": 1}), Fake("B", {})
    syncing = topics(PREFIX, source, target, notes)
    synced(syncing)
    del source.counts["t"]
    assert synced(syncing).topics == {"u": 1}
    synced(syncing)
    assert notes == ["topic t is gone at the source; it stays at the target"]


def test_a_mirrored_topic_that_is_gone_at_the_target_stops() -> None:
    source, target = Fake("A", {"t": 1}), Fake("B", {})
    with pytest.raises(MirrorError, match=r"topic east\.t, which has been mirrored, is gone"):
        synced(topics(PREFIX, source, target), {"t"})
    assert target.counts == {}


@pytest.mark.parametrize(
    "name",
    ["message.timestamp.type", "leader.replication.throttled.replicas", "remote.storage.enable"],
)
def test_some_options_are_not_copied(name: str) -> None:
    assert own_options({name: ("x", True), "a": ("y", True)}, {name: 1, "a": 1}) == {"a": "y"}


def mirrored(at: Fake, source_id: str, topic: str, chain: list[str]) -> None:
    """As if a mirror from there with --policy identity had written to the cluster."""
    name = f"pyrklog-mirror.{source_id}.state.internal"
    rows = [
        origin_row(name, Origin(source_id, at.id, "identity")),
        chain_row(name, topic, chain),
    ]
    at.counts[name] = 1
    at.rows[name] = [(row.key, row.value) for row in rows]


def test_identity_within_one_cluster_is_refused() -> None:
    source = Fake("A", {"t": 1})
    with pytest.raises(MirrorError, match=r"topic t would go in a circle.*which is the source"):
        synced(topics(IDENTITY, source, source))


def test_the_way_back_is_refused() -> None:
    there, back = Fake("B", {"t": 1, "u": 1}), Fake("A", {"t": 1})
    mirrored(there, "A", "t", ["A"])
    with pytest.raises(MirrorError, match=r"topic t would go in a circle.*by B, A"):
        synced(topics(IDENTITY, there, back))
    assert "u" not in back.counts


def test_a_broker_that_does_not_know_a_topic_of_progress_yet_hides_no_circle() -> None:
    there, back = Fake("B", {"t": 1}), Fake("A", {"t": 1})
    mirrored(there, "A", "t", ["A"])
    there.blind = {"pyrklog-mirror.A.state.internal"}
    with pytest.raises(AwayError, match="does not know topic"):
        synced(topics(IDENTITY, there, back))


@pytest.mark.parametrize("how", ["later", "leaderless"])
def test_topics_wait_while_it_is_not_known_where_they_come_from(how: str) -> None:
    """Those that are copied already go on, and keep the chain that is known."""
    source, notes = Fake("B", {"t": 1, "u": 1}), list[str]()
    name = "pyrklog-mirror.C.state.internal"
    mirrored(source, "C", "t", ["C"])
    readable = source.rows.pop(name)
    if how == "later":
        source.rows[name] = [(b'["mirror"]', b'{"version":2}')]
    else:
        source.without_leader = {(name, 0)}
    syncing = topics(IDENTITY, source, Fake("A", {"t": 1}), notes)
    for _ in range(2):
        look = syncing.look({"t"})
        assert look.topics == {"t": 1}
        assert look.new_chains({"t": ["B", "C"]}) == {}
        assert syncing.is_partial
    told, waiting = notes
    why = "no mirror of this version writes: version 2" if how == "later" else "has no leader"
    assert f"topic {name} at east" in told
    assert why in told
    assert waiting.startswith("topic u is not copied yet")
    source.without_leader, source.rows[name] = set(), readable
    look = syncing.look({"t"})
    assert (look.topics, look.new_chains({})) == ({"t": 1, "u": 1}, {"t": ["B", "C"], "u": ["B"]})
    assert not syncing.is_partial


def test_a_circle_of_three_is_refused_and_a_chain_is_not() -> None:
    source = Fake("C", {"t": 1})
    mirrored(source, "B", "t", ["B", "A"])
    with pytest.raises(MirrorError, match="would go in a circle"):
        synced(topics(IDENTITY, source, Fake("A", {})))
    look = topics(IDENTITY, source, Fake("D", {})).look()
    assert look.chains == {"t": ["C", "B", "A"]}


def test_a_broker_that_does_not_know_a_topic_yet_is_asked_again() -> None:
    source, target = Fake("A", {"t": 1}), Fake("B", {"east.t": 1})
    answers = [{}, {"east.t": 1}]
    target.topics = lambda: ("B", answers.pop(0))  # type: ignore[method-assign]
    assert synced(topics(PREFIX, source, target), {"t"}).topics == {"t": 1}


def test_a_topic_that_is_passed_over_is_told_once() -> None:
    source, target = Fake("A", {"data.east.users": 1, "t": 1}), Fake("B", {})
    notes: list[str] = []
    syncing = topics(PREFIX, source, target, notes)
    assert synced(syncing).topics == {"t": 1}
    synced(syncing)
    assert len(notes) == 1
    assert "data.east.users is not copied" in notes[0]


def test_internal_topics_of_a_mirror_the_other_way_are_not_told() -> None:
    own = ["east.checkpoints.internal", "pyrklog-mirror.east.state.internal"]
    source, target = Fake("A", dict.fromkeys([*own, "t"], 1)), Fake("B", {})
    notes: list[str] = []
    assert synced(topics(PREFIX, source, target, notes)).topics == {"t": 1}
    assert notes == []


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_pattern_that_matches_nothing_is_told_once(is_whole: bool) -> None:
    source, target = Fake("A", {"orders": 1}), Fake("B", {})
    notes: list[str] = []
    wanted = Wanted(Patterns(["order", "pay.*", "orders"], "--topics"), is_whole=is_whole)
    syncing = Topics(PREFIX, wanted, source, target, notes.append)
    for _ in range(2):
        assert synced(syncing).topics == {"orders": 1}
    later = "" if is_whole else ", so far"
    assert notes == [
        f"no topic of east matches --topics 'order'{later}; did you mean orders?",
        f"no topic of east matches --topics 'pay.*'{later}",
    ]


@pytest.mark.parametrize(
    ("pattern", "fix"),
    [
        ("ordrs", "did you mean orders?"),
        ("x.*", "give regular expressions that match whole names of its topics"),
    ],
)
def test_a_mirror_that_copies_once_and_would_copy_nothing_is_refused(
    pattern: str, fix: str
) -> None:
    """Its success would look like a copy."""
    notes: list[str] = []
    source, target = Fake("A", {"orders": 1}), Fake("B", {})
    patterns = Patterns([pattern, "zzz"], "--topics")
    once = Topics(PREFIX, Wanted(patterns, is_whole=True), source, target, notes.append)
    with pytest.raises(MirrorError) as refused:
        once.look()
    assert refused.value.what == f"no topic of east matches --topics {pattern!r}, 'zzz'"
    assert (refused.value.fix, refused.value.kind, notes) == (fix, Kind.NOT_FOUND, [])
    for wanted in (Wanted(patterns), Wanted(patterns, is_whole=True, has_heartbeats=True)):
        assert synced(Topics(PREFIX, wanted, source, target, notes.append)).topics == {}
    assert len(notes) == 4
    # Topics that go while it copies are told, and end nothing.
    source.counts = {pattern.removesuffix("*"): 1}
    assert once.look().topics == source.counts
    source.counts = {}
    assert once.look().topics == {}


def test_a_topic_whose_name_would_be_too_long_is_told_once_and_holds_up_no_other() -> None:
    source, target = Fake("A", {"x" * 245: 1, "t": 1}), Fake("B", {})
    notes: list[str] = []
    syncing = topics(PREFIX, source, target, notes)
    assert not syncing.is_partial
    for _ in range(2):
        assert synced(syncing).topics == {"t": 1}
    assert target.counts == {"east.t": 1}
    (note,) = notes
    assert f"topic {'x' * 245} is not copied" in note
    assert "would have 250 characters" in note
    assert syncing.is_partial


def test_a_broker_of_the_source_that_has_just_started_is_asked_again() -> None:
    source, target = Fake("A", {"t": 1}), Fake("B", {"east.t": 1})
    answers = [{}, {"t": 1}]
    source.topics = lambda: ("A", answers.pop(0))  # type: ignore[method-assign]
    assert topics(PREFIX, source, target).look({"t"}).topics == {"t": 1}


def test_heartbeats_make_no_circle() -> None:
    """Each side of two mirrors with kept names has its own, and a copy of the other's."""
    source, target = Fake("A", {"heartbeats": 1, "t": 1}), Fake("B", {})
    mirrored(source, "B", "heartbeats", ["B"])
    plan = synced(topics(IDENTITY, source, target))
    assert plan.topics == {"heartbeats": 1, "t": 1}
    assert target.counts == {"east.heartbeats": 1, "t": 1}


class Refusing(Fake):
    """Takes no new topics and partitions, nor options, while that is so."""

    refuses = False

    def create(
        self, topic: str, partitions: int, replicas: int, options: Mapping[str, str]
    ) -> bool:
        self._refuse(f"topic {topic} cannot be created")
        return super().create(topic, partitions, replicas, options)

    def add_partitions(self, topic: str, count: int) -> None:
        self._refuse(f"topic {topic} cannot get partitions")
        super().add_partitions(topic, count)

    def set_options(self, topic: str, options: Mapping[str, str]) -> None:
        self._refuse(f"options of topic {topic} cannot be set")
        super().set_options(topic, options)

    def _refuse(self, what: str) -> None:
        if self.refuses:
            raise MirrorError(what)


def test_what_the_target_refuses_later_stops_no_other_topic() -> None:
    """As while one of three brokers is away, and topics are to have three replicas."""
    source, target = Fake("A", {"t": 1}), Refusing("B", {})
    notes: list[str] = []
    syncing = topics(PREFIX, source, target, notes)
    synced(syncing)
    target.refuses = True
    source.counts |= {"t": 3, "new": 2}
    source.own["t"] = {"retention.ms": "5"}
    for _ in range(2):
        plan = synced(syncing)
        assert plan.partitions() == {"t": [0], "new": []}
        assert plan.grown == frozenset()
    assert notes == [
        "topic east.new cannot be created",
        "topic east.t cannot get partitions",
        "options of topic east.t cannot be set",
    ]
    target.refuses = False
    plan = synced(syncing)
    assert plan.partitions() == {"t": [0, 1, 2], "new": [0, 1]}
    assert target.own["east.t"] == {"retention.ms": "5"}


def test_what_the_target_refuses_at_first_stops_the_mirror() -> None:
    source, target = Fake("A", {"t": 1}), Refusing("B", {})
    target.refuses = True
    with pytest.raises(MirrorError, match=r"topic east\.t cannot be created"):
        synced(topics(PREFIX, source, target))


class Late(Fake):
    """Somebody creates each topic just before the mirror does."""

    def create(
        self, topic: str, partitions: int, replicas: int, options: Mapping[str, str]
    ) -> bool:
        self.counts[topic] = 1
        return False


def test_a_topic_that_somebody_else_creates_meanwhile_gets_partitions_and_options() -> None:
    source, target = Fake("A", {"t": 3}), Late("B", {})
    source.own["t"] = {"retention.ms": "5"}
    assert synced(topics(PREFIX, source, target)).grown == {"east.t"}
    assert target.counts == {"east.t": 3}
    assert target.own["east.t"] == {"retention.ms": "5"}


def test_partitions_without_a_leader_on_either_side_are_left_out_and_told_once() -> None:
    notes: list[str] = []
    source, target = Fake("A", {"t": 3, "u": 1}), Fake("B", {})
    syncing = topics(PREFIX, source, target, notes)
    source.without_leader = {("t", 1), ("other", 0)}
    target.without_leader = {("east.u", 0), ("u", 0)}
    assert synced(syncing).partitions() == {"t": [0, 2], "u": []}
    source.without_leader = set()
    assert synced(syncing).partitions() == {"t": [0, 1, 2], "u": []}
    assert notes == [
        "partition 1 of topic t has no leader at the source; the others go on without it",
        "partition 0 of topic u has no leader at the target; the others go on without it",
    ]
    wanted = Wanted(Patterns([".*"], "--topics"), is_whole=True)
    all_of = Topics(PREFIX, wanted, source, target, notes.append)
    assert synced(all_of).partitions() == {"t": [0, 1, 2], "u": [0]}
