"""An administrator who moves partitions and changes his mind: more actions of a script.

Of these actions ``brokers`` has the partition's index first, then the replicas wanted.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyrklog.errors import ErrorCode
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Create
from pyrklog.protocol.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.sim.assignments import TOPIC, Targets
from tests.sim.faults import DOINGS, Action

if TYPE_CHECKING:
    from tests.sim.life import Life
    from tests.sim.world import Settings, World

PAUSE_US = (100_000, 3_000_000)
ATTEMPTS = 10
ATTEMPT_EACH_US = 300_000
MOVE, CANCEL, MOVE_BY_ZNODE = "move", "cancel", "move_by_znode"
WEIGHTS = {MOVE: 6, CANCEL: 2, MOVE_BY_ZNODE: 2}


def draw_moves(seed: int, settings: Settings, from_us: int, until_us: int) -> list[Action]:
    """A script: some calls follow each other so closely that they meet the ones before."""
    dice = random.Random(f"{seed}/moves")
    least = max(settings.min_insync_replicas, 1)
    actions: list[Action] = []
    at_us = from_us
    while True:
        at_us += int(PAUSE_US[0] + (PAUSE_US[1] - PAUSE_US[0]) * dice.random() ** 2)
        if at_us >= until_us:
            return actions
        (kind,) = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))
        index = dice.choice(list(settings.partitions))
        count = dice.randint(least, min(least + 1, len(settings.brokers)))
        targets = () if kind == CANCEL else tuple(dice.sample(list(settings.brokers), count))
        actions.append(Action(at_us, kind, (index, *targets)))


def _ask(world: World, index: int, targets: Targets) -> None:
    """Asks whoever leads; where nobody does, a little later again."""
    attempts = ATTEMPTS

    def attempt() -> None:
        nonlocal attempts
        attempts -= 1
        leading = [life for life in world.live() if life.controller and life.controller.leads]
        if leading:
            life = world.heap.dice("administrator").choice(leading)
            world.scheduler.run_in(life.process, _alter, world, life, index, targets)
        elif attempts:
            world.heap.after(ATTEMPT_EACH_US, None, attempt)

    attempt()


async def _alter(world: World, life: Life, index: int, targets: Targets) -> None:
    api: Any = ALTER_PARTITION_REASSIGNMENTS
    wanted = None if targets is None else list(targets)
    asked = ReassignableTopic(TOPIC, [ReassignablePartition(index, wanted)])
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
    _ask(world, index, targets)


def _cancel(world: World, index: int) -> None:
    _ask(world, index, None)


def _move_by_znode(world: World, index: int, *targets: int) -> None:
    """As Kafka's tool did: the node is made, unless there is one."""
    world.checker.assignments.asks(index, targets)
    data = znodes.encode_reassignments({(TOPIC, index): targets})
    world.zookeeper.run(0, [Create(znodes.REASSIGN_PARTITIONS, data)])


MOVES: dict[str, Callable[..., None]] = {
    MOVE: _move,
    CANCEL: _cancel,
    MOVE_BY_ZNODE: _move_by_znode,
}
DOINGS.update(MOVES)
