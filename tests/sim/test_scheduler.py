"""The scheduler does what Trio does: the same programs run on both."""

import importlib
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing

from tests.sim.heap import Heap, Process
from tests.sim.scheduler import Cancelled, Scheduler

Program = Callable[[Any, list[Any]], Awaitable[None]]


async def nap(t: Any, seconds: float, told: list[Any], what: str) -> None:
    try:
        await t.sleep(seconds)
        told.append(what)
    except BaseException as error:
        is_cancelled = isinstance(error, Cancelled | trio.Cancelled)
        told.append((what, "cancelled" if is_cancelled else repr(error)))
        raise


async def children_are_waited_for(t: Any, told: list[Any]) -> None:
    async with t.open_nursery() as nursery:
        nursery.start_soon(nap, t, 2, told, "two")
        nursery.start_soon(nap, t, 1, told, "one")
    told.append(t.current_time())


async def failing_task_cancels_the_others(t: Any, told: list[Any]) -> None:
    async def fail() -> None:
        await t.sleep(1)
        raise KeyError("k")

    try:
        async with t.open_nursery() as nursery:
            nursery.start_soon(nap, t, 5, told, "long")
            nursery.start_soon(fail)
    except* KeyError as group:
        told.append([type(error).__name__ for error in group.exceptions])
    told.append(t.current_time())


async def a_cancelled_nursery_ends_quietly(t: Any, told: list[Any]) -> None:
    async with t.open_nursery() as nursery:
        nursery.start_soon(nap, t, 5, told, "long")
        await t.sleep(1)
        nursery.cancel_scope.cancel()
    told.append(t.current_time())


async def timeout_ends_its_block(t: Any, told: list[Any]) -> None:
    with t.move_on_after(1) as scope:
        await nap(t, 3, told, "three")
    told.append(scope.cancelled_caught)
    try:
        with t.fail_after(1):
            await nap(t, 3, told, "three")
    except trio.TooSlowError:
        told.append("too slow")
    told.append(t.current_time())


async def a_shield_keeps_a_cancel_out(t: Any, told: list[Any]) -> None:
    with t.move_on_after(1):
        with t.CancelScope(shield=True):
            await nap(t, 2, told, "shielded")
        await nap(t, 1, told, "behind it")
    told.append(t.current_time())


async def started_child_reports(t: Any, told: list[Any]) -> None:
    async def child(*, task_status: Any) -> None:
        await t.sleep(1)
        task_status.started("value")
        await nap(t, 1, told, "child")

    async def fails(*, task_status: Any) -> None:
        await t.sleep(1)
        raise KeyError("early")

    async with t.open_nursery() as nursery:
        told.append(await nursery.start(child))
        with pytest.raises(KeyError):
            await nursery.start(fails)
        told.append(t.current_time())


async def locks_and_events_are_fair(t: Any, told: list[Any]) -> None:
    lock, event = t.Lock(), t.Event()

    async def work(name: str) -> None:
        async with lock:
            await nap(t, 1, told, name)

    async def wait() -> None:
        await event.wait()
        told.append("event")

    async with t.open_nursery() as nursery:
        nursery.start_soon(wait)
        async with lock:
            for name in "ab":
                nursery.start_soon(work, name)
                await t.sleep(1)
        event.set()
    told.append(t.current_time())


async def a_cancelled_waiter_does_not_keep_a_lock(t: Any, told: list[Any]) -> None:
    lock = t.Lock()

    async def hold() -> None:
        async with lock:
            await t.sleep(2)

    async with t.open_nursery() as nursery:
        nursery.start_soon(hold)
        await t.sleep(1)
        with t.move_on_after(0.5):
            async with lock:
                told.append("too early")
        await t.sleep(1)
        async with lock:
            told.append(t.current_time())


async def one_inside_a_cancelled_scope_goes_on_being_cancelled(t: Any, told: list[Any]) -> None:
    with t.CancelScope() as scope:
        scope.cancel()
        for _ in range(2):
            with suppress(Cancelled, trio.Cancelled):
                await nap(t, 1, told, "again")
        told.append("here")
        await t.lowlevel.checkpoint()
        told.append("never here")
    told.append(scope.cancelled_caught)


async def a_limiter_lets_some_in(t: Any, told: list[Any]) -> None:
    limiter = t.CapacityLimiter(2)

    async def work(name: str, seconds: float) -> None:
        async with limiter:
            await nap(t, seconds, told, name)

    async with t.open_nursery() as nursery:
        for name, seconds in (("a", 2), ("b", 1), ("c", 4), ("d", 1)):
            nursery.start_soon(work, name, seconds)
            await t.sleep(0.1)
    told.append(t.current_time())


async def a_moment_is_waited_for(t: Any, told: list[Any]) -> None:
    await t.sleep_until(t.current_time() + 1.5)
    told.append(t.current_time() >= 1.5)
    await t.sleep_until(0.5)
    told.append(round(t.current_time(), 3))
    with t.move_on_at(float("inf")):
        await nap(t, 1, told, "napped")


PROGRAMS = [
    children_are_waited_for,
    failing_task_cancels_the_others,
    a_cancelled_nursery_ends_quietly,
    timeout_ends_its_block,
    a_shield_keeps_a_cancel_out,
    started_child_reports,
    locks_and_events_are_fair,
    a_cancelled_waiter_does_not_keep_a_lock,
    a_limiter_lets_some_in,
    a_moment_is_waited_for,
    one_inside_a_cancelled_scope_goes_on_being_cancelled,
]


def on_trio(program: Program) -> list[Any]:
    told: list[Any] = []
    clock = trio.testing.MockClock(autojump_threshold=0)

    async def main() -> None:
        began = trio.current_time()

        class Since:
            def __getattr__(self, name: str) -> Any:
                return getattr(trio, name)

            def current_time(self) -> float:
                return trio.current_time() - began

        await program(Since(), told)

    trio.run(main, clock=clock)
    return told


def on_the_heap(program: Program) -> list[Any]:
    told: list[Any] = []
    heap = Heap(0)
    scheduler = Scheduler(heap)
    process = Process("p")
    scheduler.run_in(process, program, scheduler, told)
    while heap.step(60_000_000):
        pass
    assert not scheduler.failures
    assert not process.tasks, "it has not come to its end"
    return told


def rounded(told: list[Any]) -> list[Any]:
    """Times are sums of fractions."""
    return [round(item, 3) if isinstance(item, float) else item for item in told]


@pytest.mark.parametrize("program", PROGRAMS)
def test_scheduler_behaves_like_trio(program: Program) -> None:
    expected = on_trio(program)
    assert expected, "the program says nothing"
    assert rounded(on_the_heap(program)) == rounded(expected)


def test_a_killed_process_does_nothing_more() -> None:
    heap = Heap(0)
    scheduler = Scheduler(heap)
    process = Process("p")
    told: list[Any] = []

    async def stubborn() -> None:
        try:
            await scheduler.sleep(5)
        finally:
            with scheduler.CancelScope(shield=True):
                await scheduler.sleep(1)
            told.append("lived on")

    scheduler.run_in(process, stubborn)
    heap.step(1)
    heap.kill(process)
    while heap.step(60_000_000):
        pass
    assert told == []
    assert not scheduler.failures


def test_events_of_a_paused_process_wait() -> None:
    heap = Heap(0)
    scheduler = Scheduler(heap)
    process = Process("p")
    told: list[Any] = []
    scheduler.run_in(process, nap, scheduler, 1, told, "slept")
    heap.step(1)
    process.is_paused = True
    while heap.step(3_000_000):
        pass
    assert told == []
    heap.resume(process)
    while heap.step(4_000_000):
        pass
    assert told == ["slept"]
    assert heap.now_us >= 3_000_000


def test_every_driver_that_takes_part_uses_nothing_else_of_trio() -> None:
    from tests.sim.world import DRIVERS

    for name in DRIVERS:
        module: Any = importlib.import_module(name)
        assert module.trio is sys.modules["trio"], f"{name} is left with the simulation's"
