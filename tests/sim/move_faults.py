"""An administrator who moves partitions and cancels moves: more actions of a script.

``Action.brokers`` has the partition's index first, then the target replicas.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from pyrklog.errors import ErrorCode
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Create
from pyrklog.protocol.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.sim.assignments import Targets
from tests.sim.cluster import BrokerLife
from tests.sim.faults import DOINGS, Action
from tests.sim.settings import TOPIC, Settings
from tests.sim.world import World

CLOSE_US, FAR_US = (500, 60_000), (100_000, 4_000_000)
CLOSE_SHARE = 0.4
"""Share of actions that fall into the few milliseconds of the previous one."""
ATTEMPTS = 10
ATTEMPT_EACH_US = 300_000
MOVE, CANCEL, MOVE_BY_ZNODE = "move", "cancel", "move_by_znode"
KILL_CONTROLLER = "kill_controller"
WEIGHTS = {MOVE: 6, CANCEL: 0, MOVE_BY_ZNODE: 2, KILL_CONTROLLER: 0}
WEIGHTS_CLOSE = {MOVE: 3, CANCEL: 3, MOVE_BY_ZNODE: 1, KILL_CONTROLLER: 3}
DEAD_US_MAX = 4_000_000


def draw_moves(seed: int, settings: Settings, from_us: int, until_us: int) -> list[Action]:
    """The controller dies in the middle of some moves."""
    dice = random.Random(f"{seed}/moves")
    actions: list[Action] = []
    at_us = from_us
    while True:
        is_close = bool(actions) and dice.random() < CLOSE_SHARE
        at_us += dice.randint(*(CLOSE_US if is_close else FAR_US))
        if at_us >= until_us:
            return actions
        weights = WEIGHTS_CLOSE if is_close else WEIGHTS
        (kind,) = dice.choices(list(weights), list(weights.values()))
        index = dice.choice(list(settings.partitions))
        if is_close and kind == CANCEL and actions[-1].brokers:
            index = actions[-1].brokers[0]
        if kind == KILL_CONTROLLER:
            lasts_us = int(DEAD_US_MAX * dice.random() ** 2)
            actions.append(Action(at_us, kind, (), lasts_us))
        else:
            targets = () if kind == CANCEL else draw_targets(dice, settings)
            actions.append(Action(at_us, kind, (index, *targets)))


def draw_targets(dice: random.Random, settings: Settings) -> tuple[int, ...]:
    least = max(settings.min_insync_replicas, 1)
    count = dice.randint(least, min(least + 1, len(settings.brokers)))
    return tuple(dice.sample(list(settings.brokers), count))


def ask(world: World, index: int, targets: Targets, *, at_end: bool = False) -> None:
    """Asks the controller; tries again a little later if there is none."""
    attempts = ATTEMPTS

    def attempt() -> None:
        nonlocal attempts
        attempts -= 1
        leading = [life for life in world.live() if life.controller and life.controller.leads]
        if leading:
            life = world.heap.dice("administrator").choice(leading)
            world.scheduler.run_in(life.process, _alter, world, life, index, targets, at_end)
        elif attempts:
            world.heap.after(ATTEMPT_EACH_US, None, attempt)

    attempt()


async def _alter(
    world: World, life: BrokerLife, index: int, targets: Targets, at_end: bool
) -> None:
    api: Any = ALTER_PARTITION_REASSIGNMENTS
    wanted = None if targets is None else list(targets)
    asked = ReassignableTopic(TOPIC, [ReassignablePartition(index, wanted, at_end)])
    request = AlterPartitionReassignmentsRequest(topics=[asked])
    assignments = world.checker.assignments
    since = assignments.asks(index, targets)
    body = await life.answer(api.key, 0, api.encode_request(request, 0))
    answer = api.decode_response(body, 0)
    codes = [item.error_code for topic in answer.responses for item in topic.partitions]
    (code,) = codes or [answer.error_code]
    world.heap.note(f"asked to move t-{index} to {targets}: {ErrorCode(code).name}")
    if code == ErrorCode.NONE:
        assignments.accepted(index, targets, since)


def _move(world: World, index: int, *targets: int) -> None:
    ask(world, index, targets)


def _cancel(world: World, index: int) -> None:
    ask(world, index, None)


def _move_by_znode(world: World, index: int, *targets: int) -> None:
    """Like Kafka's old tool: creates the znode if it does not exist."""
    world.checker.assignments.asks(index, targets)
    data = znodes.encode_reassignments({(TOPIC, index): targets})
    world.zookeeper.run(0, [Create(znodes.REASSIGN_PARTITIONS, data)])


def _kill_controller(world: World) -> Callable[[], None] | None:
    leading = [life for life in world.live() if life.controller and life.controller.leads]
    if not leading:
        return None
    broker = leading[-1].broker.id
    world.kill(broker)
    return lambda: world.start(broker)


MOVES: dict[str, Callable[..., Callable[[], None] | None]] = {
    MOVE: _move,
    CANCEL: _cancel,
    MOVE_BY_ZNODE: _move_by_znode,
    KILL_CONTROLLER: _kill_controller,
}
DOINGS.update(MOVES)
