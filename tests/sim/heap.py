"""Simulated time: one heap of events, and the processes that they happen to."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Coroutine
from typing import Any

Happening = Callable[[], object]

WAKE_UPS_TO_DIE_MAX = 100


class ProcessDied(BaseException):
    """Unwinds the tasks of a killed process. Nobody handles it."""


class Process:
    """One life of a process. While it is paused its events wait."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_paused = False
        self.resumed_us = -(10**9)
        """When it was last resumed."""
        self.held_back: list[Happening] = []
        self.tasks: dict[Any, None] = {}
        """Tasks that have not ended (``scheduler.Task``)."""


class Heap:
    """Times are microseconds."""

    def __init__(self, seed: int) -> None:
        self.now_us = 0
        self.seed = seed
        self.current: Process | None = None
        """The process of the present event."""
        self._random: dict[str, random.Random] = {}
        self._events: list[tuple[int, int, Process | None, Happening]] = []
        self._count = 0
        self.trace: list[str] = []
        self.happened = 0

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000

    def dice(self, what: str) -> random.Random:
        """One random source per matter: leaving out one fault does not change the others."""
        if what not in self._random:
            self._random[what] = random.Random(f"{self.seed}/{what}")
        return self._random[what]

    def after(self, delay_us: int, process: Process | None, happening: Happening) -> None:
        """Schedules an event for a process, if that lives then, or for nobody."""
        self._count += 1
        event = (self.now_us + max(0, delay_us), self._count, process, happening)
        heapq.heappush(self._events, event)

    def note(self, line: str) -> None:
        self.trace.append(f"{self.now_us:>10} {line}")

    def step(self, until_us: int) -> bool:
        """Runs the next event. False if none is left before ``until_us``; the time is then
        ``until_us``."""
        while self._events:
            at_us, _, process, happening = self._events[0]
            if at_us > until_us:
                break
            heapq.heappop(self._events)
            if process is not None and not process.is_alive:
                continue
            self.now_us = max(self.now_us, at_us)
            if process is not None and process.is_paused:
                process.held_back.append(happening)
                continue
            self.happened += 1
            self.current = process
            happening()
            return True
        self.now_us = max(self.now_us, until_us)
        return False

    def resume(self, process: Process) -> None:
        """Runs the events that were held back, in order."""
        process.is_paused = False
        process.resumed_us = self.now_us
        held_back, process.held_back = process.held_back, []
        for happening in held_back:
            self.after(0, process, happening)

    def kill(self, process: Process) -> None:
        """Ends the process and unwinds its tasks."""
        process.is_alive = False
        process.held_back.clear()
        tasks, process.tasks = process.tasks, {}
        for task in tasks:
            _unwind(task.coroutine)


def _unwind(coroutine: Coroutine[Any, Any, Any]) -> None:
    for _ in range(WAKE_UPS_TO_DIE_MAX):
        try:
            coroutine.throw(ProcessDied())
        except BaseException:
            return
    raise AssertionError(f"{coroutine} goes on after the death of its process")
