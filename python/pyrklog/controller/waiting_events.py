"""Events that wait for the controller. Pure.

A waiting event is not queued twice. Events of brokers go first: a partition without a leader must
not wait until thousands of topics are read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

Handler = Callable[[], Any]


class WaitingEvents:
    def __init__(self) -> None:
        self._keys: set[Hashable] = set()
        self._urgent: deque[tuple[Hashable, Handler]] = deque()
        self._others: deque[tuple[Hashable, Handler]] = deque()

    def put(self, key: Hashable, handler: Handler, *, is_urgent: bool = False) -> bool:
        """Queues an event; False where one of this key waits."""
        if key in self._keys:
            return False
        self._keys.add(key)
        (self._urgent if is_urgent else self._others).append((key, handler))
        return True

    def take(self) -> Handler:
        """The next one; raises ``IndexError`` where none waits."""
        key, handler = (self._urgent or self._others).popleft()
        self._keys.discard(key)
        return handler

    @property
    def has_urgent(self) -> bool:
        return bool(self._urgent)
