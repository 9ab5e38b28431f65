"""Which topics are mirrored, and how they are called."""

import pytest

from pyrklog.mirror import MirrorError, Names, Patterns, Policy
from pyrklog.mirror.names import chosen, is_internal

EAST = Names("east", "west", Policy.PREFIX, "east")
SAME = Names("east", "west", Policy.IDENTITY, "east")
TOPICS = [
    "orders",
    "orders.eu",
    "west.orders",
    "north.west.orders",
    "north.orders",
    "east.orders",
    "__consumer_offsets",
    "orders.internal",
    "orders-internal",
    "pyrklog-mirror.west.state.internal",
]


def test_topics_that_came_from_either_cluster_are_passed_over() -> None:
    found = chosen(EAST, Patterns([".*"], "--topics"), TOPICS)
    assert found == ["north.orders", "orders", "orders.eu"]


def test_identity_tells_nothing_by_names() -> None:
    found = chosen(SAME, Patterns([".*"], "--topics"), TOPICS)
    assert found == [
        "east.orders",
        "north.orders",
        "north.west.orders",
        "orders",
        "orders.eu",
        "west.orders",
    ]


def test_a_pattern_matches_whole_names() -> None:
    patterns = Patterns(["orders", "a.*"], "--topics")
    assert patterns.matching(["orders", "orders2", "ab", "ba"]) == ["ab", "orders"]


def test_names_at_the_target() -> None:
    assert EAST.at_target("orders") == "east.orders"
    assert SAME.at_target("orders") == "orders"
    with pytest.raises(MirrorError, match="that has 250 characters"):
        EAST.at_target("x" * 245)


def test_internal_topics_are_mirrormakers() -> None:
    assert [topic for topic in TOPICS if is_internal(topic)] == TOPICS[-4:]


@pytest.mark.parametrize("alias", ["", "a.b", "a b", "x" * 101])
def test_bad_aliases_are_refused(alias: str) -> None:
    with pytest.raises(MirrorError, match="no name of a cluster"):
        Names(alias, "west", Policy.PREFIX, "m")


def test_prefix_needs_two_aliases() -> None:
    with pytest.raises(MirrorError, match="the same alias"):
        Names("a", "a", Policy.PREFIX, "a")
    assert Names("a", "a", Policy.IDENTITY, "a").at_target("t") == "t"


def test_a_bad_pattern_is_named_with_its_option() -> None:
    with pytest.raises(MirrorError, match=r"--groups '\(' is no regular expression"):
        Patterns(["("], "--groups")
