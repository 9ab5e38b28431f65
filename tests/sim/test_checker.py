"""What the checker lets machines lose: no more than ``min.insync.replicas`` promises to bear."""

from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Set
from tests.sim.settings import TOPIC, TOPIC_ID, Settings
from tests.sim.world import World

BROKERS = (1, 2, 3, 4)


def bearable(world: World) -> list[int]:
    """The machines that may lose power now."""
    return [broker for broker in BROKERS if world.checker.bears_loss_of(broker)]


def test_where_one_replica_is_enough_none_may_be_lost_wherever_it_has_moved() -> None:
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


def test_one_replica_of_two_may_be_lost_and_those_that_are_none() -> None:
    settings = Settings(brokers=BROKERS, partitions={0: (1, 2, 3)}, min_insync_replicas=2)
    world = World(0, settings)
    world.checker.lost_power(4)
    assert bearable(world) == [1, 2, 3, 4]
    world.checker.lost_power(1)
    assert bearable(world) == [1, 4]
