"""Compares what was mirrored with what the source has."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

from pyrklog.mirror.cluster import ClusterAdmin
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


@dataclass
class Verdict:
    """Of a partition. ``difference`` is empty if there is none."""

    topic: str
    partition: int
    target: str
    records: int = 0
    keys: int | None = None
    difference: str = ""


class Compared(NamedTuple):
    """What is compared, and partitions of topics that are others by now, with where."""

    sides: dict[Partition, tuple[Side, Side]]
    anew: dict[Partition, str]


def sides(
    source: ClusterAdmin,
    target: ClusterAdmin,
    partitions: Mapping[Partition, Progress],
) -> Compared:
    """Raises MirrorError."""
    here = _logs(source, list(partitions))
    there = _logs(target, [(one.target, number) for (_, number), one in partitions.items()])
    found, anew = {}, {}
    for (topic, number), one in partitions.items():
        if _is_another(one.topic_id, here.topic_ids.get(topic)):
            anew[topic, number] = "source"
        elif _is_another(one.target_id, there.topic_ids.get(one.target)):
            anew[topic, number] = "target"
        else:
            at_source, at_target = here.starts[topic, number], there.starts[one.target, number]
            found[topic, number] = (
                Side(source, topic, number, one.begin, one.position, at_source),
                Side(target, one.target, number, one.target_begin, one.target_end, at_target),
            )
    return Compared(found, anew)


def _is_another(known: str, now: str | None) -> bool:
    """By ids of topics, if brokers have them."""
    return bool(known and now) and known != now


class _Logs(NamedTuple):
    starts: dict[Partition, int]
    topic_ids: dict[str, str]


def _logs(admin: ClusterAdmin, partitions: list[Partition]) -> _Logs:
    wanted: dict[str, list[int]] = {}
    for topic, number in partitions:
        wanted.setdefault(topic, []).append(number)
    if not wanted:
        return _Logs({}, {})
    try:
        with scan(wanted, columns=[], threads=1, **admin.reading()) as planned:
            starts = {(one.topic, one.partition): one.start for one in planned.progress()}
            return _Logs(starts, planned.topic_ids)
    except ScanError as error:
        raise MirrorError(f"{admin.cluster.alias}: {error}") from error


def compare(source: Side, target: Side, *, is_compacted: bool) -> Verdict:
    """Raises MirrorError if they cannot be read."""
    verdict = Verdict(source.topic, source.partition, target.topic)
    try:
        if is_compacted:
            _compare_keys(source, target, verdict)
        else:
            _compare_ranges(source, target, verdict)
    except ScanError as error:
        raise MirrorError(f"{error}", "verify again") from error
    return verdict


def _compare_ranges(source: Side, target: Side, verdict: Verdict) -> None:
    skips = (0, 0)
    if source.has_lost or target.has_lost:
        here, there = source.record_count(), target.record_count()
        # Who has lost its beginning may have fewer.
        fewest = min(
            here if source.has_lost else max(here, there),
            there if target.has_lost else max(here, there),
        )
        skips = (max(0, here - fewest), max(0, there - fewest))
    for at_source, at_target in zip_longest(
        ranges(source.batches(COLUMNS), skips[0]), ranges(target.batches(COLUMNS), skips[1])
    ):
        verdict.records += at_source.records if at_source is not None else 0
        verdict.difference = _difference(at_source, at_target)
        if verdict.difference:
            return


def _difference(source: RangeDigest | None, target: RangeDigest | None) -> str:
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
    if source.digests == target.digests:
        return ""
    pairs = zip(_COMPARED, source.digests, target.digests, strict=True)
    parts = [name for name, here, there in pairs if here != there]
    return f"other {' and '.join(parts)} at {where}"


@dataclass
class _Keys:
    """The last record of each key in a pass, and keys that have records behind those compared."""

    last: dict[bytes, bytes | None] = field(default_factory=dict)
    later: set[bytes] = field(default_factory=set)
    records: int = 0


class _TooManyKeysError(Exception):
    pass


def _compare_keys(source: Side, target: Side, verdict: Verdict) -> None:
    passes = 1
    while passes <= PASSES_MAX:
        verdict.records, verdict.keys, verdict.difference = 0, 0, ""
        try:
            for number in range(passes):
                _compare_pass(source, target, verdict, (number, passes))
                if verdict.difference:
                    return
        except _TooManyKeysError:
            passes *= 2
        else:
            return
    raise MirrorError(f"partition {source.partition} of topic {source.topic} has too many keys")


def _compare_pass(source: Side, target: Side, verdict: Verdict, part: tuple[int, int]) -> None:
    here, there = _keys(source, part), _keys(target, part)
    # Compaction keeps the last record of a key, which may lie behind what is compared.
    later = here.later | there.later
    lacking = source.has_lost or target.has_lost
    verdict.records += here.records
    verdict.keys = (verdict.keys or 0) + len(here.last)
    different = 0
    for key in here.last.keys() | there.last.keys():
        if key in later or (lacking and not (key in here.last and key in there.last)):
            continue
        different += here.last.get(key) != there.last.get(key)
    if different:
        keys = "1 key has" if different == 1 else f"{different} keys have"
        verdict.difference = f"{keys} another last record"


def _keys(side: Side, part: tuple[int, int]) -> _Keys:
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
                found.last[known] = record_digest(value, headers, timestamp)
                found.records += 1
            if len(found.last) + len(found.later) > KEYS_MAX:
                raise _TooManyKeysError
    return found
