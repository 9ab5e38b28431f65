"""The part of Trio's interface that the drivers use, on the simulation's heap.

While a simulation runs, :func:`in_place_of_trio` puts a :class:`Scheduler` into the drivers'
modules as ``trio``, so the drivers themselves run. A wake-up is an event like any other: it waits
while the process is paused, and a killed process gets none. Tasks woken at the same time run in the
order of their wake-ups.
"""

from __future__ import annotations

import math
import types
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from types import ModuleType, TracebackType
from typing import Any, Self

import trio

from tests.sim.heap import Heap, Process, ProcessDied

Arm = Callable[["Task"], None]


class Cancelled(BaseException):
    """A scope around the task was cancelled."""


@types.coroutine
def _suspend(arm: Arm) -> Generator[Arm, Any, Any]:
    """Waits until the task is woken; ``arm`` arranges the wake-up."""
    return (yield arm)


class Task:
    def __init__(
        self,
        scheduler: Scheduler,
        process: Process,
        coroutine: Coroutine[Any, Any, Any],
        scope: CancelScope | None,
        ended: Callable[[Task, BaseException | None], None],
    ) -> None:
        self.coroutine = coroutine
        self.process = process
        self.scope = scope
        self._scheduler = scheduler
        self._ended = ended
        self._wait = 0
        self._is_waiting = False
        process.tasks[self] = None
        self._scheduler.heap.after(0, process, lambda: self._step(None, None))

    def waker(self) -> Callable[[Any], None]:
        """Ends the present wait; has no effect on a later one."""
        wait = self._wait

        def wake(value: Any = None) -> None:
            self._wake(wait, value, None)

        return wake

    def cancel_if_due(self) -> None:
        """Ends its wait if a scope around it was cancelled."""
        if self._is_waiting and self.scope is not None and self.scope.is_cancelled:
            self._wake(self._wait, None, Cancelled())

    def _wake(self, wait: int, value: Any, error: BaseException | None) -> None:
        if self._is_waiting and wait == self._wait:
            self._is_waiting = False
            happening = lambda: self._step(value, error)  # noqa: E731
            self._scheduler.heap.after(0, self.process, happening)

    def _step(self, value: Any, error: BaseException | None) -> None:
        before, self._scheduler.task = self._scheduler.task, self
        self._wait += 1
        try:
            arm = self.coroutine.send(value) if error is None else self.coroutine.throw(error)
        except StopIteration:
            self._end(None)
        except Exception as failure:
            self._end(failure)
        except (Cancelled, BaseExceptionGroup) as failure:
            self._end(failure)
        else:
            self._is_waiting = True
            self.cancel_if_due()
            if self._is_waiting:
                arm(self)
        finally:
            self._scheduler.task = before

    def _end(self, failure: BaseException | None) -> None:
        self.process.tasks.pop(self, None)
        self._ended(self, failure)


class CancelScope:
    def __init__(self, scheduler: Scheduler, *, shield: bool = False) -> None:
        self.shield = shield
        self.cancel_called = False
        self.cancelled_caught = False
        self._scheduler = scheduler
        self._parent: CancelScope | None = None
        self._task: Task | None = None
        self._is_entered = False
        self._process = scheduler.process

    @property
    def is_cancelled(self) -> bool:
        """Considers outer scopes as far as it is not shielded from them."""
        return self.cancel_called or self._is_cancelled_from_outside()

    def _is_cancelled_from_outside(self) -> bool:
        return not self.shield and self._parent is not None and self._parent.is_cancelled

    def cancel(self) -> None:
        if not self.cancel_called:
            self.cancel_called = True
            for task in list(self._process.tasks):
                task.cancel_if_due()

    def cancel_after(self, seconds: float) -> None:
        """Cancels it then, if it is still entered."""
        if seconds == math.inf:
            return
        delay_us = int(seconds * 1e6)
        happening = lambda: self.cancel() if self._is_entered else None  # noqa: E731
        self._scheduler.heap.after(delay_us, self._process, happening)

    def __enter__(self) -> Self:
        task = self._task = self._scheduler.current()
        self._process = task.process
        self._parent, task.scope = task.scope, self
        self._is_entered = True
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> bool:
        assert self._task is not None
        self._task.scope = self._parent
        self._is_entered = False
        if error is None or not self.cancel_called or self._is_cancelled_from_outside():
            return False
        left = _without_cancelled(error)
        if left is error:
            return False
        self.cancelled_caught = True
        if left is not None:
            raise left
        return True


_Scope = CancelScope


def _without_cancelled(error: BaseException) -> BaseException | None:
    if isinstance(error, Cancelled):
        return None
    if isinstance(error, BaseExceptionGroup):
        found, left = error.split(Cancelled)
        return left if found is not None else error
    return error


class _Status:
    def __init__(self, started: Event) -> None:
        self._started = started
        self.value: Any = None

    def started(self, value: Any = None) -> None:
        self.value = value
        self._started.set()


class Nursery:
    def __init__(self, scheduler: Scheduler, scope: CancelScope) -> None:
        self.cancel_scope = scope
        self.errors: list[BaseException] = []
        self._scheduler = scheduler
        self._children = 0
        self.changed = Event(scheduler)

    @property
    def is_empty(self) -> bool:
        return not self._children

    def start_soon(self, start: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        self._spawn(_call(start, *arguments), self._child_ended)

    def _spawn(
        self,
        coroutine: Coroutine[Any, Any, Any],
        ended: Callable[[Task, BaseException | None], None],
    ) -> None:
        self._children += 1
        process = self._scheduler.process
        Task(self._scheduler, process, coroutine, self.cancel_scope, ended)

    def _child_ended(self, _task: Task, failure: BaseException | None) -> None:
        self._children -= 1
        if failure is not None:
            self.errors.append(failure)
            self.cancel_scope.cancel()
        self.changed.set()

    async def start(self, start: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        """Waits until the child has started; its earlier failure is raised here."""
        told = Event(self._scheduler)
        status = _Status(told)
        early: list[BaseException | None] = []

        def ended(task: Task, failure: BaseException | None) -> None:
            if told.is_set():
                self._child_ended(task, failure)
                return
            self._children -= 1
            early.append(failure)
            told.set()
            self.changed.set()

        self._spawn(_call(start, *arguments, task_status=status), ended)
        await told.wait()
        if early:
            raise early[0] or RuntimeError("it ended before it had started")
        return status.value


async def _call(start: Callable[..., Awaitable[Any]], *arguments: Any, **named: Any) -> Any:
    return await start(*arguments, **named)


class Event:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False
        self._waiting: list[Callable[[Any], None]] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake(None)

    async def wait(self) -> None:
        if self._is_set:
            await self._scheduler.checkpoint()
        else:
            await _suspend(lambda task: self._waiting.append(task.waker()))


class CapacityLimiter:
    """Fair, like Trio's. Each holder is a task."""

    def __init__(self, scheduler: Scheduler, total: int) -> None:
        self._scheduler = scheduler
        self._left = total
        self._waiting: deque[Event] = deque()

    async def __aenter__(self) -> None:
        if self._left:
            self._left -= 1
            return
        turn = Event(self._scheduler)
        self._waiting.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self._release()
            else:
                self._waiting.remove(turn)
            raise

    async def __aexit__(self, *_error: object) -> None:
        self._release()

    def _release(self) -> None:
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self._left += 1


class Channel:
    """Both ends of an unbounded memory channel."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._items: deque[Any] = deque()
        self._arrived = Event(scheduler)

    def send_nowait(self, item: Any) -> None:
        self._items.append(item)
        self._arrived.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while not self._items:
            self._arrived = Event(self._scheduler)
            await self._arrived.wait()
        return self._items.popleft()


class _OpenMemoryChannel:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __getitem__(self, _type: object) -> Self:
        return self

    def __call__(self, bound: float) -> tuple[Channel, Channel]:
        assert bound == math.inf, "no driver needs another one"
        channel = Channel(self._scheduler)
        return channel, channel


class _LowLevel:
    def __init__(self, scheduler: Scheduler) -> None:
        self.checkpoint = scheduler.checkpoint
        self.checkpoint_if_cancelled = scheduler.checkpoint_if_cancelled


class Scheduler:
    TASK_STATUS_IGNORED = trio.TASK_STATUS_IGNORED
    TooSlowError = trio.TooSlowError
    BrokenResourceError = trio.BrokenResourceError

    def __init__(self, heap: Heap) -> None:
        self.heap = heap
        self.task: Task | None = None
        self.open_memory_channel = _OpenMemoryChannel(self)
        self.lowlevel = _LowLevel(self)
        self.failures: list[tuple[str, BaseException]] = []
        """Failed root tasks of processes."""

    @property
    def process(self) -> Process:
        found = self.task.process if self.task is not None else self.heap.current
        assert found is not None, "no process runs"
        return found

    def current(self) -> Task:
        assert self.task is not None
        return self.task

    def run_in(
        self, process: Process, start: Callable[..., Awaitable[Any]], *arguments: Any
    ) -> None:

        def ended(_task: Task, failure: BaseException | None) -> None:
            if failure is not None:
                self.failures.append((process.name, failure))

        Task(self, process, _call(start, *arguments), None, ended)

    def Event(self) -> Event:
        return Event(self)

    def Lock(self) -> CapacityLimiter:
        return CapacityLimiter(self, 1)

    def CapacityLimiter(self, total: int) -> CapacityLimiter:
        return CapacityLimiter(self, total)

    def CancelScope(self, *, shield: bool = False) -> CancelScope:
        return CancelScope(self, shield=shield)

    def current_time(self) -> float:
        """Seconds."""
        return self.heap.now_us / 1e6

    async def checkpoint(self) -> None:
        await _suspend(lambda task: task.waker()(None))

    async def checkpoint_if_cancelled(self) -> None:
        scope = self.current().scope
        if scope is not None and scope.is_cancelled:
            await self.checkpoint()

    async def sleep(self, seconds: float) -> None:

        def arm(task: Task) -> None:
            wake = task.waker()
            self.heap.after(int(seconds * 1e6), task.process, lambda: wake(None))

        await _suspend(arm)

    async def sleep_until(self, deadline: float) -> None:
        await self.sleep(self._until(deadline))

    def _until(self, deadline: float) -> float:
        """Seconds, rounded up: the deadline has passed then."""
        if deadline == math.inf:
            return deadline
        return max(0, int(deadline * 1e6) + 1 - self.heap.now_us) / 1e6

    async def sleep_forever(self) -> None:
        await _suspend(lambda _task: None)

    async def suspend(self, arm: Arm) -> Any:
        """Waits for the waker that ``arm`` takes of the task. Returns the value it was given."""
        return await _suspend(arm)

    @contextmanager
    def move_on_after(self, seconds: float) -> Iterator[_Scope]:
        with self.CancelScope() as scope:
            scope.cancel_after(seconds)
            yield scope

    def move_on_at(self, deadline: float) -> Any:
        return self.move_on_after(self._until(deadline))

    @contextmanager
    def fail_after(self, seconds: float) -> Iterator[_Scope]:
        with self.move_on_after(seconds) as scope:
            yield scope
        if scope.cancelled_caught:
            raise trio.TooSlowError

    def open_nursery(self) -> _OpenNursery:
        return _OpenNursery(self)


class _OpenNursery:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._scope = CancelScope(scheduler)
        self._nursery = Nursery(scheduler, self._scope)

    async def __aenter__(self) -> Nursery:
        self._scope.__enter__()
        return self._nursery

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> bool:
        if isinstance(error, ProcessDied):
            return False
        nursery = self._nursery
        if error is not None:
            nursery.errors.append(error)
            self._scope.cancel()
        try:
            await self._wait()
        except Cancelled as cancelled:
            nursery.errors.append(cancelled)
            self._scope.cancel()
            with CancelScope(self._scheduler, shield=True):
                await self._wait()
        failure = _together(nursery.errors)
        caught = self._scope.__exit__(type(failure) if failure else None, failure, None)
        if failure is None or caught:
            return error is not None
        raise failure

    async def _wait(self) -> None:
        nursery = self._nursery
        while not nursery.is_empty:
            nursery.changed = Event(self._scheduler)
            await nursery.changed.wait()


def _together(errors: list[BaseException]) -> BaseException | None:
    others = [error for error in errors if not isinstance(error, Cancelled)]
    if others:
        return BaseExceptionGroup("in a nursery", others)
    return errors[0] if errors else None


@contextmanager
def in_place_of_trio(scheduler: Scheduler, modules: tuple[ModuleType, ...]) -> Iterator[None]:
    for module in modules:
        setattr(module, "trio", scheduler)  # noqa: B010
    try:
        yield
    finally:
        for module in modules:
            setattr(module, "trio", trio)  # noqa: B010
