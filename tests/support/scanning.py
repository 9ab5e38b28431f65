"""Scans as rows: by pyarrow, which reads what ``pyrklog.scan`` gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

import pyrklog
from pyrklog.scanning import Scan

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
