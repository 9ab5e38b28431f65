"""Transactions' coordinators that die, or are left behind with requests on their way: more actions
of a script."""

from __future__ import annotations

import random
from functools import partial

from pyrklog.metastore import znodes
from pyrklog.transactions.manager import TRANSACTION_TOPIC
from tests.sim.faults import DOINGS, Action, Undo, cut_pairs, expire, moments
from tests.sim.internal_topics import PARTITION
from tests.sim.settings import Settings
from tests.sim.world import World

KILL, STRAND = "kill_coordinator", "strand_coordinator"
KILL_MARKING = "kill_marking_coordinator"
WEIGHTS = {KILL: 1, STRAND: 2, KILL_MARKING: 3}
PAUSE_US = (500_000, 6_000_000)
DEAD_US_MAX = 4_000_000
STRANDED_US = (1_000_000, 6_000_000)
ARMED_US = 1_500_000
"""The least time in which a coordinator may be caught that sends a marker."""
SENT_US = (500, 3_000)
"""How long a coordinator lives after it has sent a marker."""
LATE_MARKER_US = (1_000_000, 6_000_000)
REPLACED_US = (100_000, 2_500_000)
"""How long a coordinator stays one after it was cut from another broker."""


def draw_coordinators(seed: int, settings: Settings, from_us: int, until_us: int) -> list[Action]:
    dice = random.Random(f"{seed}/coordinators")
    actions: list[Action] = []
    for at_us in moments(dice, PAUSE_US, from_us, until_us):
        (kind,) = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if kind == STRAND:
            lasts_us = dice.randint(*STRANDED_US)
        else:
            least_us = ARMED_US if kind == KILL_MARKING else 0
            lasts_us = least_us + int(DEAD_US_MAX * dice.random() ** 2)
        actions.append(Action(at_us, kind, (), lasts_us))
    return actions


def _state(world: World) -> znodes.Leadership | None:
    path = znodes.state_path(TRANSACTION_TOPIC, PARTITION)
    entry = world.zookeeper.tree.get(path)
    return None if entry is None else znodes.decode_state(path, entry.node.data)


def _coordinator(world: World) -> int | None:
    state = _state(world)
    return None if state is None or state.leader < 0 else state.leader


def _successor(world: World) -> int | None:
    """Who would coordinate next."""
    state = _state(world)
    isr = set(state.isr) - {state.leader} if state is not None else set()
    replicas = world.checker.internal.replicas[TRANSACTION_TOPIC]
    return next((broker for broker in replicas if broker in isr), None)


def _kill(world: World) -> Undo:
    broker = _coordinator(world)
    if broker is None:
        return None
    world.kill(broker)
    return partial(world.start, broker)


def _kill_marking(world: World) -> Undo:
    """The next coordinator that sends a marker of version 1 dies, and its marker comes late."""
    dice = world.heap.dice("late markers")
    dead: list[int] = []

    def caught(broker: int) -> int:
        world.heap.note(f"the coordinator {broker} is caught")
        dead.append(broker)
        world.heap.after(dice.randint(*SENT_US), None, partial(world.kill, broker))
        return dice.randint(*LATE_MARKER_US)

    def undo() -> None:
        if world.on_marker is caught:
            world.on_marker = None
        for broker in dead:
            world.start(broker)

    world.on_marker = caught
    return undo


def _strand(world: World) -> Undo:
    """The coordinator does not reach another broker, often its successor, and then loses its
    session: what it wrote last may be lost, and its requests come when another one coordinates."""
    broker = _coordinator(world)
    dice = world.heap.dice("stranded coordinators")
    other = _successor(world) if dice.random() < 0.5 else dice.choice(list(world.brokers))
    if broker is None or other is None or broker == other:
        return None
    heal = cut_pairs(world, [(broker, other), (other, broker)])
    world.heap.after(dice.randint(*REPLACED_US), None, partial(expire, world, broker))
    return heal


DOINGS[KILL] = _kill
DOINGS[STRAND] = _strand
DOINGS[KILL_MARKING] = _kill_marking
