"""``__consumer_offsets`` in memory, for tests of the group coordinator.

:class:`FakeLog` keeps appended records and can hold appends back or fail them; :class:`FakeTopic`
has the partitions that this broker leads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import trio

from pyrklog.base.changes import Changes
from pyrklog.base.pending import Pending
from pyrklog.coordinators.interfaces import BrokerEndpoint
from pyrklog.errors import ErrorCode
from pyrklog.groups.core_types import OffsetCommit
from pyrklog.plane.core_plane import Plane
from pyrklog.plane.internal_log import (
    AppendResult,
    InternalBatch,
    InternalLoad,
    InternalRead,
    InternalRecord,
    NewRecord,
    Producer,
)
from pyrklog.testing.fake_transactions import ABORT_KEY, COMMIT_KEY, FakeLiveRecords

NO_PRODUCER_ID = -1


class FakeLog(Plane):
    """The part of a plane that coordinators use, for one topic.

    ``epoch_of`` gives a partition's leader epoch, None where this broker does not lead it.
    """

    def __init__(self, epoch_of: Callable[[int], int | None]) -> None:
        self.batches: dict[int, list[InternalBatch]] = {}
        self.failing: list[ErrorCode] = []
        """Codes of the next appends, whose records are dropped."""
        self.reads_failing: list[ErrorCode] = []
        self.codecs: list[int] = []
        self.closed: list[int] = []
        self.headers: list[dict[bytes, bytes]] = []
        """Of each record passed to an append."""
        self.guards: list[int | None] = []
        """Of each append."""
        self.changes = Changes()
        self._epoch_of = epoch_of
        self._producer_epochs: dict[int, int] = {}
        self._open = trio.Event()
        self._open.set()
        self._held: list[Callable[[], None]] = []
        """Answers to appends."""

    def hold(self) -> None:
        """Appends get into the log, but the high watermark stays, and reads wait."""
        self._open = trio.Event()

    def release(self) -> None:
        self._open.set()
        held, self._held = self._held, []
        for answer in held:
            answer()

    def end_offset(self, partition: int) -> int:
        batches = self.batches.get(partition)
        return batches[-1].last_offset + 1 if batches else 0

    def records(self, partition: int) -> list[InternalRecord]:
        return [record for batch in self.batches.get(partition, []) for record in batch.records]

    def append_internal(
        self,
        topic: str,
        partition: int,
        records: Sequence[NewRecord],
        *,
        timestamp_ms: int,
        codec: int,
        expected_epoch: int,
        producer: Producer | None = None,
        guard: int | None = None,
    ) -> Pending[AppendResult]:
        assert records
        assert timestamp_ms >= 0
        self.codecs.append(codec)
        self.guards.append(guard)
        self.headers += [dict(record.headers) for record in records]
        if self._epoch_of(partition) != expected_epoch:
            return self._result(AppendResult(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        if self.failing:
            return self._result(AppendResult(self.failing.pop(0)))
        base = self.end_offset(partition)
        kept = [InternalRecord(base + i, one.key, one.value) for i, one in enumerate(records)]
        if producer is not None:
            self._producer_epochs[producer.id] = producer.epoch
        self._keep(partition, kept, NO_PRODUCER_ID if producer is None else producer.id)
        return self._result(AppendResult(ErrorCode.NONE, base))

    def append_commits(
        self,
        topic: str,
        partition: int,
        commits: Sequence[OffsetCommit],
        *,
        timestamp_ms: int,
        codec: int,
        expected_epoch: int,
    ) -> None:
        raise AssertionError("only a real plane makes such commits, and takes them back")

    def time_out_commits(self, commits: object) -> None:
        raise AssertionError("only a real plane has such commits")

    def close_request(self, request_id: int) -> None:
        self.closed.append(request_id)

    def end_transaction(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """Writes a marker."""
        key = COMMIT_KEY if commit else ABORT_KEY
        record = InternalRecord(self.end_offset(partition), key, b"")
        self._keep(partition, [record], producer_id, control=True)

    def _keep(
        self,
        partition: int,
        records: Sequence[InternalRecord],
        producer_id: int,
        *,
        control: bool = False,
    ) -> None:
        batch = InternalBatch(
            base_offset=records[0].offset,
            last_offset=records[-1].offset,
            producer_id=producer_id,
            is_transactional=producer_id != NO_PRODUCER_ID,
            is_control=control,
            records=records,
        )
        self.batches.setdefault(partition, []).append(batch)
        self.changes.notify()

    def _result(self, result: AppendResult) -> Pending[AppendResult]:
        pending: Pending[AppendResult] = Pending()
        if self._open.is_set():
            pending.answer(result)
        else:
            self._held.append(lambda: pending.answer(result))
        return pending

    async def read_internal(
        self, topic: str, partition: int, offset: int, *, max_bytes: int
    ) -> InternalRead:
        """One batch at a time, however small."""
        assert max_bytes > 0
        await self._open.wait()
        await trio.lowlevel.checkpoint()
        end = self.end_offset(partition)
        if self.reads_failing:
            return InternalRead(self.reads_failing.pop(0), [], offset, end)
        for batch in self.batches.get(partition, []):
            if batch.last_offset >= offset:
                return InternalRead(ErrorCode.NONE, [batch], batch.last_offset + 1, end)
        return InternalRead(ErrorCode.NONE, [], offset, end)

    async def load_internal(self, topic: str, partition: int, *, max_bytes: int) -> InternalLoad:
        """Of what is in the log when reads go on."""
        assert max_bytes > 0
        await self._open.wait()
        await trio.lowlevel.checkpoint()
        if self.reads_failing:
            return InternalLoad(self.reads_failing.pop(0))
        batches = self.batches.get(partition, [])
        end = self.end_offset(partition)
        return InternalLoad(
            ErrorCode.NONE, FakeLiveRecords(batches, dict(self._producer_epochs), end)
        )


class FakeTopic:
    """Implements ``InternalTopic``. ``led``: partition -> the epoch since which it is led."""

    def __init__(self, partition_count: int | None, led: Mapping[int, int]) -> None:
        self.count = partition_count
        self.led = dict(led)
        self.opening: set[int] = set()
        """Partitions assigned to this broker but not served yet."""
        self.created = 0
        self.creation: ErrorCode = ErrorCode.NONE
        self.changes = Changes()

    def lead(self, partition: int, epoch: int = 0) -> None:
        """This broker leads the partition (again, where it did before)."""
        self.led[partition] = epoch
        self.changes.notify()

    def resign(self, partition: int) -> None:
        del self.led[partition]
        self.changes.notify()

    def partition_count(self) -> int | None:
        return self.count

    def led_partitions(self) -> Mapping[int, int]:
        return dict(self.led)

    def assigned_partitions(self) -> Collection[int]:
        return self.led.keys() | self.opening

    def leader_endpoint(self, partition: int, listener: str) -> BrokerEndpoint | None:
        if partition in self.led:
            return BrokerEndpoint(1, f"{listener.lower()}.example", 9092)
        return None

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        await self.changes.wait_until(condition)

    async def create(self) -> ErrorCode:
        self.created += 1
        await trio.sleep(0.01)
        if self.creation is ErrorCode.NONE:
            self.count = 2
            self.led.update({0: 0, 1: 0})
            self.changes.notify()
        return self.creation
