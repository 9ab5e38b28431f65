"""Answers that may not be there yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import trio

Result = TypeVar("Result")


class Pending(Generic[Result]):
    """The answer to one request, in :attr:`result` or by :meth:`wait`."""

    __slots__ = ("_abandon", "_error", "_event", "_result")

    def __init__(self, abandon: Callable[[], None]) -> None:
        """``abandon`` is called when a waiter gives up before the answer."""
        self._result: Result | None = None
        self._abandon = abandon
        self._error: Exception | None = None
        self._event: trio.Event | None = None

    @property
    def result(self) -> Result | None:
        """None without an answer."""
        return self._result

    def answer(self, result: Result) -> None:
        self._result = result
        if self._event is not None:
            self._event.set()

    def fail(self, error: Exception) -> None:
        self._error = error
        if self._event is not None:
            self._event.set()

    async def wait(self) -> Result:
        """To be called once. Raises what :meth:`fail` got."""
        if self._result is None and self._error is None:
            self._event = trio.Event()
            try:
                await self._event.wait()
            finally:
                if self._result is None:
                    self._abandon()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result
