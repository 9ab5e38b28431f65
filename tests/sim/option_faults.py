"""An administrator who changes the topic's options while it is served: more actions of a script."""

from __future__ import annotations

import random

from tests.sim.faults import DOINGS, Action, Undo, cut_pairs, moments
from tests.sim.options import MINIMUM
from tests.sim.settings import Settings
from tests.sim.world import World

SET_MINIMUM, ALLOW_UNCLEAN = "set_minimum", "allow_unclean"
STRAND = "strand"
"""A leader is cut off from its followers until it is alone in sync, and dies."""
STRAND_SHARE = 0.5
STRANDED_US = 2_500_000
DEAD_US = (1_500_000, 6_000_000)
PAUSE_US = (100_000, 4_000_000)
ALLOWED_US_MAX = 6_000_000


def draw_minimums(seed: int, settings: Settings, from_us: int, until_us: int) -> list[Action]:
    """``Action.brokers`` has the minimum. Never more than a reassignment leaves replicas."""
    dice = random.Random(f"{seed}/minimums")
    most = settings.min_insync_replicas if settings.moves else 3
    return [
        Action(at_us, SET_MINIMUM, (dice.randint(1, most),))
        for at_us in moments(dice, PAUSE_US, from_us, until_us)
    ]


def draw_unclean(seed: int, settings: Settings, from_us: int, until_us: int) -> list[Action]:
    """Unclean elections are allowed for a while, and somebody needs them, then or later.

    ``Action.brokers`` of a stranded leader has its partition.
    """
    dice = random.Random(f"{seed}/unclean")
    actions: list[Action] = []
    at_us = from_us
    while True:
        at_us += dice.randint(*PAUSE_US)
        if at_us >= until_us:
            return actions
        if dice.random() < STRAND_SHARE:
            partition = dice.choice(list(settings.partitions))
            actions.append(
                Action(at_us, STRAND, (partition,), STRANDED_US + dice.randint(*DEAD_US))
            )
        else:
            lasts_us = int(ALLOWED_US_MAX * dice.random())
            actions.append(Action(at_us, ALLOW_UNCLEAN, (), lasts_us))
            at_us += lasts_us


def _set_minimum(world: World, minimum: int) -> Undo:
    world.options.change(MINIMUM, str(minimum))
    return None


def _allow_unclean(world: World) -> Undo:
    return world.options.allow_unclean()


def _strand(world: World, index: int) -> Undo:
    state = world.checker.partitions[index].leadership
    if state is None or state.leader < 0:
        return None
    leader = state.leader
    others = [broker for broker in world.brokers if broker != leader]
    heal = cut_pairs(world, [p for o in others for p in ((leader, o), (o, leader))])

    def die() -> None:
        world.kill(leader)
        heal()

    world.heap.after(STRANDED_US, None, die)
    return lambda: world.start(leader)


DOINGS[STRAND] = _strand
DOINGS[SET_MINIMUM] = _set_minimum
DOINGS[ALLOW_UNCLEAN] = _allow_unclean
