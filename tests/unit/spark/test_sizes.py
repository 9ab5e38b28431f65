"""Sizes of records, estimated from scans of logs that have holes or are gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pyarrow
import pytest

from pyrklog.scanning import OffsetOutOfRangeError, ScanError, TopicDeletedError, UnknownTopicError
from pyrklog.spark import sizes
from pyrklog.spark.connection import Connection
from pyrklog.spark.offsets import OffsetRange, TopicPartition
from pyrklog.spark.sizes import OTHER_COLUMNS_BYTES, SAMPLE_OFFSETS, SampledSizes

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class FakeScans:
    """Logs with records of given lengths at given offsets. A scan of a topic in ``failures`` gives
    its first batch, if there is one, and fails."""

    def __init__(self, logs: dict[TopicPartition, dict[int, int]]) -> None:
        self.logs = logs
        self.failures: dict[str, ScanError] = {}
        self.rows = 0
        self.scans = 0

    def __call__(
        self,
        topics: dict[str, list[int]],
        *,
        start: dict[str, dict[int, int]],
        end: dict[str, dict[int, int]],
        columns: list[str],
        batch_rows: int,
        **_: object,
    ) -> Any:
        self.scans += 1

        def batches() -> Iterator[pyarrow.RecordBatch]:
            for topic, numbers in topics.items():
                for number in numbers:
                    log = self.logs.get(TopicPartition(topic, number), {})
                    low, high = start[topic][number], end[topic][number]
                    rows = [row for row in sorted(log.items()) if low <= row[0] < high]
                    for first in range(0, len(rows), batch_rows):
                        some = rows[first : first + batch_rows]
                        self.rows += len(some)
                        yield self._batch(topic, number, some).select(columns)
            for topic in topics:
                if topic in self.failures:
                    raise self.failures[topic]

        reading = nullcontext(type("Reading", (), {"reader": staticmethod(batches)}))
        return reading

    @staticmethod
    def _batch(topic: str, number: int, rows: list[tuple[int, int]]) -> pyarrow.RecordBatch:
        count = len(rows)
        return pyarrow.RecordBatch.from_pydict(
            {
                "topic": [topic] * count,
                "partition": [number] * count,
                "offset": [offset for offset, _ in rows],
                "key": pyarrow.array([None] * count, pyarrow.binary()),
                "value": [b"v" * length for _, length in rows],
            }
        )


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> FakeScans:
    made = FakeScans({})
    monkeypatch.setattr(sizes, "scan", made)
    return made


def estimated(*ranges: tuple[TopicPartition, int, int]) -> dict[TopicPartition, float]:
    sampled = SampledSizes(Connection("h:1"), with_headers=False)
    return sampled.record_bytes([OffsetRange(*place, start, end) for place, start, end in ranges])


def test_a_sample_stands_for_its_range(scans: FakeScans) -> None:
    scans.logs = {A0: dict.fromkeys(range(1000), 60), A1: {5: 160, 7: 160}}
    found = estimated((A0, 0, 1000), (A1, 0, 8))
    # Two records within three offsets.
    assert found == {A0: 60 + OTHER_COLUMNS_BYTES, A1: pytest.approx(400 / 3)}
    assert scans.scans == 1
    assert scans.rows == SAMPLE_OFFSETS + 2


def test_a_hole_at_the_beginning_is_passed(scans: FakeScans) -> None:
    """A limit by bytes would else take as many offsets as bytes."""
    scans.logs = {A0: dict.fromkeys(range(5000, 9000), 960), A1: dict.fromkeys(range(1000), 60)}
    assert estimated((A0, 0, 9000), (A1, 0, 1000)) == {A0: 1000, A1: 100}
    assert scans.rows == 2 * SAMPLE_OFFSETS


def test_few_records_before_a_hole_count_as_what_they_are(scans: FakeScans) -> None:
    scans.logs = {A0: {0: 960} | dict.fromkeys(range(5000, 9000), 960)}
    assert estimated((A0, 0, 9000)) == {A0: 1000}


def test_a_sample_of_large_records_ends_early(
    scans: FakeScans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it did not reach counts as the other partitions of its topic, or is looked at alone."""
    monkeypatch.setattr(sizes, "SAMPLE_BYTES_MAX", 10_000)
    scans.logs = {
        A0: dict.fromkeys(range(1000), 60),
        A1: dict.fromkeys(range(1000), 960),
        B0: dict.fromkeys(range(1000), 160),
    }
    found = estimated((A0, 0, 1000), (A1, 0, 1000), (B0, 0, 1000))
    assert found == {A0: 100, A1: 100, B0: 200}
    assert scans.rows == 2 * SAMPLE_OFFSETS


def test_nothing_but_a_hole(scans: FakeScans) -> None:
    scans.logs = {A0: dict.fromkeys(range(5000, 9000), 960)}
    assert estimated((A0, 0, 5000), (A1, 0, 50), (B0, 7, 7)) == {A0: 1, A1: 1}
    assert scans.rows == 0


@pytest.mark.parametrize("failure", [UnknownTopicError, TopicDeletedError, OffsetOutOfRangeError])
def test_a_topic_that_is_gone_stops_nothing(
    scans: FakeScans, failure: type[ScanError], caplog: pytest.LogCaptureFixture
) -> None:
    """A batch that was planned is asked about at each restart."""
    caplog.set_level("INFO")
    scans.logs = {A0: dict.fromkeys(range(1000), 60)}
    scans.failures["b"] = failure("gone")
    assert estimated((A0, 0, 1000), (B0, 0, 1000)) == {A0: 100, B0: 1}
    assert scans.scans == 3
    assert "records in topic b are not known: gone" in caplog.text


def test_what_was_read_of_a_topic_counts(scans: FakeScans) -> None:
    scans.logs = {A0: dict.fromkeys(range(1000), 60)}
    scans.failures["a"] = OffsetOutOfRangeError("gone")
    assert estimated((A0, 0, 1000), (A1, 0, 1000)) == {A0: 100, A1: 1}


def test_a_range_that_goes_while_its_hole_is_passed(
    scans: FakeScans, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = SampledSizes._sample

    def then_gone(*arguments: Any) -> set[str]:
        found = sample(*arguments)
        scans.failures["a"] = TopicDeletedError("gone")
        return found

    monkeypatch.setattr(SampledSizes, "_sample", then_gone)
    assert estimated((A0, 0, 1000)) == {A0: 1}


def test_a_cluster_that_does_not_answer_is_an_error(scans: FakeScans) -> None:
    scans.failures["a"] = ScanError("no broker")
    with pytest.raises(ScanError, match="no broker"):
        estimated((A0, 0, 10))
