"""An administrator who creates and deletes topics without records: more actions of a script.

``Action.brokers`` has the topic's number first, then the replicas of its one partition. Topics of
one name come and go, and each time it is another one.
"""

from __future__ import annotations

import random

from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Create
from pyrklog.metastore.znodes import TopicAssignment
from tests.sim.faults import DOINGS, Action, moments
from tests.sim.made_topics import NAMES
from tests.sim.settings import Settings
from tests.sim.world import World

PAUSE_US = (500, 1_500_000)
REPLICAS_MAX = 3
CREATE, DELETE = "create_topic", "delete_topic"


def draw_topics(seed: int, settings: Settings, from_us: int, until_us: int) -> list[Action]:
    """A script; what cannot be done when its time comes is left out then."""
    dice = random.Random(f"{seed}/topics")
    actions: list[Action] = []
    for at_us in moments(dice, PAUSE_US, from_us, until_us):
        number = dice.randrange(len(NAMES))
        if dice.random() < 0.5:
            actions.append(Action(at_us, DELETE, (number,)))
        else:
            count = dice.randint(1, min(REPLICAS_MAX, len(settings.brokers)))
            replicas = dice.sample(list(settings.brokers), count)
            actions.append(Action(at_us, CREATE, (number, *replicas)))
    return actions


def _create(world: World, number: int, *replicas: int) -> None:
    entries = world.zookeeper.tree.entries
    name = NAMES[number]
    if {znodes.topic_path(name), znodes.delete_topic_path(name)} & entries.keys():
        return
    topic_id = world.heap.dice("topic ids").randbytes(16)
    data = znodes.encode_topic(TopicAssignment(topic_id, {0: replicas}, {}, {}))
    world.zookeeper.run(0, [Create(znodes.topic_path(name), data)])
    world.heap.note(f"topic {name} is {topic_id.hex()} on {list(replicas)}")


def _delete(world: World, number: int) -> None:
    entries = world.zookeeper.tree.entries
    name = NAMES[number]
    if znodes.topic_path(name) in entries and znodes.delete_topic_path(name) not in entries:
        world.zookeeper.run(0, [Create(znodes.delete_topic_path(name))])


DOINGS[CREATE] = _create
DOINGS[DELETE] = _delete
