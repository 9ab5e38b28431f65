"""The transaction coordinator: carries out the effects of transactional ids.

Tasks hand appends to the log, abort transactions that last too long, expire ids, and follow the led
partitions of ``__transaction_state``; each load has its own, and each transaction with markers for
other brokers. All run on Trio's thread: an event ends before the next begins.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import trio

from pyrklog.base.changes import Changes
from pyrklog.base.logs import get_logger
from pyrklog.base.pending import Pending, answered
from pyrklog.coordinators.interfaces import InternalTopic
from pyrklog.coordinators.ownership import Ownership
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.plane.core_plane import Plane
from pyrklog.plane.internal_log import AppendResult, LiveRecords, NewRecord
from pyrklog.protocol.transaction_records import decode_transaction_key
from pyrklog.transactions.effects import (
    Append,
    Effect,
    Effects,
    Notice,
    Reload,
    Reply,
    Retry,
    WriteMarkers,
)
from pyrklog.transactions.holds import HOLD_SECONDS, Held, Holds
from pyrklog.transactions.machine import TransactionMachine
from pyrklog.transactions.manager import TRANSACTION_TOPIC, TransactionManager
from pyrklog.transactions.marking.sender import CoordinatorFencedError, MarkerSender, Round
from pyrklog.transactions.options import TransactionOptions
from pyrklog.transactions.persistence import record

CODEC_NONE = 0
LOAD_RETRY_SECONDS = 0.5
APPEND_RETRY_SECONDS = 0.5
FENCED_RETRY_SECONDS = 30.0
RECORDS_A_STEP = 200
IDS_BETWEEN_CHECKPOINTS = 200
SHARED_BATCH_BYTES_MAX = 65_536
BATCH_HEADER_BYTES = 61
RECORD_OVERHEAD_BYTES = 16
PROBLEMS_SHOWN_MAX = 20
ENLARGED = "they are in another partition than their ids tell: the topic had fewer"
LEFT_BEHIND = "ids begin anew; what they had open stays open until an administrator aborts it"
EXAMPLES_MAX = 5

log = get_logger("transactions")

_Queued = tuple[TransactionMachine, NewRecord]


class TransactionDriver:
    """The transactional ids' clock, log and topic."""

    def __init__(
        self,
        options: TransactionOptions,
        internal_log: Plane,
        topic: InternalTopic,
        markers: MarkerSender,
        *,
        wall_ms: Callable[[], int],
        next_producer_id: Callable[[], Awaitable[int]],
    ) -> None:
        count = topic.partition_count() or options.partition_count
        self.manager = TransactionManager(
            count, options.memory_max_bytes, topic.assigned_partitions
        )
        self.changes = Changes()
        """Notifies when a partition has been loaded or unloaded."""
        self.markers = markers
        self._options = options
        self._log = internal_log
        self._topic = topic
        self._wall_ms = wall_ms
        self._next_producer_id = next_producer_id
        self._ownership = Ownership(topic, self)
        self._tokens = itertools.count(1)
        self._pending: dict[int, Pending[Any]] = {}
        self._queues: dict[int, list[_Queued]] = {}
        self._appends_queued = trio.Event()
        self._marking: dict[TransactionMachine, trio.CancelScope] = {}
        """Transactions whose markers are being written."""
        self._held = trio.Event()
        """A request waits."""
        self._holds = Holds(lambda one: one.is_changing and self._is_served(one))

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._run_appends)
            nursery.start_soon(self._run_holds)
            nursery.start_soon(self._run_timeouts)
            nursery.start_soon(self._run_expiry)
            nursery.start_soon(self._ownership.run)
            task_status.started()

    # --- events ----------------------------------------------------------------------------------

    def _begin(self, machine: TransactionMachine, event: Callable[[int], Effects]) -> Pending[Any]:
        """Runs an event with a fresh token; its reply answers the returned ``Pending``."""
        token = next(self._tokens)
        pending: Pending[Any] = Pending(partial(self._forget, token))
        self._pending[token] = pending
        try:
            self._carry_out(machine, event(token))
        except Exception as error:
            self._forget(token)
            self._set_aside(machine, error)
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
        return pending

    def _forget(self, token: int) -> None:
        self._pending.pop(token, None)

    def _tell(self, machine: TransactionMachine, event: Callable[[], Effects]) -> None:
        """An event of an id that may have been unloaded since."""
        try:
            self._carry_out(machine, event())
        except Exception as error:
            self._set_aside(machine, error)

    def _set_aside(self, machine: TransactionMachine, error: Exception) -> None:
        """The id's rules have failed: its partition is loaded anew."""
        log.error("transaction_failed", id=machine.transactional_id, exc_info=error)
        self._ownership.reload(machine.partition)

    def _carry_out(self, machine: TransactionMachine, effects: Effects) -> None:
        for effect in effects:
            self._do(machine, effect)
        if machine.is_dead:
            self.manager.forget(machine)
        else:
            self.manager.count(machine)
        self._holds.release(machine)

    def hold(self, transactional_id: str) -> Held | None:
        """Answered once the id is at rest, or has changed for too long; None: it is at rest, or
        what ends it has taken so long already that nobody should wait for it."""
        machine = self.manager.ids.get(transactional_id)
        if machine is None or not machine.is_changing:
            return None
        if machine.ending_ms(self._wall_ms()) > 1_000 * HOLD_SECONDS:
            return None
        self._held.set()
        return self._holds.hold(machine, trio.current_time())

    async def wait_until_settled(self, transactional_id: str) -> None:
        """The same for coroutines."""
        held = self.hold(transactional_id)
        if held is not None:
            await held

    def _do(self, machine: TransactionMachine, effect: Effect) -> None:
        match effect:
            case Reply(token, result):
                waiting = self._pending.pop(token, None)
                if waiting is not None:
                    waiting.answer(result)
            case Append(metadata):
                number = machine.partition
                item = (machine, record(machine.transactional_id, metadata))
                self._queues.setdefault(number, []).append(item)
                self._appends_queued.set()
            case WriteMarkers():
                self._begin_markers(machine, effect)
            case Retry():
                self._nursery.start_soon(self._retry, machine)
            case Reload():
                self._ownership.reload(machine.partition)
            case Notice(event, fields, level):
                log.log(level, event, fields)

    def _is_served(self, machine: TransactionMachine) -> bool:
        return self.manager.ids.get(machine.transactional_id) is machine

    def _begin_markers(self, machine: TransactionMachine, work: WriteMarkers) -> None:
        """Markers for partitions that this broker leads take no task, unless some are refused."""
        scope = self._marking[machine] = trio.CancelScope()
        written = self.markers.write_here(work, machine.coordinator_epoch)
        if written is None:
            self._nursery.start_soon(self._write_markers, machine, work, scope)
        else:
            written.when_done(partial(self._markers_done, machine, work, scope, written))

    def _markers_done(
        self,
        machine: TransactionMachine,
        work: WriteMarkers,
        scope: trio.CancelScope,
        written: Pending[Round],
    ) -> None:
        if scope.cancel_called:
            return  # unloaded
        try:
            done, is_fenced = written.take()
        except Exception as error:
            log.error("markers_failed", id=machine.transactional_id, exc_info=error)
            self._set_aside(machine, error)
            return
        left = work.partitions.difference(done)
        if left:
            machine.marks_left(left)
            rest = work._replace(partitions=left)
            self._nursery.start_soon(self._write_markers, machine, rest, scope, is_fenced)
            return
        self._marking.pop(machine, None)
        self._tell(machine, lambda: machine.markers_written(self._wall_ms()))

    async def _write_markers(
        self,
        machine: TransactionMachine,
        work: WriteMarkers,
        scope: trio.CancelScope,
        is_fenced: bool = False,
    ) -> None:
        if scope.cancel_called:
            return  # unloaded before this task began
        with scope:
            try:
                await self._send_markers(machine, work, is_fenced)
            except Exception as error:
                log.error("markers_failed", id=machine.transactional_id, exc_info=error)
                self._set_aside(machine, error)
                return
            finally:
                if self._marking.get(machine) is scope:
                    del self._marking[machine]
            self._tell(machine, lambda: machine.markers_written(self._wall_ms()))

    async def _send_markers(
        self, machine: TransactionMachine, work: WriteMarkers, is_fenced: bool
    ) -> None:
        while True:
            if is_fenced:
                # Another coordinator goes on, and this broker will hear of it and leave off. Or
                # somebody has written a marker with an epoch that no coordinator has.
                log.error(
                    "coordinator_fenced",
                    transactional_id=machine.transactional_id,
                    coordinator_epoch=machine.coordinator_epoch,
                )
                await trio.sleep(FENCED_RETRY_SECONDS)
            try:
                await self.markers.send(work, machine.coordinator_epoch, machine.marks_left)
            except CoordinatorFencedError:
                is_fenced = True
            else:
                return

    async def _retry(self, machine: TransactionMachine) -> None:
        await trio.sleep(APPEND_RETRY_SECONDS)
        if self._is_served(machine):
            self._tell(machine, lambda: machine.retry(self._wall_ms()))

    # --- the log ---------------------------------------------------------------------------------

    async def _run_appends(self) -> None:
        while True:
            await self._appends_queued.wait()
            self._appends_queued = trio.Event()
            queues, self._queues = self._queues, {}
            for number, queue in queues.items():
                for batch in self._batches(queue):
                    appended = self._append(number, batch)
                    appended.when_done(partial(self._append_done, batch, appended))

    def _batches(self, queue: Sequence[_Queued]) -> list[list[_Queued]]:
        most = max(0, min(SHARED_BATCH_BYTES_MAX, self._options.message_bytes_max))
        batches: list[list[_Queued]] = []
        room = 0
        for item in queue:
            size = len(item[1].key) + len(item[1].value or b"") + RECORD_OVERHEAD_BYTES
            if not batches or size > room:
                batches.append([])
                room = most - BATCH_HEADER_BYTES
            batches[-1].append(item)
            room -= size
        return batches

    def _append(self, number: int, batch: Sequence[_Queued]) -> Pending[AppendResult]:
        epoch = self.manager.epoch_of(number)
        if epoch is None:
            return answered(AppendResult(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        try:
            return self._log.append_internal(
                TRANSACTION_TOPIC,
                number,
                [item[1] for item in batch],
                timestamp_ms=self._wall_ms(),
                codec=CODEC_NONE,
                expected_epoch=epoch,
            )
        except Exception as error:
            log.error("append_failed", partition=number, exc_info=error)
            return answered(AppendResult(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _append_done(self, batch: Sequence[_Queued], appended: Pending[AppendResult]) -> None:
        """However long it took: until then nobody knows whether the records count."""
        try:
            error = appended.take().error
        except Exception as failure:
            log.error("append_failed", exc_info=failure)
            error = ErrorCode.UNKNOWN_SERVER_ERROR
        for machine, _ in batch:
            self._tell(machine, partial(machine.append_finished, error, self._wall_ms()))

    # --- ownership (:class:`.ownership.Coordinator`) ---------------------------------------------

    def owned_epochs(self) -> Mapping[int, int]:
        return {number: owned.epoch for number, owned in self.manager.partitions().items()}

    def set_partition_count(self, count: int) -> None:
        self.manager.partition_count = count

    def begin_load(self, partition: int, epoch: int) -> bool:
        return self.manager.begin_load(partition, epoch)

    def unload(self, partition: int) -> None:
        moved = self.manager.unload(partition)
        for machine in moved:
            scope = self._marking.pop(machine, None)
            if scope is not None:
                scope.cancel()
            self._tell(machine, machine.unload)
        self.changes.notify()
        log.info("transactions_unloaded", partition=partition, ids=len(moved))

    async def load(self, partition: int) -> None:
        began = trio.current_time()
        records = await self._read(partition)
        problems = [f"offset {offset}: {what}" for offset, what in records.damaged]
        problems = problems[:PROBLEMS_SHOWN_MAX]
        skipped = records.damaged_count
        count = elsewhere = 0
        examples: list[str] = []
        last: NewRecord | None = None
        while some := records.take(RECORDS_A_STEP):
            for offset, key, value in some:
                count += 1
                try:
                    name = decode_transaction_key(key).transactional_id
                    if not self.manager.restore(partition, name, value):
                        elsewhere += 1
                        examples = [*examples, name][:EXAMPLES_MAX]
                    last = NewRecord(key, value)
                except Exception as error:
                    # A damaged record must not cost a partition's ids.
                    skipped += 1
                    if len(problems) < PROBLEMS_SHOWN_MAX:
                        problems.append(f"offset {offset}: {error!r}")
            await trio.lowlevel.checkpoint()
        if last is not None:
            await self._confirm(partition, last)
        await self._carry_on(partition)
        self.manager.finish_load(partition)
        self.changes.notify()
        facts = {
            "partition": partition,
            "ids": count,
            "milliseconds": round((trio.current_time() - began) * 1000),
        }
        if skipped:
            log.error("transaction_records_skipped", count=skipped, examples=problems, **facts)
        elif count:
            log.info("transactions_loaded", **facts)
        if elsewhere:
            log.warning(
                "transactional_ids_displaced",
                count=elsewhere,
                partition=partition,
                examples=examples,
                reason=ENLARGED,
                consequence=LEFT_BEHIND,
            )

    async def _carry_on(self, partition: int) -> None:
        """Decisions in the log are carried out."""
        for number, machine in enumerate(self.manager.of_partition(partition), 1):
            if self._is_served(machine):
                self._tell(machine, partial(machine.loaded, self._wall_ms()))
            if number % IDS_BETWEEN_CHECKPOINTS == 0:
                await trio.lowlevel.checkpoint()

    async def _confirm(self, partition: int, last: NewRecord) -> None:
        """Returns once all that was read is replicated: the last record is written again, and the
        high watermark passes it. A decision that another leader may lack must not be carried
        out."""
        while True:
            epoch = self.manager.epoch_of(partition)
            assert epoch is not None, "loading"
            result = await self._log.append_internal(
                TRANSACTION_TOPIC,
                partition,
                [last],
                timestamp_ms=self._wall_ms(),
                codec=CODEC_NONE,
                expected_epoch=epoch,
            )
            if result.error is ErrorCode.NONE:
                return
            log.warning("transactions_load_retried", partition=partition, error=result.error.name)
            await trio.sleep(LOAD_RETRY_SECONDS)

    async def _read(self, partition: int) -> LiveRecords:
        """Retries until the partition's log is readable."""
        while True:
            try:
                loaded = await self._log.load_internal(
                    TRANSACTION_TOPIC, partition, max_bytes=self._options.load_buffer_bytes
                )
            except Exception as error:
                log.error("transactions_load_failed", partition=partition, exc_info=error)
            else:
                if loaded.records is not None:
                    return loaded.records
                log.warning(
                    "transactions_load_retried", partition=partition, error=loaded.error.name
                )
            await trio.sleep(LOAD_RETRY_SECONDS)

    # --- time ------------------------------------------------------------------------------------

    async def _run_holds(self) -> None:
        while True:
            await self._held.wait()
            while (ends := self._holds.next_end()) is not None:
                await trio.sleep_until(ends)
                self._holds.end_due(trio.current_time())
            self._held = trio.Event()

    async def _run_timeouts(self) -> None:
        while True:
            await trio.sleep(self._options.timed_out_interval_ms / 1000)
            await self._for_each(self.manager.open, lambda one: one.time_out(self._wall_ms()))

    async def _run_expiry(self) -> None:
        expiration_ms = self._options.expiration_ms
        while True:
            await trio.sleep(self._options.expired_interval_ms / 1000)
            await self._for_each(
                self.manager.ids, lambda one: one.expire(self._wall_ms(), expiration_ms)
            )

    async def _for_each(
        self,
        ids: Mapping[str, TransactionMachine],
        event: Callable[[TransactionMachine], Effects],
    ) -> None:
        for count, machine in enumerate(list(ids.values()), 1):
            if self.manager.is_served(machine):
                self._tell(machine, partial(event, machine))
            if count % IDS_BETWEEN_CHECKPOINTS == 0:
                await trio.lowlevel.checkpoint()
