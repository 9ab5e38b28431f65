"""What stands in another mirror's topic of progress stops no mirror."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyrklog.mirror import others
from pyrklog.mirror.others import COPIES, Others
from pyrklog.mirror.state import Origin, Progress, claim_row, origin_row, progress_row
from pyrklog.scanning import (
    BrokerNotAvailableError,
    CorruptBatchError,
    LeaderNotAvailableError,
    NotAuthorizedError,
)
from tests.unit.mirror.test_refusals import OTHER, STATE, Cluster, between

OURS, FOREIGN = Origin("A", "B", "prefix"), Origin("A", "C", "prefix")
COPIED = progress_row(STATE, ("t", 0), Progress("east.t", 10, 0, 10))
Rows = list[tuple[bytes | None, bytes | None]]


def target(*rows: tuple[bytes | None, bytes | None], origin: Origin = OURS) -> Cluster:
    """Topic ``t`` is copied there already. The other mirror's topic has these rows besides."""
    found = Cluster("B", {"east.t": 10}, [origin_row(STATE, OURS), COPIED])
    first = origin_row(OTHER, origin)
    found.rows[OTHER] = [(first.key, first.value), *rows]
    found.ends[OTHER] = 1
    return found


def looked(monkeypatch: pytest.MonkeyPatch, there: Cluster) -> tuple[Any, list[str]]:
    """The mirror after two looks, and what it noted."""
    one: Any = between(monkeypatch, Cluster("A", {"t": 10, "u": 5}), there, "t", "u", keeps=False)
    looks = [one.look() for _ in range(2)]
    assert looks[0].topics == looks[1].topics
    one.topics = looks[0].topics
    return one, one._told.notes


@pytest.mark.parametrize(
    "junk",
    [(b"junk", b"x"), (b'["later",1]', b"{}"), (None, b"x"), (b'["partitions","u"]', b"x")],
)
def test_records_of_other_kinds_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, junk: tuple[bytes | None, bytes | None]
) -> None:
    one, notes = looked(monkeypatch, target(junk))
    assert (one.topics, notes, one.is_partial) == ({"t": 1, "u": 1}, [], False)


@pytest.mark.parametrize(
    "row",
    [
        (b'["mirror"]', json.dumps({"version": 2, **OURS._asdict()}).encode()),
        (b'["mirror"]', b"[]"),
        (b'["claim","x"]', b"{"),
        (b'["claim","x"]', b"[1]"),
        (b'["partition","x",0]', b"{}"),
    ],
)
def test_what_cannot_be_read_holds_up_topics_that_are_new(
    monkeypatch: pytest.MonkeyPatch, row: tuple[bytes, bytes]
) -> None:
    """They might be the other mirror's."""
    one, notes = looked(monkeypatch, target(row))
    assert (one.topics, one.is_partial) == ({"t": 1}, True)
    told, waiting = notes
    assert f"topic {OTHER} at west" in told
    assert "has a record that no mirror of this version writes" in told
    assert waiting.startswith("topic u is not copied yet")


def test_a_mirror_of_other_clusters_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    one, notes = looked(monkeypatch, target((b'["claim","x"]', b"{"), origin=FOREIGN))
    assert (one.topics, notes, one.is_partial) == ({"t": 1, "u": 1}, [], False)


def test_a_topic_without_a_leader_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    there = target()
    monkeypatch.setattr(there, "leaderless", lambda: {(OTHER, 0)})
    is_asked = list[str]()
    records = there.records

    def asked(topic: str, **how: object) -> Any:
        is_asked.append(topic)
        return records(topic, **how)

    monkeypatch.setattr(there, "records", asked)
    one, notes = looked(monkeypatch, there)
    assert (one.topics, one.is_partial, OTHER in is_asked) == ({"t": 1}, True, False)
    assert "its partition has no leader" in notes[0]


class Failing:
    """A cluster whose reading of the topic fails."""

    def __init__(self, failure: Exception | None) -> None:
        self.failure = failure
        self.asked = 0

    def leaderless(self) -> set[tuple[str, int]]:
        return set()

    def records(self, topic: str, *, exists: bool, timeout_s: float) -> Rows:
        assert (topic, exists, timeout_s) == (OTHER, True, others.ANSWER_S)
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        rows = [origin_row(OTHER, OURS), claim_row(OTHER, "u", "east.u")]
        return [(row.key, row.value) for row in rows]


@pytest.mark.parametrize("kind", [LeaderNotAvailableError, CorruptBatchError, NotAuthorizedError])
def test_a_leader_that_does_not_answer_is_seldom_asked(kind: type[Exception]) -> None:
    cluster, notes, now = Failing(kind("no")), list[str](), [0.0]
    one = Others(cluster, "west", notes.append, clock=lambda: now[0])
    for seconds in (0.0, others.AGAIN_S - 1, others.AGAIN_S):
        now[0] = seconds
        assert one.read(OTHER, COPIES, lambda _: True) is None
    assert (cluster.asked, len(notes)) == (2, 1)
    cluster.failure = None
    now[0] = 2 * others.AGAIN_S
    found = one.read(OTHER, COPIES, lambda _: True)
    assert found is not None
    assert found.copied == {("u", "east.u")}


def test_a_cluster_that_is_away_is_no_topics_fault() -> None:
    one = Others(Failing(BrokerNotAvailableError("away")), "west", list[str]().append)
    with pytest.raises(BrokerNotAvailableError):
        one.read(OTHER, COPIES, lambda _: True)


@pytest.mark.parametrize(
    ("limit", "value", "told"),
    [
        ("KEYS_MAX", 10, "more than 10 keys"),
        ("KEPT_BYTES_MAX", 300, "MiB of keys and last values"),
        ("READ_BYTES_MAX", 300, "more than 0 MiB"),
    ],
)
@pytest.mark.parametrize("origin", [OURS, FOREIGN])
def test_what_is_kept_and_read_is_bounded(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int, told: str, origin: Origin
) -> None:
    monkeypatch.setattr(others, limit, value, raising=False)
    claims = [claim_row(OTHER, f"topic-{number}", "x" * 20) for number in range(20)]
    one, notes = looked(
        monkeypatch, target(*[(row.key, row.value) for row in claims], origin=origin)
    )
    if origin is FOREIGN:
        assert (one.topics, notes) == ({"t": 1, "u": 1}, [])
        return
    assert (one.topics, one.is_partial) == ({"t": 1}, True)
    assert told in notes[0]


def test_what_was_taken_back_counts_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(others, "KEYS_MAX", 3)
    rows: Rows = []
    for number in range(20):
        claim = claim_row(OTHER, f"topic-{number}", "x")
        rows += [(claim.key, claim.value), (claim.key, None)]
    one, notes = looked(monkeypatch, target(*rows))
    assert (one.topics, notes) == ({"t": 1, "u": 1}, [])
