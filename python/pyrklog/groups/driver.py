"""The group coordinator: carries out what the groups decide.

One task ends timers, one hands appends to the log, one follows which partitions of
``__consumer_offsets`` this broker leads, one lets offsets expire; each load and each append under
way has a task of its own. All of them run on Trio's thread: an event is handled to its end before
the next one begins, and long work pauses at checkpoints.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

import trio

from pyrklog.changes import Changes
from pyrklog.errors import ErrorCode
from pyrklog.groups.batching import (
    Batch,
    Queued,
    QueuedAppend,
    make_batches,
    shared_bytes_max,
)
from pyrklog.groups.history import Rebalance
from pyrklog.groups.interfaces import (
    OFFSETS_TOPIC,
    Endpoint,
    GroupOptions,
    InternalLog,
    OffsetsTopic,
)
from pyrklog.groups.loading import PartitionLoader
from pyrklog.groups.machine import GroupMachine
from pyrklog.groups.registry import Outcome, Registry
from pyrklog.groups.service import GroupService, Park
from pyrklog.groups.table import CommitBatch, OffsetCommit
from pyrklog.groups.timers import TimerQueue
from pyrklog.groups.values import (
    Append,
    AppendCommit,
    CancelTimer,
    CommitRequest,
    CommitResult,
    DeleteOffsetsResult,
    Effect,
    FetchedOffset,
    GroupDescription,
    GroupOverview,
    GroupSettings,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    Notice,
    Reply,
    SetTimer,
    SyncRequest,
    SyncResult,
    Timer,
    TopicPartition,
)
from pyrklog.internal_log import (
    AppendResult,
)
from pyrklog.logs import get_logger

CREATION_WAIT_SECONDS = 5.0
"""How long a FindCoordinator waits for ``__consumer_offsets`` to be created."""
CREATION_RETRY_SECONDS = 1.0
LOAD_RETRY_SECONDS = 0.5
COMMIT_LOOK_SECONDS = 0.25
NO_EPOCH = -1
RECORDS_BETWEEN_CHECKPOINTS = 200
EVENTS_BETWEEN_CHECKPOINTS = 20

log = get_logger("groups")

NO_TOKEN = 0
"""The token of a request whose answer is among the effects of its event."""

_Placement = tuple[int | None, dict[int, int]]
"""Number of partitions of the offsets topic, and those led here with their epochs."""
_TimerKey = tuple[GroupMachine, Timer, str]


class _Waiter:
    """A request that has not been answered yet."""

    __slots__ = ("_event", "is_answered", "result")

    def __init__(self) -> None:
        self.result: Any = None
        self.is_answered = False
        self._event: trio.Event | None = None

    def answer(self, result: object) -> None:
        self.result = result
        self.is_answered = True
        if self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        self._event = trio.Event()
        await self._event.wait()


class _Signal:
    """Wakes one task; signals that nobody awaits are kept, once."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        self._event = trio.Event()


class GroupCoordinator:
    """:class:`.service.GroupService` over the groups whose partitions this broker leads."""

    def __init__(
        self,
        settings: GroupSettings,
        options: GroupOptions,
        internal_log: InternalLog,
        topic: OffsetsTopic,
        *,
        wall_ms: Callable[[], int],
        fresh_id: Callable[[], str],
    ) -> None:
        """``fresh_id`` makes the end of a member id, another one each time."""
        count = topic.partition_count() or options.partition_count
        self.registry = Registry(settings, count, topic.assigned_partitions)
        self.changes = Changes()
        """Notified when a partition has been loaded or unloaded."""
        self._options = options
        self._log = internal_log
        self._topic = topic
        self._wall_ms = wall_ms
        self._fresh_id = fresh_id
        self._tokens = itertools.count(1)
        self._waiters: dict[int, _Waiter] = {}
        self._timers: TimerQueue[_TimerKey] = TimerQueue()
        self._timer_earlier = _Signal()
        self._timer_look_at = float("inf")
        self._queues: dict[int, list[Queued]] = {}
        self._commits: deque[tuple[float, CommitBatch]] = deque()
        """Commits that the data plane works on, and when their clients have waited enough."""
        self._commits_begun = _Signal()
        self._appends_queued = _Signal()
        self._loads: dict[int, trio.CancelScope] = {}
        self._creating: trio.Event | None = None
        self._creation_failed_at = float("-inf")

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Coordinates until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._run_timers)
            nursery.start_soon(self._run_appends)
            nursery.start_soon(self._run_commit_deadlines)
            nursery.start_soon(self._run_expiry)
            nursery.start_soon(self._follow_leadership)
            task_status.started()

    # --- effects ---------------------------------------------------------------------------------

    async def _ask(self, event: Callable[[int], Outcome], park: Park | None = None) -> Any:
        """Hands an event with a fresh token in, and waits for its reply."""
        token = next(self._tokens)
        waiter = self._waiters[token] = _Waiter()
        try:
            self._carry_out(event(token))
            if not waiter.is_answered:
                if park is not None:
                    park()
                await waiter.wait()
            return waiter.result
        finally:
            self._waiters.pop(token, None)

    def _carry_out(self, outcome: Outcome) -> None:
        machine, effects = outcome
        for effect in effects:
            self._do(machine, effect)

    def _do(self, machine: GroupMachine | None, effect: Effect) -> None:
        match effect:
            case Reply(token, result):
                waiter = self._waiters.get(token)
                if waiter is not None:
                    waiter.answer(result)
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
                partition = self.registry.partition_for(machine.group_id)
                self._queues.setdefault(partition, []).append(QueuedAppend(machine, effect))
                self._appends_queued.set()
            case AppendCommit(commit):
                assert machine is not None
                partition = self.registry.partition_for(machine.group_id)
                self._queues.setdefault(partition, []).append(commit)
                self._appends_queued.set()
            case Notice(event, fields, level):
                log.log(level, event, fields)

    # --- timers ----------------------------------------------------------------------------------

    async def _run_timers(self) -> None:
        while True:
            deadline = self._timers.next_deadline()
            self._timer_look_at = float("inf") if deadline is None else deadline
            with trio.move_on_at(self._timer_look_at):
                await self._timer_earlier.wait()
            for count in itertools.count(1):
                key = self._timers.pop_due(trio.current_time())
                if key is None:
                    break
                machine, timer, member_id = key
                effects = machine.timer_fired(timer, member_id, self._wall_ms())
                self._carry_out(Outcome(machine, effects))
                if count % EVENTS_BETWEEN_CHECKPOINTS == 0:
                    await trio.lowlevel.checkpoint()

    # --- appends ---------------------------------------------------------------------------------

    async def _run_appends(self) -> None:
        while True:
            await self._appends_queued.wait()
            queues, self._queues = self._queues, {}
            shared_max = shared_bytes_max(self._options.message_bytes_max)
            for partition, queue in queues.items():
                for batch in make_batches(queue, shared_max):
                    # Handed on here, in order; only the waiting is done beside.
                    if isinstance(batch, Batch):
                        appended = self._hand_on(partition, batch)
                        self._nursery.start_soon(self._await_append, batch, appended)
                    else:
                        self._hand_on_commits(partition, batch)

    def _hand_on(self, partition: int, batch: Batch) -> Awaitable[AppendResult]:
        owned = self.registry.partitions().get(partition)
        if owned is None:
            return _failed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._log.append_internal(
            OFFSETS_TOPIC,
            partition,
            batch.records(),
            timestamp_ms=self._wall_ms(),
            codec=self._options.codec,
            expected_epoch=owned.epoch,
            producer=batch.producer,
        )

    def _hand_on_commits(self, partition: int, commits: list[OffsetCommit]) -> None:
        owned = self.registry.partitions().get(partition)
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

    async def _run_commit_deadlines(self) -> None:
        """Looks now and then at commits whose time is up; nearly all are answered long before."""
        while True:
            await self._commits_begun.wait()
            while self._commits:
                await trio.sleep_until(self._commits[0][0])
                while self._commits and self._commits[0][0] <= trio.current_time():
                    _, under_way = self._commits.popleft()
                    if not under_way.is_answered:
                        self._log.time_out_commits(under_way)
                await trio.sleep(COMMIT_LOOK_SECONDS)

    async def _await_append(self, batch: Batch, appended: Awaitable[AppendResult]) -> None:
        result = AppendResult(ErrorCode.REQUEST_TIMED_OUT)
        with trio.move_on_after(self._options.commit_timeout_ms / 1000):
            result = await appended
        base_offsets = batch.base_offsets(result.base_offset)
        for (machine, append), base_offset in zip(batch.appends, base_offsets, strict=True):
            own = AppendResult(result.error, base_offset)
            effects = machine.append_finished(append.ticket, own, self._wall_ms())
            self._carry_out(Outcome(machine, effects))

    # --- leadership and loading ------------------------------------------------------------------

    async def _follow_leadership(self) -> None:
        while True:
            count, led = followed = self._placement()
            for partition, owned in self.registry.partitions().items():
                # With another epoch somebody else has led in between.
                if led.get(partition) != owned.epoch:
                    self._unload(partition)
            if count is not None and not self.registry.partitions():
                # A topic that grows later must not move groups between their partitions.
                self.registry.partition_count = count
            for partition, epoch in led.items():
                if self.registry.begin_load(partition, epoch):
                    self._nursery.start_soon(self._load, partition)
            await self._topic.wait_until(partial(self._has_moved_from, followed))

    def _placement(self) -> _Placement:
        return self._topic.partition_count(), dict(self._topic.led_partitions())

    def _has_moved_from(self, followed: _Placement) -> bool:
        return self._placement() != followed

    def _unload(self, partition: int) -> None:
        scope = self._loads.pop(partition, None)
        if scope is not None:
            scope.cancel()
        outcomes = self.registry.unload(partition, self._wall_ms())
        for outcome in outcomes:
            self._carry_out(outcome)
        self.changes.notify()
        log.info("offsets_partition_unloaded", partition=partition, groups=len(outcomes))

    async def _load(self, partition: int) -> None:
        scope = self._loads[partition] = trio.CancelScope()
        began = trio.current_time()
        with scope:
            loader = await self._read(partition)
            outcomes = self.registry.finish_load(partition, loader.finish(), self._wall_ms())
            del self._loads[partition]
            for outcome in outcomes:
                self._carry_out(outcome)
            self.changes.notify()
            facts = {
                "partition": partition,
                "groups": len(outcomes),
                "records": loader.records,
                "milliseconds": round((trio.current_time() - began) * 1000),
            }
            if loader.skipped:
                examples = loader.problems
                log.error(
                    "offsets_records_skipped", count=loader.skipped, examples=examples, **facts
                )
            elif loader.records:
                log.info("offsets_partition_loaded", **facts)

    async def _read(self, partition: int) -> PartitionLoader:
        loader = PartitionLoader()
        offset = 0
        while True:
            read = await self._log.read_internal(
                OFFSETS_TOPIC, partition, offset, max_bytes=self._options.load_buffer_bytes
            )
            if read.error is not ErrorCode.NONE:
                # Either it passes, or this broker leads the partition no more and is told so.
                log.warning("offsets_load_retried", partition=partition, error=read.error.name)
                await trio.sleep(LOAD_RETRY_SECONDS)
                continue
            for batch in read.batches:
                for count, _ in enumerate(loader.feed(batch), 1):
                    if count % RECORDS_BETWEEN_CHECKPOINTS == 0:
                        await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            if read.next_offset >= read.end_offset or read.next_offset <= offset:
                return loader
            offset = read.next_offset

    # --- housekeeping ----------------------------------------------------------------------------

    async def _run_expiry(self) -> None:
        while True:
            await trio.sleep(self._options.expiry_interval_ms / 1000)
            await self._for_each_group(lambda name: self.registry.expire(name, self._wall_ms()))

    async def partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """Topics, or some partitions, are gone: their offsets are forgotten."""
        await self._for_each_group(
            lambda name: self.registry.partitions_deleted(name, partitions, self._wall_ms())
        )

    async def _for_each_group(self, event: Callable[[str], Outcome]) -> None:
        for count, name in enumerate(list(self.registry.groups), 1):
            self._carry_out(event(name))
            if count % EVENTS_BETWEEN_CHECKPOINTS == 0:
                await trio.lowlevel.checkpoint()

    def transaction_completed(
        self, producer_id: int, partitions: Iterable[int], *, commit: bool
    ) -> None:
        """A transaction's marker has been written to these partitions of the offsets topic."""
        self.registry.transaction_completed(producer_id, partitions, commit=commit)

    # --- requests --------------------------------------------------------------------------------

    async def find(self, group_id: str, listener: str) -> tuple[ErrorCode, Endpoint | None]:
        if self._topic.partition_count() is None:
            with trio.move_on_after(CREATION_WAIT_SECONDS):
                await self._create_topic()
        count = self._topic.partition_count()
        if count is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        if not self.registry.partitions():
            self.registry.partition_count = count
        partition = self.registry.partition_for(group_id)
        endpoint = self._topic.leader_endpoint(partition, listener)
        if endpoint is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        return ErrorCode.NONE, endpoint

    async def _create_topic(self) -> None:
        """Creates the topic once, however many ask; after a failure not again at once."""
        if self._creating is not None:
            await self._creating.wait()
            return
        if trio.current_time() < self._creation_failed_at + CREATION_RETRY_SECONDS:
            return
        self._creating = trio.Event()
        try:
            error = await self._topic.create()
            if error is not ErrorCode.NONE:
                self._creation_failed_at = trio.current_time()
                log.error("offsets_topic_not_created", error=error.name)
        finally:
            self._creating.set()
            self._creating = None

    async def join(self, request: JoinRequest, park: Park) -> JoinResult:
        request = request._replace(fresh_id=self._fresh_id())
        result: JoinResult = await self._ask(
            lambda token: self.registry.join(request, token, self._wall_ms()), park
        )
        return result

    async def sync(self, request: SyncRequest, park: Park) -> SyncResult:
        result: SyncResult = await self._ask(
            lambda token: self.registry.sync(request, token, self._wall_ms()), park
        )
        return result

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        machine, effects = self.registry.heartbeat(request, NO_TOKEN, self._wall_ms())
        error = ErrorCode.NONE
        for effect in effects:
            if isinstance(effect, Reply):
                assert isinstance(effect.result, ErrorCode)
                error = effect.result
            else:
                self._do(machine, effect)
        return error

    async def leave(self, group_id: str, members: Sequence[LeavingMember]) -> LeaveResult:
        result: LeaveResult = await self._ask(
            lambda token: self.registry.leave(group_id, members, token, self._wall_ms())
        )
        return result

    async def commit(self, request: CommitRequest) -> CommitResult:
        result: CommitResult = await self._ask(
            lambda token: self.registry.commit(request, token, self._wall_ms())
        )
        return result

    def commit_as_member(self, commit: OffsetCommit) -> bool:
        machine = self.registry.groups.get(commit.group_id)
        if machine is None:
            return False
        effects = machine.commit_as_member(commit, self._wall_ms())
        if effects is None:
            return False
        for effect in effects:
            self._do(machine, effect)
        return True

    def now_ms(self) -> int:
        return self._wall_ms()

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool,
    ) -> tuple[ErrorCode, dict[TopicPartition, FetchedOffset]]:
        return self.registry.fetch_offsets(group_id, partitions, require_stable=require_stable)

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> DeleteOffsetsResult:
        result: DeleteOffsetsResult = await self._ask(
            lambda token: self.registry.delete_offsets(group_id, partitions, token, self._wall_ms())
        )
        return result

    def list_groups(
        self, states: Sequence[str], types: Sequence[str]
    ) -> tuple[ErrorCode, list[GroupOverview]]:
        return self.registry.list_groups(states, types)

    def describe_group(self, group_id: str) -> GroupDescription:
        return self.registry.describe_group(group_id)

    def history(self, group_id: str) -> tuple[ErrorCode, Sequence[Rebalance]]:
        return self.registry.history(group_id)

    async def delete_group(self, group_id: str) -> ErrorCode:
        error: ErrorCode = await self._ask(
            lambda token: self.registry.delete_group(group_id, token, self._wall_ms())
        )
        return error


async def _failed(error: ErrorCode) -> AppendResult:
    return AppendResult(error)


def _is_the_service(coordinator: GroupCoordinator) -> GroupService:
    return coordinator  # the type checker holds the class to the interface
