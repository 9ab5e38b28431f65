"""An administrator who lets new replicas begin at their leaders' ends, and deletes records: more
actions of a script. Deletions stand for retention, which makes such replicas whole.

``Action.brokers`` has the partition's index first; then the target replicas, or the share of the
readable records that goes, in percent.
"""

from __future__ import annotations

import random

from tests.sim.faults import DOINGS, Action, Undo, moments
from tests.sim.move_faults import ask, draw_targets
from tests.sim.settings import TOPIC, Settings
from tests.sim.world import World

EXPAND, DELETE_RECORDS = "expand", "delete_records"
PAUSE_US = (100_000, 2_500_000)
EXPAND_SHARE = 0.5
PERCENT = (10, 50, 100)


def draw_expansions(seed: int, settings: Settings, from_us: int, until_us: int) -> list[Action]:
    dice = random.Random(f"{seed}/expansions")
    actions = []
    for at_us in moments(dice, PAUSE_US, from_us, until_us):
        index = dice.choice(list(settings.partitions))
        if dice.random() < EXPAND_SHARE:
            actions.append(Action(at_us, EXPAND, (index, *draw_targets(dice, settings))))
        else:
            actions.append(Action(at_us, DELETE_RECORDS, (index, dice.choice(PERCENT))))
    return actions


def _expand(world: World, index: int, *targets: int) -> Undo:
    ask(world, index, targets, at_end=True)
    return None


def delete_records(world: World, index: int, percent: int = 100) -> Undo:
    state = world.checker.partitions[index].leadership
    life = world.brokers[state.leader].life if state is not None and state.leader >= 0 else None
    view = life.sim.partition(TOPIC, index) if life is not None else None
    if life is None or life.process.is_paused or view is None or view[0] != "Leader":
        return None
    start, mark, _, _ = view[2]
    target = start + (mark - start) * percent // 100
    world.checker.deletes(index, target)
    life.touch(lambda: life.sim.plane().delete_records([(TOPIC, index, target)]))
    return None


DOINGS[EXPAND] = _expand
DOINGS[DELETE_RECORDS] = delete_records
