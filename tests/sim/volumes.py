"""A broker's log volume and block cache: delays, hangs, and what a machine forgets.

While a volume hangs, no write or sync returns; those under way finish later. Reads come from memory
and return.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.sim.core import core
from tests.sim.heap import Heap, Process

CACHE_BYTES = 4 << 20


class Volume:
    def __init__(self, heap: Heap, number: int) -> None:
        self.disk = core().MemDisk()
        self.is_slow = False
        self.is_hung = False
        self._heap = heap
        self._number = number
        self._dice = heap.dice(f"disk of {number}")
        self._waiting: list[tuple[Process | None, Callable[[], object]]] = []
        self._arenas: Path | None = None

    def delay_us(self) -> int:
        if self.is_slow:
            return self._dice.randint(20_000, 700_000)
        return self._dice.randint(100, 3_000)

    def holds_up(self, process: Process | None, happening: Callable[[], object]) -> bool:
        """True while it hangs; ``happening`` then waits for the hang's end."""
        if self.is_hung:
            self._waiting.append((process, happening))
        return self.is_hung

    def is_back(self) -> None:
        self.is_hung = False
        waiting, self._waiting = self._waiting, []
        for process, happening in waiting:
            self._heap.after(0, process, happening)

    def writes_untold(self) -> bool:
        """Whether writes under way reach the files when a process dies."""
        return self.is_hung and self._dice.random() < 0.5

    # --- the block cache ---------------------------------------------------------------------

    def make_cache(self, memory: Path) -> str:
        if self._arenas is None:
            self._arenas = memory / f"broker-{self._number}"
            self._arenas.mkdir()
        return str(self._arenas)

    def process_dies(self) -> None:
        """Keeps what was written and the arena; releases all locks.

        The dead process's mapping keeps the old arena file, so nobody sees what it still writes.
        """
        self.disk.kill_process()
        for arena in self._arena_files():
            copy = arena.with_suffix(".copy")
            shutil.copyfile(arena, copy)
            copy.replace(arena)

    def machine_goes_down(self) -> None:
        """Loses some of what was not synced, and all memory."""
        self.disk.reboot(self._heap.dice(f"power of {self._number}").getrandbits(60))
        for arena in self._arena_files():
            arena.unlink()

    def _arena_files(self) -> list[Path]:
        return sorted(self._arenas.glob("*.arena")) if self._arenas is not None else []
