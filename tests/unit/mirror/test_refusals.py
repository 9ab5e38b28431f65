"""What a mirror refuses before it changes anything: a dry run tells the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from pyrklog.mirror import Kind, Mirror, MirrorError, Names, Offsets, Options, Patterns, Policy
from pyrklog.mirror.cluster import Logs
from pyrklog.mirror.state import (
    Origin,
    Partition,
    Progress,
    Row,
    claim_row,
    origin_row,
    progress_row,
    read_state,
)
from pyrklog.producing import UnsupportedClusterError
from tests.unit.mirror.test_kept_copy import World
from tests.unit.mirror.test_rounds import SOURCE, TARGET, Notes

NAMES = Names("east", "west", Policy.PREFIX, "m")
STATE = NAMES.state_topic
OTHER = "pyrklog-mirror.other.state.internal"
KEPT = Origin("A", "B", "prefix", Offsets.KEEP.value)
COPIED = progress_row(STATE, ("t", 0), Progress("east.t", 10, 0, 10))


class Cluster:
    """What a mirror asks one for. It takes no changes."""

    def __init__(self, cluster_id: str, ends: Mapping[str, int], rows: Iterable[Row] = ()) -> None:
        """Topics with one partition each, which ends there."""
        self.id = cluster_id
        self.rows: dict[str, list[tuple[bytes | None, bytes | None]]] = {}
        for row in rows:
            self.rows.setdefault(row.topic, []).append((row.key, row.value))
        self.ends = {**dict.fromkeys(self.rows, 1), **ends}

    def check_access(self) -> None:
        """It lets everybody in."""

    def topics(self) -> tuple[str, dict[str, int]]:
        return self.id, dict.fromkeys(self.ends, 1)

    def leaderless(self) -> frozenset[Partition]:
        return frozenset()

    def options(self, topics: Iterable[str]) -> dict[str, dict[str, tuple[str, bool]]]:
        return {topic: {"cleanup.policy": ("compact", True)} for topic in topics}

    def records(self, topic: str, since: object = None, **_how: object) -> Any:
        assert since is None
        return iter(self.rows.get(topic, ()))

    def logs(self, partitions: Mapping[str, Sequence[int]], _isolation: str, **_how: bool) -> Logs:
        ends = {
            (topic, one): self.ends[topic] for topic, some in partitions.items() for one in some
        }
        return Logs(dict.fromkeys(ends, 0), ends, {})

    def create_internal(self, topic: str, _options: object) -> bool:
        raise AssertionError(f"topic {topic} is created")


ASKED = ("check_access", "topics", "leaderless", "options", "records", "logs", "create_internal")


def between(
    monkeypatch: pytest.MonkeyPatch,
    source: Cluster,
    target: Cluster,
    *topics: str,
    keeps: bool = True,
    **more: Any,
) -> Mirror:
    patterns = Patterns(topics or ["t"], "--topics")
    mode = Offsets.KEEP if keeps else Offsets.TRANSLATE
    groups = Patterns([], "--groups")
    options = Options(SOURCE, TARGET, NAMES, patterns, groups, offsets=mode, **more)
    one = Mirror(options, Notes())
    for admin, fake in ((one._source, source), (one._target, target)):
        for name in ASKED:
            monkeypatch.setattr(admin, name, getattr(fake, name))
    return one


def full(*rows: Row, **ends: int) -> Cluster:
    return Cluster("B", {f"east.{topic}": end for topic, end in ends.items()}, rows)


CASES: Mapping[str, tuple[Callable[[], Cluster], dict[str, Any], str, str]] = {
    "another mode": (
        lambda: full(origin_row(STATE, KEPT), COPIED, t=10),
        {"keeps": False},
        "the mirror was begun with --offsets keep, not translate",
        "give another --name",
    ),
    "another mirror": (
        lambda: full(origin_row(OTHER, KEPT), claim_row(OTHER, "t", "east.t"), t=10),
        {"keeps": False},
        "topic t is copied to east.t by another mirror, whose progress is in " + OTHER,
        "give that mirror's --name",
    ),
    "records": (
        lambda: full(t=3),
        {},
        "partition 0 of topic east.t at west has records already, at offsets 0 to 2",
        "delete topic east.t there",
    ),
    "again": (
        lambda: full(origin_row(STATE, KEPT), COPIED, t=10),
        {"again": ["t"]},
        "partition 0 of topic east.t at west has records already, at offsets 0 to 9",
        "delete topic east.t at the target; --again t then copies it",
    ),
    "one cluster": (
        lambda: Cluster("A", {"t": 10}),
        {},
        "--from and --to have the same cluster id, A",
        "give a broker of another cluster",
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("is_dry", [True, False], ids=["dry", "run"])
def test_what_is_refused_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, case: str, is_dry: bool
) -> None:
    """Nor does it end another process of the same name, as a producer would."""
    target, more, what, fix = CASES[case]
    one = between(monkeypatch, Cluster("A", {"t": 10}), target(), **more)
    with pytest.raises(MirrorError) as refused:
        (one.look if is_dry else one.run)()
    assert refused.value.what.startswith(what)
    assert (refused.value.fix or "").startswith(fix)


@pytest.mark.parametrize("is_dry", [True, False], ids=["dry", "run"])
def test_a_mirror_that_would_copy_nothing_is_refused_with_once(
    monkeypatch: pytest.MonkeyPatch, is_dry: bool
) -> None:
    source = Cluster("A", {"orders": 10})
    one = between(monkeypatch, source, full(), "ordrs", keeps=False, once=True)
    with pytest.raises(MirrorError, match="no topic of east matches --topics 'ordrs'") as refused:
        (one.look if is_dry else one.run)()
    assert (refused.value.kind, refused.value.fix) == (Kind.NOT_FOUND, "did you mean orders?")


def test_a_target_that_keeps_no_offsets_is_told_by_a_dry_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def old(*_given: object) -> None:
        raise UnsupportedClusterError("no broker has ProduceAt")

    monkeypatch.setattr("pyrklog.mirror.keeping.Producer", old)
    one = between(monkeypatch, Cluster("A", {"t": 10}), full())
    with pytest.raises(MirrorError, match="west cannot keep offsets: no broker has ProduceAt"):
        one.look()


@pytest.mark.parametrize("again", [(), ("gone",)])
def test_what_goes_on_is_not_refused(monkeypatch: pytest.MonkeyPatch, again: Sequence[str]) -> None:
    monkeypatch.setattr("pyrklog.mirror.keeping.Producer", lambda _settings: None)
    target = full(origin_row(STATE, KEPT), COPIED, t=10)
    one = between(monkeypatch, Cluster("A", {"t": 10}), target, again=again)
    assert one.look().topics == {"t": 1}
    notes = one._told.notes  # type: ignore[attr-defined]
    assert notes == [f"--again {topic}: no such topic is copied" for topic in again]


def test_a_new_topic_that_is_refused_costs_no_other_its_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A session has begun: progress that ``--again`` forgets would be gone for good."""
    target = full(origin_row(STATE, KEPT), COPIED, t=0, u=3)
    source = Cluster("A", {"t": 10, "u": 10})
    one = between(monkeypatch, source, target, "t", "u", again=["t"])
    one._existing = {STATE}
    world = World({})
    world.noted.transactions.clear()
    monkeypatch.setattr(one._target, "records", lambda *_, **__: [*target.rows[STATE], *marks()])

    def marks() -> list[tuple[bytes | None, bytes | None]]:
        rows = [row for rows in world.noted.transactions for row in rows]
        assert all(topic == STATE for topic, *_ in rows)
        return [(key, value) for _, _, key, value in rows]

    with pytest.raises(MirrorError, match=r"partition 0 of topic east\.u at west has records"):
        one._begin(world.copier)
    assert [value for _, value in marks()] == [None], "a mark alone, which says nothing"
    assert read_state(STATE, [*target.rows[STATE], *marks()]).partitions.keys() == {("t", 0)}
