"""The group coordinator: carries out the groups' effects.

Tasks end timers, hand appends to the log, time out commits, follow the led partitions of
``__consumer_offsets``, and expire offsets; each load and each append has its own. All run on Trio's
thread: an event ends before the next begins, and long work has checkpoints.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import trio

from pyrklog.base.changes import Changes
from pyrklog.base.logs import get_logger
from pyrklog.base.pending import Pending, answered
from pyrklog.coordinators.interfaces import BrokerEndpoint, InternalTopic
from pyrklog.coordinators.ownership import Ownership
from pyrklog.coordinators.topic_creation import CoordinatorFinder
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.groups.batching import (
    AppendBatch,
    Queued,
    QueuedAppend,
    make_batches,
    shared_bytes_max,
)
from pyrklog.groups.core_types import CommitBatch, OffsetCommit
from pyrklog.groups.effects import (
    Append,
    AppendCommit,
    CancelTimer,
    Effect,
    Notice,
    Reply,
    SetTimer,
    Timer,
)
from pyrklog.groups.group_manager import GroupEffects, GroupManager, Loaded
from pyrklog.groups.loading import PartitionLoader
from pyrklog.groups.machine import Effects, GroupMachine
from pyrklog.groups.messages import TopicPartition
from pyrklog.groups.options import GroupOptions, GroupSettings
from pyrklog.groups.partitioner import OFFSETS_TOPIC
from pyrklog.groups.timers import TimerQueue
from pyrklog.plane.core_plane import Plane
from pyrklog.plane.internal_log import AppendResult

LOAD_RETRY_SECONDS = 0.5
LOAD_FAILED_SECONDS = 10.0
ENLARGED = "they are in another partition than their names tell: the topic had fewer"
LEFT_BEHIND = "groups go on in the partitions of their names, without what is here"
EXAMPLES_MAX = 5
STALL_SECONDS = 0.5
"""A timer seen so late shows that the process was stopped."""
CATCH_UP_SECONDS = 1.0
CATCH_UP_ROUNDS_MAX = 5
"""Waits for requests after a stall, and their number in a row."""
COMMIT_LOOK_SECONDS = 0.25
NO_EPOCH = -1
RECORDS_BETWEEN_CHECKPOINTS = 200
EVENTS_BETWEEN_CHECKPOINTS = 20
OFFSETS_AN_EVENT = 1_000
"""Visiting so many offsets takes about as long as an event."""

log = get_logger("groups")

_TimerKey = tuple[GroupMachine, Timer, str]


class _Signal:
    """Wakes one task; a signal without a waiter is kept."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        self._event = trio.Event()


def not_served(group_id: str) -> ApiError:
    """The answer for a group that is set aside."""
    return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Group '{group_id}' is set aside.")


class GroupDriver:
    """The groups' clock, log and topic."""

    def __init__(
        self,
        settings: GroupSettings,
        options: GroupOptions,
        internal_log: Plane,
        topic: InternalTopic,
        *,
        wall_ms: Callable[[], int],
        fresh_id: Callable[[], str],
    ) -> None:
        count = topic.partition_count() or options.partition_count
        self.manager = GroupManager(settings, count, topic.assigned_partitions)
        self._wall_ms = wall_ms
        self._fresh_id = fresh_id
        self.changes = Changes()
        """Notifies when a partition has been loaded or unloaded."""
        self._options = options
        self._log = internal_log
        self._tokens = itertools.count(1)
        self._pending: dict[int, tuple[str, Pending[Any]]] = {}
        """Unanswered requests and their groups, by token."""
        self._timers: TimerQueue[_TimerKey] = TimerQueue()
        self._timer_earlier = _Signal()
        self._timer_look_at = float("inf")
        self._queues: dict[int, list[Queued]] = {}
        self._commits: deque[tuple[float, CommitBatch]] = deque()
        """Commits at the data plane, and their deadlines."""
        self._commits_begun = _Signal()
        self._appends_queued = _Signal()
        self._ownership = Ownership(topic, self, self.manager.forget_unassigned)
        self._finder = CoordinatorFinder(topic, OFFSETS_TOPIC)
        self._deleted: dict[str, set[int]] = {}
        """Deleted partitions with offsets still to remove."""
        self._being_forgotten: dict[str, set[int]] = {}
        self._forgetting = trio.Lock()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._run_timers)
            nursery.start_soon(self._run_appends)
            nursery.start_soon(self._run_commit_deadlines)
            nursery.start_soon(self._run_expiry)
            nursery.start_soon(self._ownership.run)
            task_status.started()

    def _begin(self, group_id: str, event: Callable[[int], GroupEffects]) -> Pending[Any]:
        """Runs an event with a fresh token; its reply answers the returned ``Pending``.

        Raises COORDINATOR_NOT_AVAILABLE if the event fails, which sets the group aside.
        """
        token = next(self._tokens)
        pending: Pending[Any] = Pending(partial(self._forget, token))
        self._pending[token] = (group_id, pending)
        try:
            self._carry_out(event(token))
        except Exception as error:
            self._forget(token)
            self._set_aside(group_id, error)
            raise not_served(group_id) from error
        return pending

    def _forget(self, token: int) -> None:
        self._pending.pop(token, None)

    def _hand_in(self, group_id: str, event: Callable[[], GroupEffects]) -> None:
        try:
            self._carry_out(event())
        except Exception as error:
            self._set_aside(group_id, error)

    def _tell(self, machine: GroupMachine, event: Callable[[], Effects]) -> None:
        """The same for a group that may have ended, moved or been reloaded since."""
        try:
            self._carry_out(GroupEffects(machine, event()))
        except Exception as error:
            if self.manager.groups.get(machine.group_id) is machine:
                self._set_aside(machine.group_id, error)
            else:
                log.error("former_group_failed", group=machine.group_id, exc_info=error)

    def _set_aside(self, group_id: str, error: Exception) -> None:
        """Stops serving a group whose rules have failed."""
        log.error(
            "group_set_aside",
            group=group_id,
            exc_info=error,
            consequence="it has no coordinator until its partition is loaded anew: "
            "restart this broker, or let another one lead",
        )
        machine = self.manager.groups.get(group_id)
        self.manager.set_aside(group_id)
        if machine is not None:
            machine.abandon()
            for key in [key for key in self._timers if key[0] is machine]:
                self._timers.cancel(key)
        for token, (name, pending) in list(self._pending.items()):
            if name == group_id:
                del self._pending[token]
                pending.fail(not_served(group_id))

    def _carry_out(self, outcome: GroupEffects) -> None:
        machine, effects = outcome
        for effect in effects:
            self._do(machine, effect)

    def _do(self, machine: GroupMachine | None, effect: Effect) -> None:
        match effect:
            case Reply(token, result):
                waiting = self._pending.pop(token, None)
                if waiting is not None:
                    waiting[1].answer(result)
            case SetTimer(timer, member_id, delay_ms):
                assert machine is not None
                deadline = trio.current_time() + delay_ms / 1000
                self._timers.set((machine, timer, member_id), deadline)
                if deadline < self._timer_look_at:
                    self._timer_look_at = deadline
                    self._timer_earlier.set()
            case CancelTimer(timer, member_id):
                assert machine is not None
                self._timers.cancel((machine, timer, member_id))
            case Append():
                assert machine is not None
                partition = self.manager.partition_for(machine.group_id)
                self._queues.setdefault(partition, []).append(QueuedAppend(machine, effect))
                self._appends_queued.set()
            case AppendCommit(commit):
                assert machine is not None
                partition = self.manager.partition_for(machine.group_id)
                self._queues.setdefault(partition, []).append(commit)
                self._appends_queued.set()
            case Notice(event, fields, level):
                log.log(level, event, fields)

    async def _run_timers(self) -> None:
        while True:
            deadline = self._timers.next_deadline()
            self._timer_look_at = float("inf") if deadline is None else deadline
            with trio.move_on_at(self._timer_look_at):
                await self._timer_earlier.wait()
            await self._catch_up(self._timer_look_at)
            now = trio.current_time()
            for count in itertools.count(1):
                key = self._timers.pop_due(now)
                if key is None:
                    break
                machine, timer, member_id = key
                self._tell(machine, partial(machine.timer_fired, timer, member_id, self._wall_ms()))
                if count % EVENTS_BETWEEN_CHECKPOINTS == 0:
                    await trio.lowlevel.checkpoint()

    async def _catch_up(self, due: float) -> None:
        """After a stall (a stopped process, a long task), handles waiting heartbeats before
        sessions end."""
        for _ in range(CATCH_UP_ROUNDS_MAX):
            if trio.current_time() - due < STALL_SECONDS:
                return
            due = trio.current_time() + CATCH_UP_SECONDS
            await trio.sleep_until(due)

    async def _run_appends(self) -> None:
        while True:
            await self._appends_queued.wait()
            queues, self._queues = self._queues, {}
            shared_max = shared_bytes_max(self._options.message_bytes_max)
            for partition, queue in queues.items():
                for batch in make_batches(queue, shared_max):
                    # Handed on here, in order; other tasks wait for the results.
                    if isinstance(batch, AppendBatch):
                        try:
                            appended = self._hand_on(partition, batch)
                        except Exception as error:
                            log.error("append_failed", partition=partition, exc_info=error)
                            appended = answered(AppendResult(ErrorCode.UNKNOWN_SERVER_ERROR))
                        self._nursery.start_soon(self._await_append, batch, appended)
                    else:
                        try:
                            self._hand_on_commits(partition, batch)
                        except Exception as error:
                            self._give_up_commits(batch, error)

    def _hand_on(self, partition: int, batch: AppendBatch) -> Pending[AppendResult]:
        owned = self.manager.partitions().get(partition)
        if owned is None:
            return answered(AppendResult(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return self._log.append_internal(
            OFFSETS_TOPIC,
            partition,
            batch.records(),
            timestamp_ms=self._wall_ms(),
            codec=self._options.codec,
            expected_epoch=owned.epoch,
            producer=batch.producer,
            guard=batch.guard,
        )

    def _hand_on_commits(self, partition: int, commits: list[OffsetCommit]) -> None:
        owned = self.manager.partitions().get(partition)
        under_way = self._log.append_commits(
            OFFSETS_TOPIC,
            partition,
            commits,
            timestamp_ms=self._wall_ms(),
            codec=self._options.codec,
            expected_epoch=NO_EPOCH if owned is None else owned.epoch,
        )
        if under_way is not None and not under_way.is_answered:
            deadline = trio.current_time() + self._options.commit_timeout_ms / 1000
            self._commits.append((deadline, under_way))
            if len(self._commits) == 1:
                self._commits_begun.set()

    def _give_up_commits(self, commits: list[OffsetCommit], error: Exception) -> None:
        """Sets the groups of staged commits aside: their state is unknown."""
        for group_id in dict.fromkeys(commit.group_id for commit in commits):
            self._set_aside(group_id, error)
        for commit in commits:
            self._log.close_request(commit.id)

    async def _run_commit_deadlines(self) -> None:
        """Times out commits at intervals; nearly all are answered long before."""
        while True:
            await self._commits_begun.wait()
            while self._commits:
                await trio.sleep_until(self._commits[0][0])
                while self._commits and self._commits[0][0] <= trio.current_time():
                    _, under_way = self._commits.popleft()
                    try:
                        if not under_way.is_answered:
                            self._log.time_out_commits(under_way)
                    except Exception as error:
                        log.error("commits_not_timed_out", exc_info=error)
                await trio.sleep(COMMIT_LOOK_SECONDS)

    async def _await_append(self, batch: AppendBatch, appended: Pending[AppendResult]) -> None:
        result = AppendResult(ErrorCode.REQUEST_TIMED_OUT)
        try:
            with trio.move_on_after(self._options.commit_timeout_ms / 1000):
                result = await appended
        except Exception as error:
            log.error("append_failed", exc_info=error)
            result = AppendResult(ErrorCode.UNKNOWN_SERVER_ERROR)
        base_offsets = batch.base_offsets(result.base_offset)
        for (machine, append), base_offset in zip(batch.appends, base_offsets, strict=True):
            own = AppendResult(result.error, base_offset)
            finish = partial(machine.append_finished, append.ticket, own, self._wall_ms())
            self._tell(machine, finish)

    # --- ownership (:class:`pyrklog.coordinators.ownership.Coordinator`) -------------------------

    def owned_epochs(self) -> Mapping[int, int]:
        return {number: owned.epoch for number, owned in self.manager.partitions().items()}

    def set_partition_count(self, count: int) -> None:
        self.manager.partition_count = count

    def begin_load(self, partition: int, epoch: int) -> bool:
        begins = self.manager.begin_load(partition, epoch)
        if begins:
            # Deletions may have been noted before the partition was known here.
            self.manager.note_deleted(self._being_forgotten)
        return begins

    def unload(self, partition: int) -> None:
        moved = self.manager.unload(partition)
        for machine in moved:
            self._tell(machine, partial(machine.unload, self._wall_ms()))
        self.changes.notify()
        log.info("offsets_partition_unloaded", partition=partition, groups=len(moved))

    async def load(self, partition: int) -> None:
        began = trio.current_time()
        loader = await self._read_groups(partition)
        served = elsewhere = 0
        examples: list[str] = []
        groups = loader.finish()
        while some := list(islice(groups, EVENTS_BETWEEN_CHECKPOINTS)):
            done = self.manager.take_loaded(partition, some, self._wall_ms())
            self._serve_loaded(done)
            served += len(done.served)
            elsewhere += len(done.elsewhere)
            examples = [*examples, *done.elsewhere][:EXAMPLES_MAX]
            await trio.lowlevel.checkpoint()
        self.manager.finish_load(partition, (), self._wall_ms())
        self.changes.notify()
        facts = {
            "partition": partition,
            "groups": served,
            "records": loader.records,
            "milliseconds": round((trio.current_time() - began) * 1000),
        }
        if loader.skipped:
            problems = loader.problems
            log.error("offsets_records_skipped", count=loader.skipped, examples=problems, **facts)
        elif loader.records:
            log.info("offsets_partition_loaded", **facts)
        if elsewhere:
            log.warning(
                "groups_displaced",
                count=elsewhere,
                partition=partition,
                examples=examples,
                reason=ENLARGED,
                consequence=LEFT_BEHIND,
            )

    def _serve_loaded(self, done: Loaded) -> None:
        for group_id, error in done.failed:
            self._set_aside(group_id, error)
        for machine, effects in done.served:
            self._tell(machine, partial(list, effects))

    async def _read_groups(self, partition: int) -> PartitionLoader:
        """Retries until the partition's log is readable."""
        while True:
            try:
                return await self._read(partition)
            except Exception as error:
                log.error("offsets_load_failed", partition=partition, exc_info=error)
                await trio.sleep(LOAD_FAILED_SECONDS)

    async def _read(self, partition: int) -> PartitionLoader:
        while True:
            read = await self._log.load_internal(
                OFFSETS_TOPIC, partition, max_bytes=self._options.load_buffer_bytes
            )
            if read.records is not None:
                break
            # The error passes, or this broker learns that it no longer leads the partition.
            log.warning("offsets_load_retried", partition=partition, error=read.error.name)
            await trio.sleep(LOAD_RETRY_SECONDS)
        loader = PartitionLoader(read.records)
        while loader.take(RECORDS_BETWEEN_CHECKPOINTS):
            await trio.lowlevel.checkpoint()
        return loader

    async def _run_expiry(self) -> None:
        while True:
            await trio.sleep(self._options.expiry_interval_ms / 1000)
            await self._for_each_group(lambda name: self.manager.expire(name, self._wall_ms()))

    def note_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """Until :meth:`forget_deleted` has removed their offsets, new partitions with these names
        get no commits."""
        noted: dict[str, set[int]] = {}
        for topic, index in partitions:
            noted.setdefault(topic, set()).add(index)
            self._deleted.setdefault(topic, set()).add(index)
        self.manager.note_deleted(noted)

    async def forget_deleted(self) -> None:
        async with self._forgetting:
            # One walk over the groups for all deletions meanwhile.
            deleted, self._deleted = self._deleted, {}
            self.manager.note_deleted(deleted)
            self._being_forgotten = deleted
            try:
                if deleted:
                    await self._for_each_group(
                        lambda name: self.manager.partitions_deleted(name, deleted, self._wall_ms())
                    )
            finally:
                self._being_forgotten = {}

    def _is_forgetting(self) -> bool:
        """Whether offsets of deleted partitions are still to be removed."""
        return bool(self._deleted or self._being_forgotten)

    def _waits_to_be_forgotten(self, offsets: Iterable[TopicPartition]) -> bool:
        """Whether some of these partitions have the names of such deleted ones."""
        return any(
            index in gone.get(topic, ())
            for gone in (self._deleted, self._being_forgotten)
            if gone
            for topic, index in offsets
        )

    async def _for_each_group(self, event: Callable[[str], GroupEffects]) -> None:
        work = 0
        for name in list(self.manager.groups):
            work += 1 + self.manager.committed_count(name) // OFFSETS_AN_EVENT
            self._hand_in(name, partial(event, name))
            if work >= EVENTS_BETWEEN_CHECKPOINTS:
                work = 0
                await trio.lowlevel.checkpoint()

    def transaction_completed(
        self, producer_id: int, partition: int, marker_offset: int, commit: bool
    ) -> None:
        """Takes a marker written to this partition of the offsets topic."""
        self.manager.transaction_completed(
            producer_id, partition, marker_offset=marker_offset, commit=commit
        )

    async def find(self, group_id: str, listener: str) -> tuple[ErrorCode, BrokerEndpoint | None]:
        """A group's coordinator as advertised on a listener; creates a missing
        ``__consumer_offsets``. COORDINATOR_NOT_AVAILABLE: try again."""
        return await self._finder.find(partial(self._partition_of, group_id), listener)

    async def find_partition(self, group_id: str) -> int | None:
        """A group's of ``__consumer_offsets``, which is created where it is missing. None: try
        again."""
        count = await self._finder.partition_count()
        return None if count is None else self._partition_of(group_id, count)

    def _partition_of(self, group_id: str, count: int) -> int:
        """Groups stay where they are while the topic is enlarged: ``count`` counts only before
        there are any."""
        if not self.manager.partitions():
            self.manager.partition_count = count
        return self.manager.partition_for(group_id)
