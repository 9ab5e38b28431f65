"""The work of a procedure between two turns of the loop, counted in calls, not in time."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from pyrklog.base.pieces import PARTITIONS_A_TURN
from pyrklog.controller.driver import EFFECTS_A_TURN
from pyrklog.controller.effects import Pause, ReadMinimums, Snapshot, Steps, WriteStates
from pyrklog.controller.machine import Controller
from pyrklog.metastore.znodes import Leadership
from tests.unit.controller.runner import assignment, live

BROKERS = 3
PARTITIONS_OF_TOPIC = 100
CALLS_A_PARTITION = 40
"""In a turn, for each partition of its piece."""
SEARCH_CALLS_A_PARTITION = 5
"""For each partition of the cluster: the search for those concerned covers all at once."""


def replicas_of(index: int) -> tuple[int, int]:
    return (index % BROKERS + 1, (index + 1) % BROKERS + 1)


def cluster(partitions: int) -> Snapshot:
    """Topics of a hundred partitions with two replicas each, all with leaders."""
    each = [replicas_of(index) for index in range(PARTITIONS_OF_TOPIC)]
    names = [f"topic-{number}" for number in range(partitions // PARTITIONS_OF_TOPIC)]
    topics = {name: assignment(*each, topic_id=name.encode().ljust(16)) for name in names}
    states = {
        (name, index): (Leadership(brokers[0], 0, brokers, 1), 0)
        for name in names
        for index, brokers in enumerate(each)
    }
    return Snapshot(topics, states, [])


def turns(steps: Steps) -> list[int]:
    """Calls in each turn of a procedure, by its driver's rule of turns."""
    calls = effects = 0
    counted: list[int] = []

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    def step(result: object) -> object:
        sys.setprofile(count)
        try:
            return steps.send(result)
        finally:
            sys.setprofile(None)

    result: object = None
    while True:
        try:
            effect = step(result)
        except StopIteration:
            return [*counted, calls]
        result = None
        if isinstance(effect, WriteStates):
            result = {write.key: write.expected_version + 1 for write in effect.writes}
        elif isinstance(effect, ReadMinimums):
            result = dict.fromkeys(effect.topics, 1)
        effects += 1
        if isinstance(effect, Pause | WriteStates) or effects % EFFECTS_A_TURN == 0:
            counted.append(calls)
            calls = 0


def started(controller: Controller, partitions: int) -> Steps:
    return controller.start(live(1, 2, 3), cluster(partitions))


def broker_gone(controller: Controller, partitions: int) -> Steps:
    turns(started(controller, partitions))
    return controller.brokers_changed(live(1, 2))


def broker_leaves(controller: Controller, partitions: int) -> Steps:
    turns(started(controller, partitions))
    return controller.controlled_shutdown.shut_down(3, [])


@pytest.mark.parametrize("procedure", [started, broker_gone, broker_leaves])
def test_controller_procedures_yield_often(procedure: Callable[[Controller, int], Steps]) -> None:
    for partitions in (5_000, 20_000):
        counted = turns(procedure(Controller(1, 7), partitions))
        bound = CALLS_A_PARTITION * PARTITIONS_A_TURN + SEARCH_CALLS_A_PARTITION * partitions
        assert max(counted) <= bound, (partitions, sum(counted))
        assert len(counted) > partitions / PARTITIONS_A_TURN
