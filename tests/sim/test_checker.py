"""The checker allows no more power losses than ``min.insync.replicas`` survives."""

from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Set
from tests.sim.settings import TOPIC, TOPIC_ID, Settings
from tests.sim.world import World

BROKERS = (1, 2, 3, 4)


def bearable(world: World) -> list[int]:
    return [broker for broker in BROKERS if world.checker.bears_loss_of(broker)]


def test_with_minimum_one_no_replica_may_lose_power() -> None:
    settings = Settings(brokers=BROKERS, partitions={0: (2, 4)}, min_insync_replicas=1)
    world = World(0, settings)
    assert bearable(world) == [1, 3]
    world.checker.assignments.asks(0, (3,))
    moving = znodes.TopicAssignment(TOPIC_ID, {0: (3, 2, 4)}, {0: (3,)}, {0: (2, 4)})
    path = znodes.topic_path(TOPIC)
    version = world.zookeeper.tree.entries[path].node.stat.version
    outcome = world.zookeeper.run(0, [Set(path, znodes.encode_topic(moving), version)])
    assert isinstance(outcome, list), outcome
    assert bearable(world) == [1]


def test_with_minimum_two_one_replica_and_all_others_may_lose_power() -> None:
    settings = Settings(brokers=BROKERS, partitions={0: (1, 2, 3)}, min_insync_replicas=2)
    world = World(0, settings)
    world.checker.lost_power(4)
    assert bearable(world) == [1, 2, 3, 4]
    world.checker.lost_power(1)
    assert bearable(world) == [1, 4]
