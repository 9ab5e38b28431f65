"""Compares what was mirrored with what the source has."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import zip_longest
from typing import Any, NamedTuple

from pyrklog.mirror.cluster import ClusterAdmin, Logs
from pyrklog.mirror.digests import COLUMNS, RangeDigest, key_digest, ranges, record_digest
from pyrklog.mirror.errors import MirrorError
from pyrklog.mirror.state import Partition, Progress
from pyrklog.scanning import Place, ScanError, scan

KEYS_MAX = 500_000
"""Of a pass; as many at either side."""
PASSES_MAX = 4096
MEMORY_BYTES = 32 << 20
_COMPARED = ("keys", "values", "headers", "timestamps")


class Side(NamedTuple):
    """A partition of one cluster: its records from ``begin`` to before ``end`` are compared;
    ``start`` is where its log begins."""

    admin: ClusterAdmin
    topic: str
    partition: int
    begin: int
    end: int
    start: int

    @property
    def has_lost(self) -> bool:
        """Whether retention has taken records."""
        return self.start > self.begin

    def batches(self, columns: tuple[str, ...], end: int | None = None) -> Iterator[Any]:
        """The records that are compared; with an end of -1 also those up to the present end."""
        begin = max(self.begin, self.start)
        if begin < self.end:
            # All of them, though a marker may be on its way: the scan waits for it.
            yield from self._read(columns, begin, self.end)
        if end == -1:
            yield from self._read(columns, max(begin, self.end), "latest")

    def _read(self, columns: tuple[str, ...], begin: int, end: Place) -> Iterator[Any]:
        with scan(
            {self.topic: [self.partition]},
            start=begin,
            end=end,
            columns=columns,
            threads=1,
            memory_bytes=MEMORY_BYTES,
            **self.admin.reading(),
        ) as reading:
            yield from reading.reader()

    def record_count(self) -> int:
        return sum(batch.num_rows for batch in self.batches(("offset",)))

    def reaching(self, count: int) -> Side | None:
        """With so many records more, from its end on; None if there are fewer."""
        for batch in self._read(("offset",), self.end, "latest"):
            if count <= batch.num_rows:
                return self._replace(end=batch.column("offset")[count - 1].as_py() + 1)
            count -= batch.num_rows
        return None


@dataclass
class Verdict:
    """Of a partition. ``difference`` is empty if there is none."""

    topic: str
    partition: int
    target: str
    records: int = 0
    keys: int | None = None
    difference: str = ""


class Other(Enum):
    """Why a partition is not compared: what has become of its topic, or of itself."""

    GONE = "gone"
    ANEW = "created anew"
    LEADERLESS = "no leader"


_ORDER = tuple(Other)
"""If both sides have one, the first is told."""


class Compared(NamedTuple):
    """What is compared; why other partitions are not, and whether for the source or the target."""

    sides: dict[Partition, tuple[Side, Side]]
    others: dict[Partition, tuple[Other, str]]


def sides(
    source: ClusterAdmin,
    target: ClusterAdmin,
    partitions: Mapping[Partition, Progress],
    *,
    keeps: bool = False,
) -> Compared:
    """Of a mirror that ``keeps`` offsets both sides have the same ones, and begin where both have
    records. Raises MirrorError."""
    at_source = _look(source, {topic for topic, _ in partitions})
    at_target = _look(target, {one.target for one in partitions.values()})
    found, others = {}, {}
    for (topic, number), one in partitions.items():
        copy = (one.target, number)
        lacks = (
            (at_source.lacks((topic, number), one.topic_id), "source"),
            (at_target.lacks(copy, one.target_id), "target"),
        )
        known = [(why, side) for why, side in lacks if why is not None]
        if known:
            others[topic, number] = min(known, key=lambda one: _ORDER.index(one[0]))
        else:
            starts = at_source.logs.starts[topic, number], at_target.logs.starts[copy]
            here, there = (one.begin, one.position), (one.target_begin, one.target_end)
            if keeps:
                here = there = (max(one.begin, *starts), one.target_end)
            found[topic, number] = (
                Side(source, topic, number, *here, starts[0]),
                Side(target, *copy, *there, starts[1]),
            )
    return Compared(found, others)


class _Found(NamedTuple):
    """What a cluster has."""

    topics: Mapping[str, int]
    leaderless: frozenset[Partition]
    logs: Logs

    def lacks(self, partition: Partition, topic_id: str) -> Other | None:
        """Whether this partition, of a topic that had this id, cannot be compared."""
        topic, _ = partition
        now = self.logs.topic_ids.get(topic)
        if topic not in self.topics:
            return Other.GONE
        if topic_id and now and topic_id != now:
            return Other.ANEW
        if partition in self.logs.starts:
            return None
        # Partitions do not become fewer.
        return Other.LEADERLESS if partition in self.leaderless else Other.ANEW


def _look(admin: ClusterAdmin, names: Collection[str]) -> _Found:
    _, topics = admin.topics()
    leaderless = admin.leaderless()
    wanted: dict[str, list[int] | None] = {}
    for topic in sorted(topics.keys() & names):
        led = [one for one in range(topics[topic]) if (topic, one) not in leaderless]
        # All as they are when they are asked: a number that is gone by then would end it.
        wanted[topic] = None if len(led) == topics[topic] else led
    try:
        return _Found(topics, leaderless, admin.logs(wanted, "read_committed"))
    except ScanError as error:
        raise MirrorError(f"{admin.cluster.alias}: {error}") from error


def compare(source: Side, target: Side, *, is_compacted: bool, keeps: bool = False) -> Verdict:
    """With ``keeps`` offsets are compared, too. Raises MirrorError if they cannot be read."""
    verdict = Verdict(source.topic, source.partition, target.topic)
    try:
        if is_compacted:
            _compare_keys(source, target, verdict, keeps)
        elif keeps:
            _compare_between(source, target, verdict, keeps)
        else:
            _compare_ranges(source, target, verdict)
    except ScanError as error:
        raise MirrorError(f"{error}", "verify again") from error
    return verdict


def _compare_ranges(source: Side, target: Side, verdict: Verdict) -> None:
    _compare_between(source, target, verdict)
    if not verdict.difference or source.has_lost or target.has_lost:
        return
    # The mirror counts a marker for each transaction. A coordinator that is killed may write one
    # again when it goes on, and then the last records lie behind the end that the mirror expected.
    lacking = source.record_count() - target.record_count()
    longer = target.reaching(lacking) if lacking > 0 else None
    if longer is not None:
        verdict.records = 0
        _compare_between(source, longer, verdict)


def _compare_between(source: Side, target: Side, verdict: Verdict, keeps: bool = False) -> None:
    skips = (0, 0)
    if source.has_lost or target.has_lost:
        source_count, target_count = source.record_count(), target.record_count()
        # Who has lost its beginning may have fewer.
        fewest = min(
            source_count if source.has_lost else max(source_count, target_count),
            target_count if target.has_lost else max(source_count, target_count),
        )
        skips = (max(0, source_count - fewest), max(0, target_count - fewest))
    for at_source, at_target in zip_longest(
        ranges(source.batches(COLUMNS), skips[0]), ranges(target.batches(COLUMNS), skips[1])
    ):
        verdict.records += at_source.records if at_source is not None else 0
        verdict.difference = _difference(at_source, at_target, keeps)
        if verdict.difference:
            return


def _difference(source: RangeDigest | None, target: RangeDigest | None, keeps: bool) -> str:
    if source is None or target is None:
        one, side, other = (
            (source, "source", "target") if source is not None else (target, "target", "source")
        )
        assert one is not None
        return f"the {other} lacks {side} offsets {one.first} to {one.last}"
    where = f"source offsets {source.first} to {source.last}, target {target.first} to "
    where += str(target.last)
    if source.records != target.records:
        return f"{source.records} and {target.records} records at {where}"
    pairs = zip(_COMPARED, source.digests, target.digests, strict=True)
    parts = [name for name, one, other in pairs if one != other]
    if keeps and source.offsets != target.offsets:
        parts.append("offsets")
    if not parts:
        return ""
    return f"other {' and '.join(parts)} at {where}"


@dataclass
class _Keys:
    """The last record of each key in a pass, and keys that have records behind those compared."""

    last: dict[bytes, bytes | None] = field(default_factory=dict)
    later: set[bytes] = field(default_factory=set)
    records: int = 0


class _TooManyKeysError(Exception):
    pass


def _compare_keys(source: Side, target: Side, verdict: Verdict, keeps: bool) -> None:
    passes = 1
    while passes <= PASSES_MAX:
        verdict.records, verdict.keys, verdict.difference = 0, 0, ""
        try:
            for number in range(passes):
                _compare_pass(source, target, verdict, (number, passes), keeps)
                if verdict.difference:
                    return
        except _TooManyKeysError:
            passes *= 2
        else:
            return
    raise MirrorError(f"partition {source.partition} of topic {source.topic} has too many keys")


def _compare_pass(
    source: Side, target: Side, verdict: Verdict, part: tuple[int, int], keeps: bool
) -> None:
    at_source, at_target = _keys(source, part, keeps), _keys(target, part, keeps)
    # Compaction keeps the last record of a key, which may lie behind what is compared.
    later = at_source.later | at_target.later
    lacking = source.has_lost or target.has_lost
    verdict.records += at_source.records
    verdict.keys = (verdict.keys or 0) + len(at_source.last)
    different = 0
    for key in at_source.last.keys() | at_target.last.keys():
        if key in later or (lacking and not (key in at_source.last and key in at_target.last)):
            continue
        different += at_source.last.get(key) != at_target.last.get(key)
    if different:
        keys = "1 key has" if different == 1 else f"{different} keys have"
        verdict.difference = f"{keys} another last record"


def _keys(side: Side, part: tuple[int, int], keeps: bool) -> _Keys:
    number, passes = part
    found = _Keys()
    for batch in side.batches(COLUMNS, end=-1):
        rows = zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)
        for key, value, headers, timestamp, offset in rows:
            if key is None or zlib.crc32(key) % passes != number:
                continue
            known = key_digest(key)
            if offset >= side.end:
                found.later.add(known)
            else:
                last = record_digest(value, headers, timestamp)
                if keeps and last is not None:
                    last += offset.to_bytes(8)
                found.last[known] = last
                found.records += 1
            if len(found.last) + len(found.later) > KEYS_MAX:
                raise _TooManyKeysError
    return found
