"""A broker's log volume and its block cache: how slow it is, that it hangs, what a machine forgets.

While a volume hangs no write and no sync returns; what was begun is under way until then. Reads
return: they come from memory.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.sim.core import core
from tests.sim.heap import Heap, Process

CACHE_BYTES = 4 << 20


class Volume:
    """See the module."""

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
        """How long one slow thing takes."""
        if self.is_slow:
            return self._dice.randint(20_000, 700_000)
        return self._dice.randint(100, 3_000)

    def holds_up(self, process: Process | None, happening: Callable[[], object]) -> bool:
        """While it hangs: true, and it happens when it hangs no longer."""
        if self.is_hung:
            self._waiting.append((process, happening))
        return self.is_hung

    def is_back(self) -> None:
        """It hangs no longer."""
        self.is_hung = False
        waiting, self._waiting = self._waiting, []
        for process, happening in waiting:
            self._heap.after(0, process, happening)

    def writes_untold(self) -> bool:
        """Whether what was under way when a process died comes to the files."""
        return self.is_hung and self._dice.random() < 0.5

    # --- the block cache ---------------------------------------------------------------------

    def make_cache(self, memory: Path) -> str:
        """Where the broker's arenas are to be made."""
        if self._arenas is None:
            self._arenas = memory / f"broker-{self._number}"
            self._arenas.mkdir()
        return str(self._arenas)

    def process_dies(self) -> None:
        """What was written is there, and so is the arena; nobody has a lock.

        The process's own mapping goes on to the arena of before: what it still does in memory when
        it is taken down is seen by nobody.
        """
        self.disk.kill_process()
        for arena in self._arena_files():
            copy = arena.with_suffix(".copy")
            shutil.copyfile(arena, copy)
            copy.replace(arena)

    def machine_goes_down(self) -> None:
        """Of what was not synced some is gone, and all of what was in memory."""
        self.disk.reboot(self._heap.dice(f"power of {self._number}").getrandbits(60))
        for arena in self._arena_files():
            arena.unlink()

    def _arena_files(self) -> list[Path]:
        return sorted(self._arenas.glob("*.arena")) if self._arenas is not None else []
