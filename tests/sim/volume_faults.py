"""Volumes that hang, and brokers that are stopped at any time: more actions of a script."""

from __future__ import annotations

import random
from functools import partial

from tests.sim.faults import DOINGS, Action, Undo, expire, moments
from tests.sim.settings import Settings
from tests.sim.world import World

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
