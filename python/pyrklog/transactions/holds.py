"""Requests that wait for a transactional id that changes. Pure.

They go on in the order of their arrival, each once the id is at rest, or after
:data:`HOLD_SECONDS`. Waiting takes no task.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable

from pyrklog.base.pending import Pending
from pyrklog.transactions.machine import TransactionMachine

HOLD_SECONDS = 1.0
"""How long a request waits for an id that changes. Clients pause before they retry."""

Held = Pending[bool]
"""True: the id is at rest; False: it still changes."""


class Holds:
    """See the module."""

    def __init__(self, is_changing: Callable[[TransactionMachine], bool]) -> None:
        self._is_changing = is_changing
        self._numbers = itertools.count()
        self._held: dict[int, tuple[float, TransactionMachine, Held]] = {}
        """In order of their ends."""
        self._of: dict[TransactionMachine, deque[int]] = {}
        """Some have ended."""
        self._releasing: set[TransactionMachine] = set()

    def hold(self, machine: TransactionMachine, now: float) -> Held:
        """``now`` in seconds."""
        number = next(self._numbers)
        held: Held = Pending(lambda: self._forget(number))
        self._held[number] = (now + HOLD_SECONDS, machine, held)
        self._of.setdefault(machine, deque()).append(number)
        return held

    def _forget(self, number: int) -> None:
        del self._held[number]

    def release(self, machine: TransactionMachine) -> None:
        """The id may be at rest. What goes on may make it change again."""
        waiting = self._of.get(machine)
        if waiting is None or machine in self._releasing:
            return
        self._releasing.add(machine)
        try:
            while waiting and not self._is_changing(machine):
                found = self._held.pop(waiting.popleft(), None)
                if found is not None:
                    found[2].answer(True)
        finally:
            self._releasing.discard(machine)
            if not waiting:
                del self._of[machine]

    def next_end(self) -> float | None:
        """When the first one that waits has waited long enough; None: nobody waits."""
        return next(iter(self._held.values()))[0] if self._held else None

    def end_due(self, now: float) -> None:
        """Those that have waited long enough go on."""
        while self._held and next(iter(self._held.values()))[0] <= now:
            self._end_first()

    def _end_first(self) -> None:
        number = next(iter(self._held))
        _, machine, held = self._held.pop(number)
        waiting = self._of[machine]
        while waiting and waiting[0] not in self._held:
            waiting.popleft()
        if not waiting:
            del self._of[machine]
        held.answer(False)
