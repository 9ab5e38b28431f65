import pytest

from pyrklog.cluster.image import GAP_MAX, LEADER_NONE, ClusterImage
from pyrklog.config.load import load_config
from pyrklog.config.topic import TopicDefaults
from pyrklog.plane.values import BrokerImage, ImageDelta, PartitionImage

ID, OTHER_ID = b"a" * 16, b"b" * 16
HERE = BrokerImage(1, None, [("PLAINTEXT", "here", 9092)])


def partition(index: int, leader: int = 1, epoch: int = 0) -> PartitionImage:
    return PartitionImage(index, leader, epoch, (1,), (1,), ())


@pytest.fixture
def image() -> ClusterImage:
    return ClusterImage(TopicDefaults(load_config()))


def taken(image: ClusterImage) -> ImageDelta:
    delta = image.take_delta()
    assert delta is not None
    return delta


def test_unchanged_image_has_no_delta(image: ClusterImage) -> None:
    assert image.take_delta() is None
    image.set_brokers(1, [HERE])
    assert taken(image).version == 1
    image.set_brokers(1, [HERE])
    assert image.take_delta() is None


def test_only_changed_topics_are_handed_over(image: ClusterImage) -> None:
    image.set_partitions("a", ID, [partition(0), partition(1)])
    image.set_partitions("b", OTHER_ID, [partition(0)])
    first = taken(image)
    assert [topic.name for topic in first.topics] == ["a", "b"]
    image.set_partitions("a", ID, [partition(0), partition(1)])
    assert image.take_delta() is None
    image.set_partitions("a", ID, [partition(1, leader=-1, epoch=1)])
    second = taken(image)
    assert second.version == first.version + 1
    assert [topic.name for topic in second.topics] == ["a"]
    assert [p.leader for p in second.topics[0].partitions] == [1, -1]


def test_removal_and_rebirth(image: ClusterImage) -> None:
    image.set_partitions("a", ID, [partition(0), partition(1)])
    taken(image)
    assert image.name_of(ID) == "a"
    image.remove_partitions("a", [0, 1, 7])
    image.remove_partitions("none", [0])
    delta = taken(image)
    assert (delta.topics, delta.removed_topics) == ([], ["a"])
    assert image.name_of(ID) is None
    image.set_partitions("a", OTHER_ID, [partition(0)])
    delta = taken(image)
    assert (delta.topics[0].id, delta.removed_topics) == (OTHER_ID, [])


def test_gone_and_back_within_one_delta(image: ClusterImage) -> None:
    image.set_partitions("a", ID, [partition(0), partition(1)])
    taken(image)
    image.remove_partitions("a", [0, 1])
    image.set_partitions("a", OTHER_ID, [partition(0)])
    delta = taken(image)
    assert delta.removed_topics == []
    assert [(t.id, len(t.partitions)) for t in delta.topics] == [(OTHER_ID, 1)]


def test_a_new_id_replaces_all_partitions(image: ClusterImage) -> None:
    image.set_partitions("a", ID, [partition(0), partition(1)])
    image.set_partitions("a", OTHER_ID, [partition(0)])
    assert len(taken(image).topics[0].partitions) == 1
    assert image.name_of(ID) is None


def test_a_partition_that_never_had_a_leader_hides_no_other(image: ClusterImage) -> None:
    image.set_partitions("a", ID, [partition(0), partition(2)])
    shown = taken(image).topics[0].partitions
    assert [(p.partition, p.leader) for p in shown] == [(0, 1), (1, LEADER_NONE), (2, 1)]
    image.set_partitions("a", ID, [partition(1)])
    shown = taken(image).topics[0].partitions
    assert [(p.partition, p.leader) for p in shown] == [(0, 1), (1, 1), (2, 1)]


def test_a_number_far_away_costs_nothing(image: ClusterImage) -> None:
    far = 2**31 - 1
    image.set_partitions("a", ID, [partition(0), partition(GAP_MAX + 1), partition(far)])
    assert len(taken(image).topics[0].partitions) == GAP_MAX + 2
    image.set_partitions("a", ID, [partition(1)])
    assert len(taken(image).topics[0].partitions) == GAP_MAX + 2


def test_options_reach_the_image(image: ClusterImage) -> None:
    image.set_overrides("a", {"retention.ms": "9"})
    assert image.take_delta() is None, "the topic is not there yet"
    image.set_partitions("a", ID, [partition(0)])
    assert taken(image).topics[0].log.retention_ms == 9
    image.set_overrides("a", {"retention.ms": "9"})
    assert image.take_delta() is None
    image.set_overrides("a", {})
    assert taken(image).topics[0].log.retention_ms == 604800000
    image.set_defaults(TopicDefaults(load_config(overrides=["min.insync.replicas=2"])))
    assert taken(image).topics[0].min_insync_replicas == 2


def test_internal_topics_are_marked(image: ClusterImage) -> None:
    image.set_partitions("__consumer_offsets", ID, [partition(0)])
    image.set_partitions("mine", OTHER_ID, [partition(0)])
    assert [topic.internal for topic in taken(image).topics] == [True, False]
