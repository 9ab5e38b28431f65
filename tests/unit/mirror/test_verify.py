"""What two sides of a partition may differ in: what retention and compaction have taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from pyrklog.mirror import Cluster, verify
from pyrklog.mirror.cluster import ClusterAdmin, Logs
from pyrklog.mirror.state import Progress
from pyrklog.mirror.verify import Other, Side, Verdict, compare
from pyrklog.scanning import ScanError

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Pair = tuple[bytes | None, bytes | None]


@dataclass
class Fake:
    """As :class:`Side`: records by offset; those at ``end`` and behind are not compared."""

    records: dict[int, Pair]
    end: int
    has_lost: bool = False
    topic: str = "t"
    partition: int = 0
    reads: list[int] = field(default_factory=list)

    def batches(self, _columns: tuple[str, ...], end: int | None = None) -> Iterator[Any]:
        self.reads.append(1)
        rows = [(k, v) for k, v in self.records.items() if end == -1 or k < self.end]
        for at in range(0, len(rows), 2):
            yield batch(rows[at : at + 2])

    def record_count(self) -> int:
        return sum(1 for one in self.records if one < self.end)

    def reaching(self, count: int) -> Fake | None:
        later = [one for one in self.records if one >= self.end][:count]
        return replace(self, end=later[-1] + 1) if len(later) == count else None


def batch(rows: list[tuple[int, Pair]]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "key": pa.array([pair[0] for _, pair in rows], pa.binary()),
            "value": pa.array([pair[1] for _, pair in rows], pa.binary()),
            "headers": pa.nulls(len(rows), HEADERS),
            "timestamp": pa.array([1] * len(rows), pa.timestamp("us", "UTC")),
            "offset": pa.array([offset for offset, _ in rows], pa.int64()),
        }
    )


def side(*records: Pair, first: int = 0, end: int | None = None, has_lost: bool = False) -> Fake:
    found = dict(enumerate(records, first))
    return Fake(found, first + len(records) if end is None else end, has_lost)


def compared(source: Fake, target: Fake, *, is_compacted: bool) -> Verdict:
    sides: tuple[Side, Side] = (source, target)  # type: ignore[assignment]
    return compare(*sides, is_compacted=is_compacted)


A, B, C = (b"a", b"1"), (b"b", b"2"), (b"c", b"3")


@pytest.mark.parametrize(
    ("source", "target", "difference"),
    [
        (side(A, B, C), side(A, B, C, first=7), ""),
        (side(A, B, C), side(A, B), "3 and 2 records at source offsets 0 to 2, target 0 to 1"),
        (side(A, B), side(), "the target lacks source offsets 0 to 1"),
        # A marker more than the mirror knows of.
        (side(A, B, C), side(A, B, C, end=2), ""),
        (side(A, B), side(A, B, end=0), ""),
        (
            side(A, B, C),
            side(A, B, A, end=2),
            "other keys and values at source offsets 0 to 2, target 0 to 2",
        ),
        (side(), side(A), "the source lacks target offsets 0 to 0"),
        (side(A), side((b"a", b"x")), "other values at source offsets 0 to 0, target 0 to 0"),
        # Retention has taken the beginning of one, of the other, of both.
        (side(B, C, has_lost=True), side(A, B, C), ""),
        (side(A, B, C), side(C, has_lost=True), ""),
        (side(B, C, has_lost=True), side(C, has_lost=True), ""),
        (side(C, has_lost=True), side(B, C, has_lost=True), ""),
        # But not the end of the other.
        (side(B, C, has_lost=True), side(A, B), "other keys and values at source offsets"),
        (side(A, B, C), side(A, B, has_lost=True), "other keys and values at source offsets"),
        (side(B, C, has_lost=True), side(C), "2 and 1 records at source offsets"),
    ],
)
def test_ranges(source: Fake, target: Fake, difference: str) -> None:
    found = compared(source, target, is_compacted=False).difference
    assert found.startswith(difference)
    assert bool(found) == bool(difference)


GONE = (b"a", None)


@pytest.mark.parametrize(
    ("source", "target", "difference"),
    [
        (side(A, B, (b"a", b"9")), side(B, (b"a", b"9")), ""),
        (side(A, B), side(A), "1 key has another last record"),
        (side(A, B), side((b"a", b"x"), (b"b", b"x")), "2 keys have another last record"),
        # A tombstone, and what it has removed.
        (side(A, GONE, B), side(B), ""),
        (side(B), side(GONE, B), ""),
        (side(A, B), side(GONE, B), "1 key has another last record"),
        # A later record that is not mirrored yet: compaction may have taken the one before.
        (side(B, (b"a", b"9"), end=1), side(A, B), ""),
        (side(A, B), side(B, (b"a", b"9"), end=1), ""),
        # Retention.
        (side(B, has_lost=True), side(A, B), ""),
        (side((b"b", b"x"), has_lost=True), side(A, B), "1 key has another last record"),
        # Records without a key are nobody's last.
        (side(A, (None, b"x")), side(A), ""),
    ],
)
def test_keys(source: Fake, target: Fake, difference: str) -> None:
    assert compared(source, target, is_compacted=True).difference == difference


def test_many_keys_take_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "KEYS_MAX", 10)
    records = [(b"%d" % number, b"v") for number in range(50)]
    source, target = side(*records), side(*records)
    found = compared(source, target, is_compacted=True)
    assert (found.records, found.keys, found.difference) == (50, 50, "")
    assert len(source.reads) > 5
    target.records[49] = (b"49", b"x")
    assert compared(source, target, is_compacted=True).difference


class Nothing:
    """A scan without records, or with these offsets in each batch."""

    def __init__(self, *offsets: list[int]) -> None:
        self.offsets = offsets

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def reader(self) -> list[pa.RecordBatch]:
        return [pa.record_batch({"offset": pa.array(one, pa.int64())}) for one in self.offsets]


@pytest.mark.parametrize(
    ("log_start", "until", "asked"),
    [
        (0, None, [(3, 9)]),
        # By its offset, so that what is not visible yet is waited for; then what comes behind.
        (0, -1, [(3, 9), (9, "latest")]),
        (12, None, []),
        (12, -1, [(12, "latest")]),
    ],
)
def test_all_that_is_compared_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, log_start: int, until: int | None, asked: list[Any]
) -> None:
    ranges: list[Any] = []

    def scan(_topics: object, *, start: object, end: object, **_: object) -> Nothing:
        ranges.append((start, end))
        return Nothing()

    monkeypatch.setattr(verify, "scan", scan)
    side = Side(ClusterAdmin(Cluster("east", "h:1"), 1.0), "t", 0, 3, 9, log_start)
    assert list(side.batches(("offset",), until)) == []
    assert ranges == asked


@pytest.mark.parametrize(("count", "end"), [(1, 10), (2, 13), (3, 14), (4, None)])
def test_a_side_reaches_to_records_behind_its_end(
    monkeypatch: pytest.MonkeyPatch, count: int, end: int | None
) -> None:
    monkeypatch.setattr(verify, "scan", lambda *_, **__: Nothing([9, 12], [13]))
    side = Side(ClusterAdmin(Cluster("east", "h:1"), 1.0), "t", 0, 3, 9, 0)
    found = side.reaching(count)
    assert (found and found.end) == end


class Admin:
    """As :class:`ClusterAdmin`: counts of partitions by topic, and those without a leader."""

    def __init__(self, topics: dict[str, int], *leaderless: tuple[str, int]) -> None:
        self.cluster = Cluster("east", "h:1")
        self._topics, self._leaderless = topics, frozenset(leaderless)

    def topics(self) -> tuple[str, dict[str, int]]:
        return "id", self._topics

    def leaderless(self) -> frozenset[tuple[str, int]]:
        return self._leaderless

    def logs(self, partitions: dict[str, list[int] | None], _isolation: str) -> Logs:
        """Fails for a partition that is not there, or has no leader."""
        starts = {}
        for topic, numbers in partitions.items():
            count = COUNTS_LATER.get(topic, self._topics[topic])
            for number in range(count) if numbers is None else numbers:
                if number >= count or (topic, number) in self._leaderless:
                    raise ScanError(f"topic {topic} has no partition {number}")
                starts[topic, number] = 0
        return Logs(starts, {}, {topic: IDS[topic] for topic in partitions if topic in IDS})


COUNTS_LATER = {"shrunk": 1}
"""Partitions of topics that are created anew when the cluster has just told its topics."""
IDS = {"renewed": "new", "lost": "new", "kept": "old"}


def test_each_partition_is_compared_or_told_whatever_has_become_of_others() -> None:
    counts = {"kept": 3, "renewed": 2, "fewer": 1, "dark": 2, "half": 2, "shrunk": 2}
    source = Admin({**counts, "lost": 2}, ("dark", 0), ("dark", 1), ("half", 1))
    target = Admin({**dict.fromkeys(counts, 9), "kept": 2}, ("kept", 0))
    partitions = {
        (topic, number): Progress(topic, 5, 0, 5, topic_id="old")
        for topic in (*counts, "gone", "lost")
        for number in range(3 if topic == "kept" else 2)
    }
    admins: tuple[Any, Any] = (source, target)
    found = verify.sides(*admins, partitions)
    assert set(found.sides) == {("kept", 1), ("fewer", 0), ("half", 0), ("shrunk", 0)}
    assert found.others == {
        ("kept", 0): (Other.LEADERLESS, "target"),
        ("kept", 2): (Other.ANEW, "target"),
        ("renewed", 0): (Other.ANEW, "source"),
        ("renewed", 1): (Other.ANEW, "source"),
        ("fewer", 1): (Other.ANEW, "source"),
        ("dark", 0): (Other.LEADERLESS, "source"),
        ("dark", 1): (Other.LEADERLESS, "source"),
        ("half", 1): (Other.LEADERLESS, "source"),
        ("gone", 0): (Other.GONE, "source"),
        ("gone", 1): (Other.GONE, "source"),
        ("shrunk", 1): (Other.ANEW, "source"),
        ("lost", 0): (Other.GONE, "target"),
        ("lost", 1): (Other.GONE, "target"),
    }


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_mirror_that_keeps_offsets_is_compared_with_them(is_compacted: bool) -> None:
    some: list[Pair] = [(b"a", b"1"), (b"b", b"2"), (b"c", None)]
    same: Any = side(*some, first=5)
    later: Any = side(*some, first=6)
    for other, keeps, difference in (
        (side(*some, first=5), True, False),
        (later, False, False),
        (later, True, True),
    ):
        copy: Any = other
        verdict = compare(same, copy, is_compacted=is_compacted, keeps=keeps)
        assert bool(verdict.difference) == difference, verdict
    if not is_compacted:
        assert "other offsets at source offsets 5 to 7" in verdict.difference


def test_sides_of_kept_offsets_are_of_the_same_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the later of both beginnings, to where the target's log ends."""
    starts = {"t": {("t", 0): 30}, "east.t": {("east.t", 0): 50}}

    def look(_admin: object, names: set[str]) -> Any:
        (name,) = names
        logs = Logs(starts[name], {}, {})
        return verify._Found({name: 1}, frozenset(), logs)

    monkeypatch.setattr(verify, "_look", look)
    admin = ClusterAdmin(Cluster("east", "h:1"), 1.0)
    known = {("t", 0): Progress("east.t", 90, 3, 80, target_begin=10, begin=10)}
    [(here, there)] = verify.sides(admin, admin, known, keeps=True).sides.values()
    assert (here.begin, here.end, here.has_lost) == (50, 80, False)
    assert (there.begin, there.end, there.has_lost) == (50, 80, False)
    [(here, there)] = verify.sides(admin, admin, known).sides.values()
    assert (here.begin, here.end, there.begin, there.end) == (10, 90, 10, 80)
