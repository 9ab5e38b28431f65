"""Carries out changes of the metadata to their end, even after their client stops waiting.

A client's disconnection or time-out ends only its wait, and leaves no half of a change behind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import trio

from pyrklog.base.logs import get_logger

UNWAITED_MAX = 16
"""Most changes that continue without a waiting client; beyond it, a change ends with its wait, so
that clients which come and go while the store is away leave nothing behind for ever."""
UNWAITED_SECONDS = 15.0
"""Longest time of such a change. A later one could overwrite what somebody else has changed
meanwhile through a connected broker."""

Result = TypeVar("Result")

log = get_logger("admin")


class _Work(Generic[Result]):
    def __init__(self, carry_out: Callable[[], Awaitable[Result]]) -> None:
        self.scope = trio.CancelScope()
        self.done = trio.Event()
        self.is_unwaited = False
        self.error: Exception | None = None
        self.result: Result | None = None
        self._carry_out = carry_out

    async def run(self) -> None:
        try:
            with self.scope:
                self.result = await self._carry_out()
        except Exception as error:
            self.error = error
        finally:
            self.done.set()


class Underway:
    """See the module."""

    def __init__(self) -> None:
        self._unwaited = 0

    async def finish(self, carry_out: Callable[[], Awaitable[Result]]) -> Result:
        """Returns or raises what ``carry_out`` does. Cancelling ends the wait only, up to
        :data:`UNWAITED_MAX` such changes."""
        work = _Work(carry_out)
        trio.lowlevel.spawn_system_task(self._run, work, name=carry_out)
        try:
            await work.done.wait()
        except trio.Cancelled:
            if not work.done.is_set():
                self._leave(work)
            raise
        if work.error is not None:
            raise work.error
        return work.result  # type: ignore[return-value]

    async def _run(self, work: _Work[Result]) -> None:
        await work.run()
        if work.is_unwaited:
            self._unwaited -= 1
            if work.error is not None:
                log.error("change_failed", reason=repr(work.error))

    def _leave(self, work: _Work[Result]) -> None:
        if self._unwaited >= UNWAITED_MAX:
            work.scope.cancel()
            return
        work.is_unwaited = True
        work.scope.deadline = trio.current_time() + UNWAITED_SECONDS
        self._unwaited += 1
