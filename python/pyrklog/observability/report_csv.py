"""CSV files, as Kafka's own CSV reporter wrote them: one for each metric.

``METRIC.csv`` has the columns ``time`` (UTC, ISO 8601), the metric's labels, and ``value``: a row
for each series and interval, in order of time. A file that would exceed its bound, or that this
version would not continue, becomes ``METRIC.1.csv`` in place of the one before.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyrklog.observability.metric import Metric
from pyrklog.observability.samples import Sample

FILE_BYTES_MAX = 8 << 20


class CsvReporter:
    name = "csv"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._continued: set[str] = set()
        """Metrics whose files were looked at."""

    def report(self, at: float, samples: Sequence[Sample]) -> None:
        time = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        rows: dict[Metric, list[tuple[str, ...]]] = {}
        for metric, labels, value in samples:
            rows.setdefault(metric, []).append((time, *labels, _number(value)))
        self._directory.mkdir(parents=True, exist_ok=True)
        for metric, found in rows.items():
            self._append(metric, _encoded(found))

    def close(self) -> None:
        """Nothing is open between reports."""

    def _append(self, metric: Metric, rows: bytes) -> None:
        path = self._directory / f"{metric.name}.csv"
        heading = _encoded([("time", *metric.labels, "value")])
        size = _size(path)
        is_new = metric.name not in self._continued
        if size and (
            size + len(rows) > FILE_BYTES_MAX or (is_new and not _continues(path, heading))
        ):
            path.replace(path.with_suffix(".1.csv"))
            size = 0
        with path.open("ab", buffering=0) as file:
            try:
                _write(file, rows if size else heading + rows)
            except OSError:
                # Half a row would spoil the next one.
                os.ftruncate(file.fileno(), size)
                raise
        self._continued.add(metric.name)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _encoded(rows: Sequence[tuple[str, ...]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode(errors="surrogateescape")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _continues(path: Path, heading: bytes) -> bool:
    """Whether the file has these columns and whole rows."""
    with path.open("rb") as file:
        is_same = file.read(len(heading)) == heading
        file.seek(-1, os.SEEK_END)
        return is_same and file.read() == b"\n"


def _write(file: io.FileIO, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
