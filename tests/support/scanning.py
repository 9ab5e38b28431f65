"""Scans as rows: by pyarrow, which reads what ``pyrklog.scan`` gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

import pyrklog
from pyrklog.scanning import BadValueError, Scan

Row = dict[str, Any]


def rows(scan: Scan) -> list[Row]:
    """All rows, read through the C stream."""
    found: list[Row] = pa.RecordBatchReader.from_stream(scan).read_all().to_pylist()
    return found


def iterated(scan: Iterable[Any]) -> list[Row]:
    """All rows, batch by batch: raises what the scan raises."""
    return [row for batch in scan for row in pa.record_batch(batch).to_pylist()]


def values(bootstrap: str, topic: str, **options: Any) -> list[bytes | None]:
    """The values of a topic of one partition."""
    scan = pyrklog.scan(topic, columns=["value"], bootstrap_servers=bootstrap, **options)
    return [row["value"] for row in iterated(scan)]


def check_bad_value(scan: Callable[..., Scan], topic: str) -> None:
    """A topic of 2000 records, whose ids are their offsets, has a bad value at offset 777: it costs
    its own row. ``scan`` takes ``on_bad`` and reads offsets and values."""
    expected = [{"offset": n, "value": {"id": n}} for n in range(2000)]
    nulls = scan()
    assert rows(nulls) == [*expected[:777], {"offset": 777, "value": None}, *expected[778:]]
    [figures] = nulls.progress()
    assert (figures.records, figures.bad, figures.position) == (2000, 1, 2000)
    dropping = scan(on_bad="drop")
    assert rows(dropping) == [*expected[:777], *expected[778:]]
    [figures] = dropping.progress()
    assert (figures.records, figures.bad, figures.position) == (1999, 1, 2000)
    place = f"topic {topic} partition 0 offset 777: the value does not fit the schema: "
    with pytest.raises(BadValueError, match=place):
        iterated(scan(on_bad="fail"))
