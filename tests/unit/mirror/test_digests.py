"""Digests do not depend on how records lie in batches, and on nothing else."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrklog.mirror.digests import RangeDigest, ranges, record_digest

TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "timestamp": pa.timestamp("us", "UTC"),
    "offset": pa.int64(),
}
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int]
RECORDS: list[Record] = [
    (b"k", b"v", None, 1),
    (None, b"", [("a", b"1"), ("a", None)], 2),
    (b"", None, [], 3),
    (b"ab", b"c", [("", b"")], 4),
]


def batch(records: list[Record], first: int = 0) -> pa.RecordBatch:
    headers = [
        None if one[2] is None else [{"key": key, "value": value} for key, value in one[2]]
        for one in records
    ]
    columns = {
        "key": [one[0] for one in records],
        "value": [one[1] for one in records],
        "headers": headers,
        "timestamp": [one[3] for one in records],
        "offset": list(range(first, first + len(records))),
    }
    return pa.record_batch({name: pa.array(columns[name], kind) for name, kind in TYPES.items()})


def digests(found: Iterator[RangeDigest]) -> list[tuple[int, tuple[bytes, ...]]]:
    return [(one.records, one.digests) for one in found]


@settings(deadline=None)
@given(st.lists(st.integers(1, 7), max_size=8), st.integers(1, 9))
def test_cuts_do_not_matter(cuts: list[int], records: int) -> None:
    whole = batch(RECORDS * 5)
    parts, at = [], 0
    for length in cuts:
        parts.append(whole.slice(at, length))
        at = min(at + length, whole.num_rows)
    parts.append(whole.slice(at))
    found = list(ranges(parts, records=records))
    assert digests(iter(found)) == digests(ranges([whole], records=records))
    assert [one.first for one in found] == list(range(0, whole.num_rows, records))
    assert found[-1].last == whole.num_rows - 1


CHANGES: list[tuple[int, Record]] = [
    (0, (None, b"v", None, 1)),
    (0, (b"k", None, None, 1)),
    (0, (b"kv", b"", None, 1)),
    (0, (b"k", b"v", [("a", None)], 1)),
    (0, (b"k", b"v", None, 2)),
    (1, (None, b"", [("a", None), ("a", b"1")], 2)),
    (2, (b"", b"", [], 3)),
    (3, (b"a", b"c", [("", b"")], 4)),
    (3, (b"ab", b"c", [("", None)], 4)),
]


@pytest.mark.parametrize(("at", "record"), CHANGES)
def test_every_change_shows(at: int, record: Record) -> None:
    changed = [*RECORDS[:at], record, *RECORDS[at + 1 :]]
    assert digests(ranges([batch(changed)])) != digests(ranges([batch(RECORDS)]))


def test_offsets_and_empty_headers_do_not_matter() -> None:
    other = [(b"k", b"v", [], 1), *RECORDS[1:]]
    assert digests(ranges([batch(other, first=70)])) == digests(ranges([batch(RECORDS)]))


def test_records_at_the_beginning_are_skipped() -> None:
    parts = [batch(RECORDS), batch(RECORDS, 4)]
    assert digests(ranges(parts, skip=5)) == digests(ranges([batch(RECORDS[1:], 5)]))
    assert list(ranges(parts, skip=8)) == []


def test_a_tombstone_has_no_digest() -> None:
    assert record_digest(None, None, 1) is None
    assert record_digest(b"", None, 1) == record_digest(b"", [], 1)
    assert record_digest(b"", None, 1) != record_digest(b"", None, 2)
