from collections.abc import Sequence

import pytest

from pyrklog.cluster.image import ClusterImage
from pyrklog.cluster.requests import TopicPartition
from pyrklog.cluster.topic_pages import UNKNOWN_MAX, TopicPage, read_page
from pyrklog.config.load import load_config
from pyrklog.config.topic import TopicDefaults
from pyrklog.errors import ErrorCode
from pyrklog.plane.values import BrokerImage, PartitionImage

BROKERS = [
    BrokerImage(1, None, [("PLAINTEXT", "one", 9092), ("OTHER", "one", 9093)]),
    BrokerImage(2, None, [("PLAINTEXT", "two", 9092)]),
]


def partition(index: int, leader: int = 1) -> PartitionImage:
    return PartitionImage(index, leader, 3, (1, 2), (1,), (2,))


@pytest.fixture
def image() -> ClusterImage:
    """a with one partition, b with three, c with two."""
    made = ClusterImage(TopicDefaults(load_config()))
    made.set_brokers(1, BROKERS)
    for number, (name, count) in enumerate([("c", 2), ("a", 1), ("b", 3)]):
        made.set_partitions(name, bytes([number]) * 16, [partition(one) for one in range(count)])
    return made


def page(
    image: ClusterImage,
    names: Sequence[str] | None = None,
    start: TopicPartition = ("", 0),
    limit: int = 100,
    listener: str = "PLAINTEXT",
) -> TopicPage:
    return read_page(image, names, start, limit, listener)


def shown(found: TopicPage) -> list[tuple[str, list[int]]]:
    return [(topic.name, [one.partition for one in topic.partitions]) for topic in found.topics]


def test_topics_come_in_order_each_once(image: ClusterImage) -> None:
    everything = [("a", [0]), ("b", [0, 1, 2]), ("c", [0, 1])]
    assert shown(page(image)) == everything
    assert page(image).after is None
    assert shown(page(image, ["c", "a", "c"])) == [everything[0], everything[2]]
    (first, *_) = page(image).topics
    assert (first.error, first.topic_id, first.is_internal) == (ErrorCode.NONE, b"\1" * 16, False)


@pytest.mark.parametrize("names", [None, ["b", "c", "a"]])
@pytest.mark.parametrize("limit", range(1, 8))
def test_pages_add_up_to_all_partitions(
    image: ClusterImage, names: Sequence[str] | None, limit: int
) -> None:
    found: list[tuple[str, int]] = []
    start: TopicPartition | None = ("", 0)
    while start is not None:
        one = page(image, names, start, limit)
        entries = [(name, index) for name, indexes in shown(one) for index in indexes]
        assert len(entries) == limit or one.after is None
        found += entries
        start = one.after
    assert found == [("a", 0), ("b", 0), ("b", 1), ("b", 2), ("c", 0), ("c", 1)]


def test_a_cursor_says_where_to_begin(image: ClusterImage) -> None:
    assert shown(page(image, start=("b", 1), limit=2)) == [("b", [1, 2])]
    assert page(image, start=("b", 1), limit=2).after == ("c", 0)
    assert page(image, start=("b", 1), limit=1).after == ("b", 2)
    assert shown(page(image, start=("b", 2**31 - 1))) == [("b", []), ("c", [0, 1])]
    assert shown(page(image, start=("aa", 7), limit=3)) == [("b", [0, 1, 2])], "its topic is gone"


def test_topics_that_come_and_go_between_pages(image: ClusterImage) -> None:
    assert page(image, limit=1).after == ("b", 0)
    image.remove_partitions("b", [0, 1, 2])
    image.set_partitions("ba", b"x" * 16, [partition(0)])
    assert shown(page(image, start=("b", 0))) == [("ba", [0]), ("c", [0, 1])]
    assert [topic.error for topic in page(image, ["b"], ("b", 0)).topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]


def test_unknown_and_illegal_names_have_their_codes_and_do_not_count(image: ClusterImage) -> None:
    found = page(image, ["none", "a/b", "a", "", "c"], limit=3)
    assert [(topic.name, topic.error) for topic in found.topics] == [
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a", ErrorCode.NONE),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("c", ErrorCode.NONE),
    ]
    assert found.after == ("none", 0), "as in Kafka: nothing follows once the limit is reached"
    assert page(image, ["none"], ("none", 0), 1).after is None


def test_a_page_has_so_many_unknown_names_at_most(image: ClusterImage) -> None:
    names = [f"d{number:05}" for number in range(UNKNOWN_MAX + 2)]
    first = page(image, ["a", *names])
    assert (len(first.topics), first.after) == (UNKNOWN_MAX + 1, (names[-2], 0))
    assert first.after is not None
    assert len(page(image, ["a", *names], first.after).topics) == 2


def test_a_leader_that_the_client_cannot_reach_is_none(image: ClusterImage) -> None:
    image.set_partitions("c", b"\0" * 16, [partition(0, 2), partition(1, 7)])
    leaders = {
        listener: [one.leader for one in page(image, ["c"], listener=listener).topics[0].partitions]
        for listener in ("PLAINTEXT", "OTHER")
    }
    assert leaders == {"PLAINTEXT": [2, -1], "OTHER": [-1, -1]}
    (one, _) = page(image, ["c"], listener="OTHER").topics[0].partitions
    assert (one.leader_epoch, one.replicas, one.isr, one.offline) == (3, (1, 2), (1,), (2,))


def test_missing_partitions_are_left_out(image: ClusterImage) -> None:
    image.set_partitions("b", b"\2" * 16, [partition(5)])
    assert shown(page(image, ["b"], limit=5)) == [("b", [0, 1, 2])]
    assert page(image, ["b"], limit=5).after == ("b", 5)
    image.set_partitions("b", b"\2" * 16, [partition(2**31 - 1)])
    assert shown(page(image, ["b"], ("b", 3))) == [("b", [5])], "nothing is made for the gap"
