"""One transaction after the other: what is in it, and when it is committed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pyrklog.mirror import MirrorError, Names, Pace, Policy
from pyrklog.mirror.copy import COLUMNS, TRANSACTION_BYTES, WRITTEN, Copier
from pyrklog.mirror.spans import Span
from pyrklog.mirror.state import Partition, Progress, Row, read_spans, read_state
from pyrklog.scanning import LeaderNotAvailableError, PartitionProgress

NAMES = Names("east", "west", Policy.PREFIX, "east")
FOREVER = float("inf")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Written = tuple[str, int, bytes | None, bytes | None]


class Target:
    """Rows by transaction; ``aborted`` is what no commit followed."""

    def __init__(self) -> None:
        self.transactions: list[list[Written]] = []
        self.open: list[Written] = []
        self.times: list[int] = []
        """Timestamps in microseconds."""

    def send(self, batch: pa.RecordBatch) -> None:
        assert tuple(batch.schema.names) == WRITTEN
        columns = (
            batch.column(name).to_pylist() for name in ("topic", "partition", "key", "value")
        )
        self.open += zip(*columns, strict=True)
        self.times += batch.column("timestamp").cast(pa.int64()).to_pylist()

    def commit(self) -> None:
        self.transactions.append(self.open)
        self.open = []

    def records(self) -> list[list[Written]]:
        return [
            [row for row in rows if not row[0].startswith("pyrklog-mirror.")]
            for rows in self.transactions
        ]

    def progress(self) -> dict[Partition, Progress]:
        rows = [row for rows in self.transactions for row in rows]
        topic = NAMES.state_topic
        return read_state(topic, [row[2:] for row in rows if row[0] == topic]).partitions

    def spans(self) -> list[tuple[Partition, list[Span]]]:
        rows = [row for rows in self.transactions for row in rows]
        topic = NAMES.offsets_topic
        return list(read_spans(topic, [row[2:] for row in rows if row[0] == topic]))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Scan:
    """Batches of one topic: (partition, offsets) each; a batch has ``size`` bytes and takes
    ``seconds``. ``ends``: where the scan ends in each partition."""

    def __init__(
        self,
        batches: list[tuple[int, list[int]]],
        ends: dict[int, int],
        *,
        starts: dict[int, int] | None = None,
        clock: Clock | None = None,
        seconds: float = 0.0,
        size: int = 100,
        topic_id: str = "id",
        epoch: int = 3,
        failure: Exception | None = None,
    ) -> None:
        self._batches, self._ends = batches, ends
        self._starts = starts or {}
        self._clock, self._seconds, self._size = clock or Clock(), seconds, size
        self._taken: list[tuple[int, list[int]]] = []
        self._has_ended = False
        self.batches_given: list[pa.RecordBatch] = []
        self._epoch, self._failure = epoch, failure
        self.topic_ids = {"t": topic_id}

    def __iter__(self) -> Iterator[object]:
        yield from self.batches_given
        for partition, offsets in self._batches:
            self._clock.now += self._seconds
            self._taken.append((partition, offsets))
            yield batch(partition, offsets)
        if self._failure is not None:
            raise self._failure
        self._has_ended = True

    def progress(self) -> list[PartitionProgress]:
        return [self._of(partition) for partition in self._ends]

    def _of(self, partition: int) -> PartitionProgress:
        taken = [offsets for number, offsets in self._taken if number == partition]
        start, end = self._starts.get(partition, 0), self._ends[partition]
        position = end if self._has_ended else taken[-1][-1] + 1 if taken else start
        records = sum(map(len, taken))
        size = self._size * len(taken)
        epoch = self._epoch
        return PartitionProgress("t", partition, start, position, end, epoch, records, size, 0)


def batch(partition: int, offsets: list[int]) -> pa.RecordBatch:
    count = len(offsets)
    columns: dict[str, Any] = {
        "key": pa.array([b"%d" % one for one in offsets], pa.binary()),
        "value": pa.array([b"v"] * count, pa.binary()),
        "topic": pa.array(["t"] * count, pa.string()),
        "partition": pa.array([partition] * count, pa.int32()),
        "headers": pa.nulls(count, HEADERS),
        "timestamp": pa.array([1] * count, pa.timestamp("us", "UTC")),
        "offset": pa.array(offsets, pa.int64()),
    }
    return pa.record_batch({name: columns[name] for name in COLUMNS})


def copier(
    target: Target,
    clock: Clock | None = None,
    pace: Pace | None = None,
    progress: dict[Partition, Progress] | None = None,
) -> Copier:
    clock = clock or Clock()
    ends = {("east.t", 0): 50, ("east.t", 1): 0}
    return Copier(
        NAMES, target, dict(progress or {}), ends, pace or Pace(), clock=clock, sleep=clock.sleep
    )


def test_records_and_positions_are_in_one_transaction() -> None:
    target = Target()
    scan = Scan([(0, [3, 4]), (1, [0])], {0: 6, 1: 1}, starts={0: 3})
    copied = copier(target)
    assert copied.copy(scan, FOREVER)
    assert target.records() == [
        [("east.t", 0, b"3", b"v"), ("east.t", 0, b"4", b"v"), ("east.t", 1, b"0", b"v")]
    ]
    found = target.progress()
    assert found == copied.progress
    one = found["t", 0]._replace(at_ms=0)
    assert one == Progress(
        "east.t",
        6,
        3,
        52,
        target_begin=50,
        begin=3,
        records=2,
        bytes=100,
        topic_id="id",
        span=Span(3, 50, 2),
    )
    assert target.spans() == [(("t", 0), [Span(3, 50, 2)]), (("t", 1), [Span(0, 0, 1)])]


def test_each_transaction_has_a_marker_behind_its_records() -> None:
    target, clock = Target(), Clock()
    scan = Scan([(0, [0, 1]), (0, [2]), (0, [5])], {0: 6}, clock=clock, seconds=2.0)
    copied = copier(target, clock)
    assert copied.copy(scan, FOREVER)
    assert [len(rows) for rows in target.records()] == [2, 1, 1]
    spans = [span for _, some in target.spans() for span in some]
    assert spans == [Span(0, 50, 2), Span(2, 53, 1), Span(5, 55, 1)]
    assert copied.ends["east.t", 0] == 57
    assert copied.spans["t", 0].translate(2) == 53
    last = target.progress()["t", 0]
    assert (last.position, last.records, last.bytes, last.target_end) == (6, 4, 300, 56)


def test_an_end_without_records_is_written_once() -> None:
    target = Target()
    copied = copier(target)
    assert copied.copy(Scan([], {0: 9}), FOREVER)
    assert target.records() == [[]]
    assert copied.progress["t", 0].position == 9
    assert copied.copy(Scan([], {0: 9}, starts={0: 9}), FOREVER)
    assert len(target.transactions) == 1


def test_a_marker_at_the_end_keeps_what_is_known_of_the_target() -> None:
    target, clock = Target(), Clock()
    copied = copier(target, clock)
    scan = Scan([(0, [0, 1])], {0: 3}, clock=clock, seconds=2.0)
    assert copied.copy(scan, FOREVER)
    assert len(target.transactions) == 2
    one = copied.progress["t", 0]
    assert (one.position, one.records, one.target_end, one.span) == (3, 2, 52, Span(0, 50, 2))


def test_a_transaction_is_committed_at_its_size() -> None:
    target = Target()
    scan = Scan([(0, [0]), (0, [1]), (0, [2])], {0: 3}, size=TRANSACTION_BYTES // 2)
    assert copier(target).copy(scan, FOREVER)
    assert [len(rows) for rows in target.records()] == [2, 1]


def test_a_long_round_ends_with_a_commit() -> None:
    target, clock = Target(), Clock()
    scan = Scan([(0, [n]) for n in range(10)], {0: 10}, clock=clock, seconds=2.0)
    copied = copier(target, clock)
    assert not copied.copy(scan, until=5.0)
    assert target.open == []
    assert copied.progress["t", 0].position == 3


def test_the_rate_is_kept_and_no_transaction_stays_open_meanwhile() -> None:
    target, clock = Target(), Clock()
    pace = Pace(commit_s=30.0, rate_bytes=1000)
    scan = Scan([(0, [n]) for n in range(10)], {0: 10}, size=3000)
    assert copier(target, clock, pace).copy(scan, FOREVER)
    assert clock.now == pytest.approx(30.0)
    assert [len(rows) for rows in target.records() if rows] == [1] * 10


def test_a_slow_source_owes_nothing() -> None:
    target, clock = Target(), Clock()
    scan = Scan([(0, [n]) for n in range(5)], {0: 5}, clock=clock, seconds=4.0, size=1000)
    assert copier(target, clock, Pace(rate_bytes=1000)).copy(scan, FOREVER)
    assert clock.now == pytest.approx(5 * 4.0)


def test_a_topic_made_anew_stops_the_mirror() -> None:
    target = Target()
    copied = copier(target)
    copied.copy(Scan([(0, [0])], {0: 1}), FOREVER)
    with pytest.raises(MirrorError, match="topic t was deleted at the source") as refused:
        copied.copy(Scan([(0, [1])], {0: 2}, topic_id="other"), FOREVER)
    assert refused.value.fix is not None
    assert "--again t" in refused.value.fix
    assert len(target.records()) == 1


def test_what_others_wrote_is_noticed() -> None:
    copied = copier(Target())
    copied.copy(Scan([(0, [0]), (1, [0])], {0: 1, 1: 1}), FOREVER)
    now = {("east.t", 0): 52, ("east.t", 1): 2}
    assert copied.is_behind(now | {("east.t", 0): 51})
    assert not copied.is_behind(now | {("east.t", 1): 4})
    assert copied.forget_foreign(now) == []
    assert copied.forget_foreign(now | {("east.t", 1): 4}) == [("east.t", 1)]
    assert copied.spans["t", 0].translate(0) == 50
    assert ("t", 1) not in copied.spans
    copied.copy(Scan([(1, [1])], {1: 2}, starts={1: 1}), FOREVER)
    assert copied.spans["t", 1].translate(1) == 4


def test_spans_of_an_earlier_copy_are_not_used() -> None:
    known = Progress("east.t", 5, 0, 60, target_begin=50)
    copied = copier(Target(), progress={("t", 0): known})
    copied.learn_past(("t", 0), [Span(0, 10, 5), Span(0, 50, 5)])
    assert copied.spans["t", 0].translate(2) == 52


def test_pace_of_batches() -> None:
    assert Pace().batch_bytes() == 8 << 20
    assert Pace(rate_bytes=1000).batch_bytes() == 64 << 10
    assert Pace(rate_bytes=2 << 20).batch_bytes() == 1 << 20


def test_a_producer_that_nobody_needs_is_idle() -> None:
    clock = Clock()
    copied = copier(Target(), clock)
    clock.now = 10.0
    copied.copy(Scan([], {0: 3}), FOREVER)
    clock.now = 15.0
    copied.copy(Scan([], {0: 3}, starts={0: 3}), FOREVER)
    assert copied.idle_s == 5.0


def test_the_leader_epoch_is_that_of_the_position_also_without_records() -> None:
    """Else a leader that has written nothing but a marker looks like one that has lost records."""
    target = Target()
    copied = copier(target)
    copied.copy(Scan([(0, [0, 1])], {0: 2}), FOREVER)
    assert copied.copy(Scan([], {0: 4}, starts={0: 2}, epoch=5), FOREVER)
    one = target.progress()["t", 0]
    assert (one.position, one.epoch, one.span) == (4, 5, Span(0, 50, 2))


def test_what_was_read_before_a_failure_is_committed() -> None:
    target = Target()
    copied = copier(target)
    failure = LeaderNotAvailableError("partition 1 of topic t has no leader")
    with pytest.raises(LeaderNotAvailableError):
        copied.copy(Scan([(0, [0, 1])], {0: 9, 1: 9}, failure=failure), FOREVER)
    assert [len(rows) for rows in target.records()] == [2]
    assert target.open == []
    found = {number: one.position for (_, number), one in target.progress().items()}
    assert found == {0: 2, 1: 0}


def test_records_without_a_timestamp_stay_without() -> None:
    target = Target()
    given = batch(0, [0, 1])
    times = pa.array([5000, None], pa.timestamp("us", "UTC"))
    given = given.set_column(given.schema.get_field_index("timestamp"), "timestamp", times)
    scan = Scan([], {0: 2})
    scan.batches_given = [given]
    copier(target).copy(scan, FOREVER)
    assert target.times[:2] == [5000, -1000]


def test_topics_of_the_target_are_known_by_their_ids() -> None:
    target, clock = Target(), Clock()
    known = Progress("east.t", 5, 0, 50, target_id="old")
    ends = {("east.t", 0): 50}
    copied = Copier(
        NAMES, target, {("t", 0): known}, ends, Pace(), target_ids={"east.t": "B"}, clock=clock
    )
    copied.copy(Scan([(0, [5]), (1, [0])], {0: 6, 1: 1}, starts={0: 5}), FOREVER)
    assert [one.target_id for one in target.progress().values()] == ["B", "B"]


def test_what_is_due_goes_with_the_next_transaction_also_without_records() -> None:
    target = Target()
    due = [[Row("heartbeats", b"k", b"v")], [], [Row("heartbeats", b"k", b"w")]]
    ends = {("east.t", 0): 0}
    copied = Copier(NAMES, target, {}, ends, Pace(), due=lambda: due.pop(0))
    copied.copy(Scan([(0, [0])], {0: 1}), FOREVER)
    copied.copy(Scan([], {0: 1}, starts={0: 1}), FOREVER)
    copied.commit([])
    assert [[row[0] for row in rows if row[0] == "heartbeats"] for rows in target.records()] == [
        ["heartbeats"],
        ["heartbeats"],
    ]
    assert copied.ends["east.t", 0] == 2
