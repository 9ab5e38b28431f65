"""One transaction after the other: what is in it, and when it is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from pyrklog.mirror import MirrorError, Names, Pace, Policy
from pyrklog.mirror.copy import COLUMNS, SLOWEST_S, TRANSACTION_BYTES, WRITTEN, Copier
from pyrklog.mirror.spans import Span
from pyrklog.mirror.state import Partition, Progress, Row, read_spans, read_state
from pyrklog.mirror.transaction_size import BYTES_MAX, TransactionSize
from pyrklog.scanning import LeaderNotAvailableError, PartitionProgress

NAMES = Names("east", "west", Policy.PREFIX, "east")
FOREVER = float("inf")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Written = tuple[str, int, bytes | None, bytes | None]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Target:
    """Rows by transaction. With a clock it takes ``speed`` bytes of values a second, of what
    exceeds ``memory`` at once and of the rest at a commit."""

    def __init__(self, clock: Clock | None = None, speed: float = 0.0, memory: float = 0.0) -> None:
        self._clock, self._speed, self._memory = clock, speed, memory
        self._queued = 0.0
        self.commits: list[float] = []
        """When they were."""
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
        self._queued += batch.column("value").nbytes
        self._take(self._queued - self._memory)

    def commit(self) -> None:
        self._take(self._queued)
        if self._clock is not None:
            self.commits.append(self._clock.now)
        self.transactions.append(self.open)
        self.open = []

    def _take(self, size: float) -> None:
        if size > 0:
            self._queued -= size
            if self._clock is not None:
                self._clock.now += size / self._speed

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
        value: bytes = b"v",
    ) -> None:
        self._value = value
        self._batches, self._ends = batches, ends
        self._starts = starts or {}
        self._clock, self._seconds, self._size = clock or Clock(), seconds, size
        self._next, self._wait_s = 0, seconds
        self._taken: list[tuple[int, list[int]]] = []
        self._has_ended = False
        self.batches_given: list[pa.RecordBatch] = []
        self._epoch, self._failure = epoch, failure
        self.topic_ids = {"t": topic_id}

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    def next_batch(self, timeout_s: float) -> Any:
        if self.batches_given:
            return self.batches_given.pop(0)
        if self._next == len(self._batches):
            if self._failure is not None:
                raise self._failure
            self._has_ended = True
            return None
        if timeout_s < self._wait_s:
            self._clock.now += timeout_s
            self._wait_s -= timeout_s
            return None
        self._clock.now += self._wait_s
        self._wait_s = self._seconds
        partition, offsets = self._batches[self._next]
        self._next += 1
        self._taken.append((partition, offsets))
        return batch(partition, offsets, self._value)

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


def batch(
    partition: int, offsets: list[int], value: bytes = b"v", topic: str = "t"
) -> pa.RecordBatch:
    count = len(offsets)
    columns: dict[str, Any] = {
        "key": pa.array([b"%d" % one for one in offsets], pa.binary()),
        "value": pa.array([value] * count, pa.binary()),
        "topic": pa.array([topic] * count, pa.string()),
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
    size: TransactionSize | None = None,
    due: Callable[[], Sequence[Row]] = tuple,
) -> Copier:
    clock = clock or Clock()
    ends = {("east.t", 0): 50, ("east.t", 1): 0}
    return Copier(
        NAMES,
        target,
        dict(progress or {}),
        ends,
        pace or Pace(),
        size=size,
        due=due,
        clock=clock,
        sleep=clock.sleep,
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
    # Where the copy begins is written first, while nothing has come.
    assert [len(rows) for rows in target.records()] == [0, 2, 1, 1]
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
    assert [len(rows) for rows in target.records()] == [0, 2, 0]
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
    assert copied.progress["t", 0].position == 2


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
    with pytest.raises(
        MirrorError, match="topic t was deleted and created anew at east"
    ) as refused:
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


MB = 1 << 20


def large(begin: int, end: int) -> Scan:
    """A record of 1 MB a batch."""
    batches = [(0, [number]) for number in range(begin, end)]
    return Scan(batches, {0: end}, starts={0: begin}, size=1, value=bytes(MB))


def rounds(copied: Copier, records: int) -> int:
    """Until all is copied; a scan begins at the first that is not. How many it takes."""
    begin, count = 0, 0
    while begin < records:
        copied.copy(large(begin, records), FOREVER)
        begin, count = copied.progress["t", 0].position, count + 1
    return count


def test_a_target_that_is_slow_gets_transactions_that_are_over_in_time() -> None:
    """It takes 1 MB a second, and the producer has 32 MB in memory."""
    clock = Clock()
    target = Target(clock, speed=MB, memory=32 * MB)
    copied = copier(target, clock)
    assert rounds(copied, 200) == 2
    took = [then - before for before, then in pairwise([0.0, *target.commits])]
    assert max(took) < 45
    assert max(took[1:]) <= 18
    assert len(target.commits) > 200 / 18


def test_a_target_that_becomes_fast_gets_large_transactions_again() -> None:
    clock, size = Clock(), TransactionSize()
    size.took(8 * MB, 60.0)
    assert size.bytes == 2 * MB
    target = Target(clock, speed=1000 * MB)
    copied = copier(target, clock, size=size)
    assert rounds(copied, 2000) > 1
    assert size.bytes == BYTES_MAX


def test_a_round_ends_when_batches_are_to_be_smaller() -> None:
    clock = Clock()
    copied = copier(Target(clock, speed=MB, memory=32 * MB), clock)
    before = copied.batch_bytes()
    assert not copied.copy(large(0, 100), FOREVER)
    assert copied.batch_bytes() <= before // 2


def test_how_long_a_transaction_is_open_counts_from_its_first_row() -> None:
    """Not from the last commit: an idle mirror that another one fences has not run out of time."""
    clock, target = Clock(), Target(memory=MB)
    copied = copier(target, clock)
    clock.now = 100.0
    assert copied.open_s == 0.0
    target.commit = lambda: 1 / 0  # type: ignore[assignment]
    with pytest.raises(ZeroDivisionError):
        copied.copy(Scan([(0, [0])], {0: 1}, clock=clock, seconds=1.0), FOREVER)
    clock.now += 60
    assert copied.open_s == 60.0


def test_copies_of_heartbeats_are_renamed_whatever_the_policy() -> None:
    target = Target()
    names = Names("east", "west", Policy.IDENTITY, "east")
    copied = Copier(names, target, {}, {}, Pace())
    scan = Scan([(0, [0])], {0: 1})
    beats = batch(0, [0], topic="heartbeats")
    scan.batches_given = [pa.concat_batches([beats, batch(0, [1]), beats])]
    copied.copy(scan, FOREVER)
    topics = [row[0] for row in target.records()[0]]
    assert topics == ["east.heartbeats", "t", "east.heartbeats", "t"]


@pytest.mark.parametrize("first", [Span(0, 0, 10), Span(9_000, 0, 10)])
def test_spans_of_an_earlier_copy_to_a_topic_that_was_created_anew_are_not_used(
    first: Span,
) -> None:
    """A group would skip records."""
    known = Progress("east.t", first.source + 20, 0, 21)
    copied = copier(Target(), progress={("t", 0): known})
    second = Span(first.source + 10, 11, 10)
    for one in (Span(0, 0, 8_000), Span(8_000, 8_001, 1_000), first, second):
        copied.learn_past(("t", 0), [one])
    assert len(copied.spans["t", 0]) == 2
    assert copied.spans["t", 0].translate(first.source + 9) == 9
    assert copied.spans["t", 0].translate(first.source + 19) == 20
    assert copied.spans["t", 0].translate(first.source - 1) is None


class Slow(Scan):
    """Of two brokers: the first has one batch at once, the second one 70 s later."""

    def __init__(self, clock: Clock) -> None:
        super().__init__([(0, [0]), (1, [0])], {0: 1, 1: 9}, clock=clock)
        self._seconds = 70.0


def test_a_source_that_sends_slowly_leaves_no_transaction_open() -> None:
    """The target's coordinator would abort it after a minute."""
    target, clock = Target(), Clock()
    times: list[float] = []

    def due() -> list[Row]:
        times.append(clock.now)
        return []

    copied = copier(target, clock, due=due)
    assert copied.copy(Slow(clock), FOREVER)
    assert [len(rows) for rows in target.records() if rows] == [1, 1]
    assert times[0] == pytest.approx(1.0)
    assert copied.progress["t", 1].records == 1


def test_a_round_does_not_end_before_each_partition_was_read_on() -> None:
    """Else the answer on its way is thrown away each time, and nothing of it is ever copied."""
    target, clock = Target(), Clock()
    copied = copier(target, clock)
    assert not copied.copy(Slow(clock), until=60.0)
    assert copied.progress["t", 1].position == 1
    assert 70.0 <= clock.now < 73.0


def test_a_round_ends_once_the_slowest_answer_would_have_come() -> None:
    target, clock = Target(), Clock()
    copied = copier(target, clock)
    slow = Slow(clock)
    slow._seconds = 10_000.0
    assert not copied.copy(slow, until=60.0)
    assert clock.now == pytest.approx(60.0 + SLOWEST_S, abs=2.0)
    assert (copied.progress["t", 0].position, target.open) == (1, [])
