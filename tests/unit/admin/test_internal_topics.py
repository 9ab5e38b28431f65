"""The offsets topic as a broker of a cluster sees it."""

from types import SimpleNamespace
from typing import Any

import pytest

from pyrklog.admin.internal_topics import ClusterOffsetsTopic
from pyrklog.config.load import load_config
from pyrklog.errors import ErrorCode
from pyrklog.groups.partitioner import OFFSETS_TOPIC
from pyrklog.handlers.service import TopicResult, TopicSpec
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


def test_led_partitions_name_the_epoch_in_which_leading_began() -> None:
    """The image has the next epoch before the plane: appends must not fail in between."""
    replicas = Replicas(ME)
    replicas.hosted = {
        (OFFSETS_TOPIC, 0): Hosted(ID, 9, True, 5),
        (OFFSETS_TOPIC, 1): Hosted(ID, 9, True),
        (OFFSETS_TOPIC, 2): Hosted(ID, 9, True, 9),
    }
    topic = offsets_topic(replicas, p0=ME, p1=ME, p2=OTHER, p3=ME)
    assert topic.led_partitions() == {0: 5}
    assert list(topic.assigned_partitions()) == [0, 1, 3]


def test_failed_directory_ends_leading_of_its_offsets_partitions() -> None:
    replicas = Replicas(ME)
    replicas.hosted = {(OFFSETS_TOPIC, 0): Hosted(ID, 9, True, 5)}
    replicas.partitions_failed([(OFFSETS_TOPIC, 0)])
    assert offsets_topic(replicas, p0=ME).led_partitions() == {}


@pytest.mark.parametrize(
    ("zookeeper", "given", "brokers", "replicas"),
    [
        (None, None, 1, 1),
        (None, 1, 1, 1),
        (None, 3, 1, None),
        ("z:2181", None, 1, None),
        ("z:2181", None, 2, None),
        ("z:2181", None, 3, 3),
        ("z:2181", None, 5, 3),
        ("z:2181", 2, 1, None),
        ("z:2181", 2, 2, 2),
    ],
)
async def test_offsets_topic_is_created_only_with_enough_brokers(
    zookeeper: str | None, given: int | None, brokers: int, replicas: int | None
) -> None:
    """KIP-115; ``replicas`` None: it is not created."""
    created: list[TopicSpec] = []

    async def create(spec: TopicSpec, *, timeout_ms: int) -> TopicResult:
        created.append(spec)
        return TopicResult(spec.name, ErrorCode.NONE, None)

    flags = {} if zookeeper is None else {"zookeeper.connect": zookeeper}
    overrides = [] if given is None else [f"offsets.topic.replication.factor={given}"]
    image = SimpleNamespace(topics={}, brokers=[object()] * brokers)
    metadata: Any = SimpleNamespace(
        image=image, config=load_config(flags=flags, overrides=overrides)
    )
    service: Any = SimpleNamespace(node_id=ME, create_own_topic=create)
    error = await ClusterOffsetsTopic(metadata, Replicas(ME), service).create()
    if replicas is None:
        assert (error, created) == (ErrorCode.INVALID_REPLICATION_FACTOR, [])
    else:
        assert error is ErrorCode.NONE
        assert [spec.replication_factor for spec in created] == [replicas]
