"""The offsets topic as a broker of a cluster sees it."""

from types import SimpleNamespace
from typing import Any

from pyrklog.groups.interfaces import OFFSETS_TOPIC
from pyrklog.groups.topic import ClusterOffsetsTopic
from pyrklog.replication.machine import Hosted, Replicas

ME, OTHER = 1, 2
ID = b"i" * 16


def offsets_topic(replicas: Replicas, **leaders: int) -> ClusterOffsetsTopic:
    partitions = {
        int(name[1:]): SimpleNamespace(leader=leader, leader_epoch=9)
        for name, leader in leaders.items()
    }
    topics = {OFFSETS_TOPIC: SimpleNamespace(partitions=partitions)}
    metadata: Any = SimpleNamespace(image=SimpleNamespace(topics=topics))
    service: Any = SimpleNamespace(node_id=ME)
    return ClusterOffsetsTopic(metadata, replicas, service)


def test_what_is_led_counts_from_the_epoch_in_which_it_began() -> None:
    """The image has the next epoch before the plane has: appends must not fail in between."""
    replicas = Replicas(ME)
    replicas.hosted = {
        (OFFSETS_TOPIC, 0): Hosted(ID, 9, True, 5),
        (OFFSETS_TOPIC, 1): Hosted(ID, 9, True),
        (OFFSETS_TOPIC, 2): Hosted(ID, 9, True, 9),
    }
    topic = offsets_topic(replicas, p0=ME, p1=ME, p2=OTHER, p3=ME)
    assert topic.led_partitions() == {0: 5}
    assert list(topic.assigned_partitions()) == [0, 1, 3]


def test_a_failed_directory_ends_it() -> None:
    replicas = Replicas(ME)
    replicas.hosted = {(OFFSETS_TOPIC, 0): Hosted(ID, 9, True, 5)}
    replicas.log_dir_failed([(OFFSETS_TOPIC, 0)])
    assert offsets_topic(replicas, p0=ME).led_partitions() == {}
