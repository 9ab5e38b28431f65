"""Reads what is new at the source and writes it to the target, one transaction after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyrklog.mirror.errors import MirrorError, how_again
from pyrklog.mirror.groups import Bounds
from pyrklog.mirror.names import CLIENT_ID, Cluster, Names
from pyrklog.mirror.spans import Runs, Segment, Span, Spans, add_offsets, segments
from pyrklog.mirror.state import Partition, Progress, Row, progress_row, spans_row
from pyrklog.mirror.transaction_size import BATCH_BYTES_MIN, TransactionSize
from pyrklog.producing import ProducerSettings
from pyrklog.scanning import PartitionProgress, ScanError

if TYPE_CHECKING:
    import pyarrow

WRITTEN = ("key", "value", "topic", "partition", "headers", "timestamp")
COLUMNS = (*WRITTEN, "offset")
"""Of a scan whose batches are copied."""
TRANSACTION_BYTES = 64 << 20
"""As the source sends them."""
PRODUCER_MEMORY_BYTES = 32 << 20
SCAN_MEMORY_BYTES = 64 << 20
SLOWEST_S = 600.0
"""How much longer a round may last for a broker that sends slowly: a scan waits for its largest
answer for as long, and a round that ends before it has come throws it away."""
CREDIT_S = 1.0
"""What a slow source may make up for later, of the rate."""
WAIT_MIN_S = 0.01
BATCH_BYTES_MAX = 8 << 20
NO_TIMESTAMP_US = -1000
"""A record without a timestamp has -1 ms, in brokers and clients of all formats but the first."""


class Writer(Protocol):
    """A producer with transactions; see :class:`pyrklog.producing.Producer`."""

    def send(self, batch: pyarrow.RecordBatch) -> None: ...
    def commit(self) -> None: ...


class Reading(Protocol):
    """A scan; see :class:`pyrklog.scanning.Scan`."""

    def next_batch(self, timeout_s: float) -> object | None: ...
    @property
    def has_ended(self) -> bool: ...
    def progress(self) -> list[PartitionProgress]: ...
    @property
    def topic_ids(self) -> dict[str, str]: ...


class Sent(NamedTuple):
    """What the open transaction has of a partition, whether the target has taken it or not:
    ``records`` of the source, from offset ``first`` on. ``target_end`` is where the target's
    partition ended before."""

    topic: str
    partition: int
    first: int
    records: int
    target: str
    target_end: int


class Pace(NamedTuple):
    """How often transactions are committed, and how many bytes a second are read; None for no
    limit."""

    commit_s: float = 1.0
    rate_bytes: int | None = None

    def batch_bytes(self) -> int:
        """A batch is not more than half a second's."""
        if self.rate_bytes is None:
            return BATCH_BYTES_MAX
        return max(BATCH_BYTES_MIN, min(BATCH_BYTES_MAX, self.rate_bytes // 2))


def producer_settings(
    names: Names, target: Cluster, codec: str, size: TransactionSize
) -> ProducerSettings:
    return ProducerSettings(
        bootstrap_servers=target.bootstrap,
        columns=list(WRITTEN),
        client_id=CLIENT_ID,
        codec=codec,
        memory_bytes=PRODUCER_MEMORY_BYTES,
        delivery_timeout_ms=size.delivery_timeout_ms,
        request_timeout_ms=size.request_timeout_ms,
        transactional_id=names.transactional_id,
        transaction_timeout_ms=size.timeout_ms,
        security=target.security,
    )


class Copier:
    """Of one producer: after an exception both are done with, and the topic of progress tells how
    far they came.

    ``ends`` are the target's, by its topics' names; they are counted on with what is written.
    ``target_ids`` are those of its topics. ``size`` is how much a transaction may have; it learns
    from each. ``due`` gives rows that go with the next transaction.
    """

    def __init__(
        self,
        names: Names,
        writer: Writer,
        progress: dict[Partition, Progress],
        ends: dict[Partition, int],
        pace: Pace,
        *,
        target_ids: Mapping[str, str] | None = None,
        size: TransactionSize | None = None,
        due: Callable[[], Sequence[Row]] = tuple,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.progress = progress
        self.ends = ends
        self.spans: dict[Partition, Spans] = {}
        self._target_ids = dict(target_ids or {})
        self._due = due
        self._names = names
        self._writer = writer
        self._pace = pace
        self._size = size or TransactionSize()
        self._clock = clock
        self._sleep = sleep
        self._runs: dict[Partition, Runs] = {}
        self._base: dict[Partition, Progress] = {}
        self._open_bytes = 0
        """Of the transaction, as they were read."""
        self.sent_bytes = 0
        """Of the transaction, as they are sent: keys, values and headers."""
        self._sending_s = 0.0
        self._opened_at: float | None = None
        """When the transaction's first rows were sent."""
        self._owed_s = 0.0
        self._paced_at = clock()
        self._begun = clock()
        """When reading for the transaction was."""
        self._written_at = self._begun

    @property
    def open_s(self) -> float:
        """How long the transaction has been open."""
        return 0.0 if self._opened_at is None else self._clock() - self._opened_at

    @property
    def idle_s(self) -> float:
        """Since the last transaction."""
        return self._clock() - self._written_at

    def sent_to(self, target: Partition) -> Sent | None:
        """What the open transaction has for a partition of the target; None if nothing, or if it
        is not known where that partition ended."""
        name, number = target
        end = self.ends.get(target)
        for (topic, partition), runs in self._runs.items():
            if end is not None and partition == number and self._names.at_target(topic) == name:
                return Sent(topic, partition, runs.first, runs.records, name, end)
        return None

    def learn(self, partition: Partition, spans: Iterable[Span]) -> None:
        """Spans of the source's partition, in order."""
        self.spans.setdefault(partition, Spans()).add(spans)

    def learn_past(self, partition: Partition, spans: Iterable[Span]) -> None:
        """Spans that were written before, without those of an earlier copy of the topic. One to a
        topic that was created anew at the target begins there where the earlier one did."""
        begin = self.progress[partition].target_begin
        found = [span for span in spans if span.target >= begin]
        known = self.spans.get(partition)
        last = known.last() if known is not None else None
        if found and last is not None and not found[0].is_behind(last):
            del self.spans[partition]
        self.learn(partition, found)

    def learn_last(self) -> None:
        """The last span of each partition, however old it is."""
        for partition, one in self.progress.items():
            if one.span is not None:
                self.learn(partition, [one.span])

    def is_behind(self, ends: Mapping[Partition, int]) -> bool:
        """Whether the target lacks something that was committed, such as a marker."""
        return any(end < self.ends.get(target, 0) for target, end in ends.items())

    def forget_foreign(self, ends: Mapping[Partition, int]) -> list[Partition]:
        """Compares the target's ends with what was written; where somebody else wrote, what is
        known of offsets is thrown away."""
        foreign = []
        for (topic, partition), one in self.progress.items():
            target = (one.target, partition)
            if target in ends and ends[target] != self.ends.get(target, -1):
                foreign.append(target)
                self.ends[target] = ends[target]
                self.spans.pop((topic, partition), None)
        return foreign

    def add_target(self, ends: Mapping[Partition, int], target_ids: Mapping[str, str]) -> None:
        """Ends of partitions that are new, and ids of topics."""
        for partition, end in ends.items():
            self.ends.setdefault(partition, end)
        self._target_ids.update(target_ids)

    def begin_at(
        self, positions: Mapping[Partition, int], topic_ids: Mapping[str, str], rows: Sequence[Row]
    ) -> None:
        """Writes where new partitions are copied from, with other rows, before anything is."""
        now_ms = time.time_ns() // 1_000_000
        found = {}
        for partition, position in positions.items():
            topic_id = topic_ids.get(partition[0], "")
            found[partition] = self._first(partition, position, topic_id, now_ms)
        of_partitions = (
            progress_row(self._names.state_topic, partition, one)
            for partition, one in found.items()
        )
        self.write([*of_partitions, *rows])
        self.progress.update(found)

    def _first(self, partition: Partition, position: int, topic_id: str, now_ms: int) -> Progress:
        target = self._names.at_target(partition[0])
        end = self.ends.get((target, partition[1]), 0)
        return Progress(
            target,
            position,
            -1,
            end,
            target_begin=end,
            begin=position,
            topic_id=topic_id,
            at_ms=now_ms,
            target_id=self._target_ids.get(target, ""),
        )

    def copyable(self, partitions: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
        """Those that can be copied now."""
        return {topic: list(some) for topic, some in partitions.items()}

    def places(self) -> Mapping[Partition, Bounds]:
        """Which offsets at the source became which at the target."""
        return self.spans

    def how_again(self, topic: str) -> str:
        """What copies a topic anew."""
        return how_again(topic, self._names.at_target(topic), keeps=False)

    def batch_bytes(self) -> int:
        """Of what is read at once."""
        return self._size.batch_bytes(self._pace.batch_bytes())

    def copy(self, reading: Reading, until: float) -> bool:
        """Copies all that the scan has; False if that lasts beyond ``until`` of the clock, or is
        to be read in batches of another size, and ends with a commit. What is due is committed on
        time while nothing comes."""
        batch_bytes = self.batch_bytes()
        self.check_ids(reading.topic_ids)
        self._begin(reading.progress(), reading.topic_ids)
        bytes_before = 0
        try:
            while (
                batch := reading.next_batch(self._wait_s())
            ) is not None or not reading.has_ended:
                if batch is not None:
                    self._take(batch)
                progress = reading.progress()
                read = sum(one.bytes for one in progress)
                self._open_bytes += read - bytes_before
                self._owe(read - bytes_before)
                bytes_before = read
                if self._is_due():
                    self.commit(progress)
                    if self._is_over(progress, until) or self._reads_otherwise(batch_bytes):
                        return False
                self._pay()
        except ScanError:
            # What was taken counts: one partition that cannot be read holds up no other.
            self.commit(reading.progress())
            raise
        self.commit(reading.progress())
        return True

    def _wait_s(self) -> float:
        """Until the next commit is due."""
        return max(WAIT_MIN_S, self._begun + self._pace.commit_s - self._clock())

    def _is_over(self, progress: Sequence[PartitionProgress], until: float) -> bool:
        """The time is, and each partition that has something has been read on."""
        now = self._clock()
        is_first = any(one.position == one.start < one.end for one in progress)
        return now >= until + SLOWEST_S or (now >= until and not is_first)

    def _reads_otherwise(self, batch_bytes: int) -> bool:
        """A scan is planned anew for batches that are a half or four times as large."""
        wanted = self.batch_bytes()
        return 2 * wanted <= batch_bytes or wanted >= 4 * batch_bytes

    def check_ids(self, topic_ids: Mapping[str, str]) -> None:
        """Raises MirrorError if these of the source's topics are not those that were copied."""
        for (topic, _), one in self.progress.items():
            now = topic_ids.get(topic)
            if one.topic_id and now and one.topic_id != now:
                raise MirrorError(
                    f"topic {topic} was deleted and created anew at {self._names.source}",
                    self.how_again(topic),
                )

    def _begin(self, progress: Sequence[PartitionProgress], topic_ids: Mapping[str, str]) -> None:
        self._begun = self._clock()
        self._base = {}
        for one in progress:
            known = self.progress.get((one.topic, one.partition))
            if known is None:
                target = self._names.at_target(one.topic)
                end = self.ends.get((target, one.partition), 0)
                known = Progress(target, -1, -1, end, target_begin=end, begin=one.start)
            self._base[one.topic, one.partition] = known._replace(
                topic_id=topic_ids.get(one.topic, known.topic_id),
                target_id=self._target_ids.get(known.target, known.target_id),
            )

    def _take(self, given: object) -> None:
        import pyarrow
        import pyarrow.compute as pc

        batch = pyarrow.record_batch(given)
        topics, partitions = batch.column("topic"), batch.column("partition")
        found = segments(topics, partitions)
        for one in found:
            runs = self._runs.setdefault((one.topic, one.partition), Runs())
            add_offsets(runs, batch.column("offset").slice(one.begin, one.end - one.begin))
        topics = self._at_target(topics, found)
        times = batch.column("timestamp")
        if times.null_count:
            # Without one the producer would take the present.
            times = pc.fill_null(times, pyarrow.scalar(NO_TIMESTAMP_US, times.type))
        changed = {"topic": topics, "timestamp": times}
        columns = {one: changed[one] if one in changed else batch.column(one) for one in COLUMNS}
        self.sent_bytes += sum(batch.column(one).nbytes for one in ("key", "value", "headers"))
        self._put(columns, found)

    def _put(self, columns: Mapping[str, pyarrow.Array], found: Sequence[Segment]) -> None:
        """Sends the rows of a scan's batch, with the target's names."""
        import pyarrow

        rows = [columns[one] for one in WRITTEN]
        self._send(pyarrow.RecordBatch.from_arrays(rows, names=list(WRITTEN)))

    def _at_target(self, topics: pyarrow.Array, found: Sequence[Segment]) -> pyarrow.Array:
        """Names there."""
        import pyarrow
        import pyarrow.compute as pc

        renamed = {one.topic: self._names.at_target(one.topic) for one in found}
        if all(topic == name for topic, name in renamed.items()):
            return topics
        if len(renamed) == 1:
            (name,) = renamed.values()
            return pyarrow.repeat(pyarrow.scalar(name, topics.type), len(topics))
        here = pc.index_in(topics, value_set=pyarrow.array(list(renamed), topics.type))
        return pyarrow.array(list(renamed.values()), topics.type).take(here)

    def _send(self, batch: pyarrow.RecordBatch) -> None:
        began = self._clock()
        if self._opened_at is None:
            self._opened_at = began
        self._writer.send(batch)
        self._sending_s += self._clock() - began

    def _is_due(self) -> bool:
        is_late = self._clock() - self._begun >= self._pace.commit_s
        is_full = self._open_bytes >= TRANSACTION_BYTES or self.sent_bytes >= self._size.bytes
        return is_late or is_full or self._owed_s > 1.0

    def commit(self, progress: Sequence[PartitionProgress]) -> None:
        """With the positions that the scan has reached; nothing if all are known and nothing is
        due."""
        now_ms = time.time_ns() // 1_000_000
        rows: list[Row] = []
        reached: dict[Partition, Progress] = {}
        written: dict[Partition, list[Span]] = {}
        for one in progress:
            partition = (one.topic, one.partition)
            known = self.progress.get(partition)
            if known is not None and one.position == known.position:
                continue
            reached[partition], written[partition] = self._reached(one, now_ms)
            rows.append(progress_row(self._names.state_topic, partition, reached[partition]))
            if written[partition]:
                rows.append(spans_row(self._names.offsets_topic, partition, written[partition]))
        rows += self._due()
        if rows:
            self.write(rows)
            self._count(reached, written)
        self._runs = {}
        self._open_bytes = 0
        self._begun = self._clock()

    def _reached(self, one: PartitionProgress, now_ms: int) -> tuple[Progress, list[Span]]:
        partition = (one.topic, one.partition)
        base = self._base[partition]
        latest = self.progress.get(partition, base)
        runs = self._runs.get(partition)
        end = self.ends.get((base.target, one.partition), -1)
        spans = runs.spans(end) if runs is not None and end >= 0 else []
        progress = base._replace(
            position=one.position,
            # Also of records that are not visible, such as a marker of another leader.
            epoch=one.leader_epoch,
            target_end=end + runs.records if runs is not None and end >= 0 else latest.target_end,
            records=base.records + one.records,
            bytes=base.bytes + one.bytes,
            skipped=base.skipped + one.skipped,
            at_ms=now_ms,
            span=spans[-1] if spans else latest.span,
        )
        return progress, spans

    def _count(
        self, reached: Mapping[Partition, Progress], written: Mapping[Partition, list[Span]]
    ) -> None:
        """After a commit: each partition that was written has a marker behind its records."""
        self.progress.update(reached)
        for partition, spans in written.items():
            runs = self._runs.get(partition)
            target = (reached[partition].target, partition[1])
            if runs is not None and target in self.ends:
                self.ends[target] += runs.records + 1
                self.learn(partition, spans)

    def write(self, rows: Sequence[Row]) -> None:
        """Adds rows to the transaction, and commits it."""
        import pyarrow

        headers = pyarrow.list_(
            pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
        )
        columns = [
            pyarrow.array([row.key for row in rows], pyarrow.binary()),
            pyarrow.array([row.value for row in rows], pyarrow.binary()),
            pyarrow.array([row.topic for row in rows], pyarrow.string()),
            pyarrow.array([0] * len(rows), pyarrow.int32()),
            pyarrow.nulls(len(rows), headers),
            pyarrow.nulls(len(rows), pyarrow.timestamp("us", "UTC")),
        ]
        self._send(pyarrow.RecordBatch.from_arrays(columns, names=list(WRITTEN)))
        began = self._clock()
        self._writer.commit()
        self._written_at = self._clock()
        self._size.took(self.sent_bytes, self._sending_s + self._written_at - began)
        self.sent_bytes = 0
        self._sending_s = 0.0
        self._opened_at = None

    def _owe(self, read: int) -> None:
        if self._pace.rate_bytes is None:
            return
        now = self._clock()
        self._owed_s = max(-CREDIT_S, self._owed_s - (now - self._paced_at))
        self._owed_s += read / self._pace.rate_bytes
        self._paced_at = now

    def _pay(self) -> None:
        """Waits as long as the rate asks for; a transaction is not open for long meanwhile."""
        if self._owed_s > 0:
            self._sleep(self._owed_s)
            now = self._clock()
            self._owed_s = max(-CREDIT_S, self._owed_s - (now - self._paced_at))
            self._paced_at = now
