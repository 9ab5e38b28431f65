"""An administrator who creates and deletes topics without records: more actions of a script.

``Action.brokers`` has the topic's number first, then the replicas of its one partition. Topics of
one name come and go, and each time it is another one.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Create
from pyrklog.metastore.znodes import TopicAssignment
from tests.sim.faults import DOINGS, Action, moments

if TYPE_CHECKING:
    from tests.sim.life import Life
    from tests.sim.world import Settings, World

NAMES = ("made-0", "made-1")
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


def unsettled(world: World) -> str | None:
    """Why these topics are not as they should be; None where they are."""
    marked = world.zookeeper.tree.children(znodes.DELETE_TOPICS)
    if marked:
        return f"{marked} are to be deleted"
    for name in NAMES:
        path = znodes.topic_path(name)
        entry = world.zookeeper.tree.get(path)
        if entry is None:
            wrong = next((f"{name} is deleted, and {w}" for w in _left(world, name)), None)
        else:
            wrong = _not_served(world, name, znodes.decode_topic(path, entry.node.data))
        if wrong is not None:
            return wrong
    return _misnamed(world)


def _misnamed(world: World) -> str | None:
    """Clients are told of ZooKeeper's topics, and of no others."""
    names = set(world.zookeeper.tree.children(znodes.BROKER_TOPICS))
    for life in world.live():
        told = set(life.metadata.image.topics) if life.metadata is not None else set()
        if told != names:
            return f"{life.process.name} tells of {sorted(told)}, and there are {sorted(names)}"
    return None


def _left(world: World, name: str, replicas: tuple[int, ...] = ()) -> list[str]:
    """Brokers that have what they should not have."""
    found = []
    for life in world.live():
        if life.broker.id not in replicas:
            view = life.sim.partition(name, 0)
            if view is not None:
                found.append(f"{life.process.name} holds it: {view}")
            elif life.broker.has_log(name, 0):
                found.append(f"{life.process.name} has its log")
    return found


def _not_served(world: World, name: str, topic: TopicAssignment) -> str | None:
    replicas = topic.replicas[0]
    path = znodes.state_path(name, 0)
    entry = world.zookeeper.tree.get(path)
    if entry is None:
        return f"{name} has no leader"
    state = znodes.decode_state(path, entry.node.data)
    if state.leader < 0 or set(state.isr) != set(replicas):
        return f"{name} on {replicas} is led so: {state}"
    for life in world.live():
        if life.broker.id in replicas and not _is_as_told(life, name, state):
            return f"{life.process.name} has {name} as {life.sim.partition(name, 0)}, not {state}"
    left = _left(world, name, replicas)
    return f"{name} is on {replicas}, and {left[0]}" if left else None


def _is_as_told(life: Life, name: str, state: znodes.Leadership) -> bool:
    view = life.sim.partition(name, 0)
    role = "Leader" if state.leader == life.broker.id else "Follower"
    return view is not None and view[:2] == (role, state.leader_epoch)
