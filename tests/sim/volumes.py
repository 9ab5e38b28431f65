"""A broker's log volume and its block cache: how slow it is, that it hangs, what a machine forgets.

While a volume hangs no write and no sync returns; what was begun is under way until then. Reads
return: they come from memory.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.sim.core import core
from tests.sim.faults import DOINGS, Action, Undo, expire, moments

if TYPE_CHECKING:
    from tests.sim.heap import Process
    from tests.sim.world import Settings, World

HANG = "hang"
HANG_US_MAX = 8_000_000
STOP = "stop"
"""An orderly end that no controller has let go."""
POWER_OFF = "power_off"
"""The same, and then the machine is switched off."""
INTERRUPTED_START = "interrupted_start"
"""kill -9; the next process is stopped once it is registered, and the machine is switched off."""
INTERRUPTED_AFTER_US = (0, 4_000)
INTERRUPTED_LOOK_US, INTERRUPTED_LOOKS = 500, 8_000
DOWN_US_MAX = 4_000_000
PAUSE_US = (200_000, 4_000_000)
CACHE_BYTES = 4 << 20


class Volume:
    """See the module."""

    def __init__(self, world: World, number: int) -> None:
        self.disk = core().MemDisk()
        self.is_slow = False
        self.is_hung = False
        self._world = world
        self._number = number
        self._dice = world.heap.dice(f"disk of {number}")
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
            self._world.heap.after(0, process, happening)

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
        self.disk.reboot(self._world.heap.dice(f"power of {self._number}").getrandbits(60))
        for arena in self._arena_files():
            arena.unlink()

    def _arena_files(self) -> list[Path]:
        return sorted(self._arenas.glob("*.arena")) if self._arenas is not None else []


def draw_hangs(seed: int, settings: Settings, from_us: int, until_us: int) -> list[Action]:
    """Volumes that hang: some shorter than a lagging replica is waited for, some longer."""
    dice = random.Random(f"{seed}/hangs")
    actions: list[Action] = []
    at_us = from_us + dice.randint(0, PAUSE_US[1])
    while at_us < until_us:
        lasts_us = int(HANG_US_MAX * dice.random() ** 2)
        actions.append(Action(at_us, HANG, (dice.choice(settings.brokers),), lasts_us))
        at_us += dice.randint(*PAUSE_US)
    return actions


def draw_ends(seed: int, settings: Settings, from_us: int, until_us: int) -> list[Action]:
    """Orderly ends, at any time and in any state."""
    dice = random.Random(f"{seed}/ends")
    actions: list[Action] = []
    for at_us in moments(dice, PAUSE_US, from_us, until_us):
        kind = dice.choice((STOP, POWER_OFF, INTERRUPTED_START, INTERRUPTED_START))
        lasts_us = int(DOWN_US_MAX * dice.random() ** 2)
        actions.append(Action(at_us, kind, (dice.choice(settings.brokers),), lasts_us))
    return actions


def _hang(world: World, broker: int) -> Undo:
    volume = world.brokers[broker].volume
    volume.is_hung = True
    return volume.is_back


def _stop(world: World, broker: int) -> Undo:
    life = world.brokers[broker].life
    if life is not None:
        world.ends(life)
    return lambda: world.start(broker)


def _power_off(world: World, broker: int) -> Undo:
    machine = world.brokers[broker]
    if machine.life is not None:
        machine.is_switched_off = True
        world.ends(machine.life)
    return lambda: world.start(broker)


def _interrupted_start(world: World, broker: int) -> Undo:
    world.kill(broker)
    expire(world, broker)
    world.start(broker)
    machine, looks = world.brokers[broker], INTERRUPTED_LOOKS
    after_us = world.heap.dice("interrupted starts").randint(*INTERRUPTED_AFTER_US)

    def look() -> None:
        nonlocal looks
        looks -= 1
        if machine.life is not None and machine.life.is_registered:
            world.heap.after(after_us, None, partial(_power_off, world, broker))
        elif looks:
            world.heap.after(INTERRUPTED_LOOK_US, None, look)

    look()
    return lambda: world.start(broker)


DOINGS[HANG] = _hang
DOINGS[STOP] = _stop
DOINGS[POWER_OFF] = _power_off
DOINGS[INTERRUPTED_START] = _interrupted_start
