"""Answers that may not be there yet."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

import trio

Result = TypeVar("Result")
Next = TypeVar("Next")


def _nothing() -> None:
    """Nobody minds that the waiter gives up."""


class Pending(Generic[Result]):
    """One answer, in :attr:`result`, by :meth:`when_done`, or awaited. It has one taker.

    ``when_done`` costs no task, unlike a coroutine that waits.
    """

    __slots__ = ("_abandon", "_done", "_error", "_event", "_result")

    def __init__(self, abandon: Callable[[], None] = _nothing) -> None:
        """``abandon`` is called when the taker gives up before the answer."""
        self._result: Result | None = None
        self._abandon = abandon
        self._error: Exception | None = None
        self._event: trio.Event | None = None
        self._done: Callable[[], None] | None = None

    @property
    def result(self) -> Result | None:
        """None without an answer."""
        return self._result

    def take(self) -> Result:
        """The answer, which is there. Raises what :meth:`fail` got."""
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def answer(self, result: Result) -> None:
        self._result = result
        self._tell()

    def fail(self, error: Exception) -> None:
        self._error = error
        self._tell()

    def _tell(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done()
        if self._event is not None:
            self._event.set()

    def when_done(self, done: Callable[[], None]) -> None:
        """Calls ``done`` once :meth:`take` has the answer, at once if it is there. ``done`` raises
        nothing: it runs inside the call that answers."""
        if self._result is None and self._error is None:
            self._done = done
        else:
            done()

    def abandon(self) -> None:
        """The taker gives up."""
        self._done = None
        if self._result is None and self._error is None:
            self._abandon()

    async def wait(self) -> Result:
        """To be called once. Raises what :meth:`fail` got."""
        if self._result is None and self._error is None:
            self._event = trio.Event()
            try:
                await self._event.wait()
            finally:
                if self._result is None:
                    self._abandon()
        return self.take()

    def __await__(self) -> Generator[Any, Any, Result]:
        return self.wait().__await__()


def then(first: Pending[Result], step: Callable[[Result], Next | Pending[Next]]) -> Pending[Next]:
    """What ``step`` makes of the answer, at once or later. Failures go to the taker."""
    waits_for: list[Pending[Any]] = [first]
    last: Pending[Next] = Pending(lambda: waits_for[0].abandon())

    def first_done() -> None:
        try:
            found = step(first.take())
        except Exception as error:
            last.fail(error)
            return
        if isinstance(found, Pending):
            waits_for[0] = found
            found.when_done(lambda: second_done(found))
        else:
            last.answer(found)

    def second_done(second: Pending[Next]) -> None:
        try:
            result = second.take()
        except Exception as error:
            last.fail(error)
        else:
            last.answer(result)

    first.when_done(first_done)
    return last


def answered(result: Result) -> Pending[Result]:
    pending: Pending[Result] = Pending()
    pending.answer(result)
    return pending
