"""Changes of the metadata that are carried out to their end, whoever still waits for them.

A client that goes, or whose time is over, does not leave half of what it asked for behind: only its
wait is cut short.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import trio

from pyrklog.base.logs import get_logger

UNWAITED_MAX = 16
"""Changes that may go on without anybody who waits; of more than these each is cut short with its
wait, so that clients which come and go while the store is away leave nothing behind for ever."""
UNWAITED_SECONDS = 15.0
"""For how long: one that the store holds up for longer is cut short, too. It would overwrite what
somebody else has changed meanwhile, by way of a broker that was not cut off."""

Result = TypeVar("Result")

log = get_logger("admin")


class _Work(Generic[Result]):
    """One change."""

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
        """What ``carry_out`` returns or raises. To cancel this cancels the wait only, as long as no
        more than :data:`UNWAITED_MAX` go on that way."""
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
