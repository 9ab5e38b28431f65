"""The last value of each key beside a dict, in memory and through files."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from pyrklog.spark.last_values import NullKeyError, columns_to_read, last_values, local_folder

ALL = ["key", "value", "offset"]
KIB = 1 << 10


def batch(rows: Sequence[tuple[bytes | None, bytes | None]], first: int) -> pa.RecordBatch:
    keys, values = zip(*rows, strict=True)
    offsets = pa.array(range(first, first + len(rows)), pa.int64())
    columns = [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), offsets]
    return pa.RecordBatch.from_arrays(columns, ALL)


def written(
    seed: int, batches: int, keys: int, tombstones: float
) -> tuple[list[pa.RecordBatch], dict[bytes, tuple[bytes, int]]]:
    """Batches, and the table that they make by the plain computation."""
    chance, offset = random.Random(seed), 0
    made: list[pa.RecordBatch] = []
    table: dict[bytes, tuple[bytes, int]] = {}
    for _ in range(batches):
        rows: list[tuple[bytes | None, bytes | None]] = []
        for place in range(offset, offset + 200):
            key = b"k%d" % chance.randrange(keys)
            value = None if chance.random() < tombstones else chance.randbytes(20)
            rows.append((key, value))
            table.pop(key, None)
            if value is not None:
                table[key] = (value, place)
        made.append(batch(rows, offset))
        # Compaction and markers leave gaps.
        offset += 200 + chance.randrange(5)
    return made, table


@pytest.mark.parametrize("held_bytes_max", [2 * KIB, 20 * KIB, 1 << 30])
@pytest.mark.parametrize("tombstones", [0.0, 0.1, 0.7])
def test_the_table_is_that_of_a_dict(
    tmp_path: Path, held_bytes_max: int, tombstones: float
) -> None:
    batches, table = written(held_bytes_max, 30, 1500, tombstones)
    rows = [
        row
        for found in last_values(batches, ALL, "t-0", str(tmp_path), held_bytes_max=held_bytes_max)
        for row in found.to_pylist()
    ]
    assert len(rows) == len(table)
    assert {row["key"]: (row["value"], row["offset"]) for row in rows} == table
    assert list(tmp_path.iterdir()) == []


def test_a_tombstone_hides_a_value_that_is_in_a_file(tmp_path: Path) -> None:
    """The only rows of the last batch are tombstones of all that went to files before."""
    values = [batch([(b"%d" % number, bytes(100))], number) for number in range(500)]
    tombstones = batch([(b"%d" % number, None) for number in range(499)], 500)
    found = last_values([*values, tombstones], ALL, "t-0", str(tmp_path), held_bytes_max=KIB)
    assert [row["key"] for one in found for row in one.to_pylist()] == [b"499"]


def test_memory_stays_bounded(tmp_path: Path) -> None:
    """Of 32 MiB of different keys 1 MiB is held: a dict would have all of them."""
    limit, most = 1 << 20, 0
    base = pa.total_allocated_bytes()

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for number in range(160):
            rows: list[tuple[bytes | None, bytes | None]] = [
                (b"%d" % key, bytes(1000)) for key in range(number * 200, number * 200 + 200)
            ]
            yield batch(rows, number * 200)
            most = max(most, pa.total_allocated_bytes() - base)

    count = 0
    for found in last_values(batches(), ["offset"], "t-0", str(tmp_path), held_bytes_max=limit):
        count += found.num_rows
    for found in last_values(batches(), ALL, "t-0", str(tmp_path), held_bytes_max=limit):
        most = max(most, pa.total_allocated_bytes() - base)
        count += found.num_rows
    assert count == 2 * 160 * 200
    assert limit // 2 < most < 4 * limit


def test_only_wanted_columns_come(tmp_path: Path) -> None:
    assert columns_to_read(["offset"]) == ["offset", "key", "value"]
    assert columns_to_read(["value", "key"]) == ["value", "key", "offset"]
    found = list(last_values([batch([(b"a", b"1"), (b"b", None)], 7)], ["offset"], "t-0"))
    assert [one.to_pydict() for one in found] == [{"offset": [7]}]
    assert list(last_values([], ["offset"], "t-0")) == []


def test_a_record_without_a_key_is_refused() -> None:
    batches = [batch([(b"a", b"1")], 3), batch([(b"b", None), (None, b"2"), (None, None)], 4)]
    with pytest.raises(NullKeyError, match="offset 5 of t-0 has no key"):
        list(last_values(batches, ALL, "t-0"))


def test_files_are_closed_if_rows_are_not_wanted_any_more(tmp_path: Path) -> None:
    opened = len(list(Path("/proc/self/fd").iterdir()))
    batches, _ = written(1, 30, 1500, 0.0)
    rows = last_values(batches, ALL, "t-0", str(tmp_path), held_bytes_max=2 * KIB)
    next(rows)
    assert len(list(Path("/proc/self/fd").iterdir())) > opened
    rows.close()  # type: ignore[attr-defined]
    assert len(list(Path("/proc/self/fd").iterdir())) == opened


def test_files_lie_where_spark_wants_them(tmp_path: Path) -> None:
    assert local_folder({}) is None
    assert local_folder({"SPARK_LOCAL_DIRS": str(tmp_path / "absent")}) is None
    assert local_folder({"SPARK_LOCAL_DIRS": f"{tmp_path}/absent,{tmp_path}"}) == str(tmp_path)
