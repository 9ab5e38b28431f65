"""Work between two turns of the loop, counted instead of timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio


@contextmanager
def counted(target: Any, name: str) -> Iterator[Callable[[], int]]:
    method, calls = getattr(target, name), 0

    def counting(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        return method(*args, **more)

    setattr(target, name, counting)
    try:
        yield lambda: calls
    finally:
        delattr(target, name)


async def most_between_turns(count: Callable[[], int], done: trio.Event) -> int:
    """The largest growth of a count between two turns of this task. Another task may have two turns
    in between."""
    most, seen = 0, count()
    while not done.is_set():
        await trio.lowlevel.checkpoint()
        now = count()
        most, seen = max(most, now - seen), now
    return most
