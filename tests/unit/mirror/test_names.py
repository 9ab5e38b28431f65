"""Which topics are mirrored, and how they are called."""

import pytest

from pyrklog.mirror import Kind, MirrorError, Names, Patterns, Policy
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


def test_topics_whose_names_would_be_too_long_are_not_chosen() -> None:
    fits, too_long = "x" * 244, "y" * 245
    every = Patterns([".*"], "--topics")
    assert (EAST.is_too_long(fits), EAST.is_too_long(too_long)) == (False, True)
    assert chosen(EAST, every, [fits, too_long]) == [fits]
    assert chosen(SAME, every, [fits, "z" * 249]) == [fits, "z" * 249]


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


@pytest.mark.parametrize("pattern", ["orders,payments", "a, b", "a{1,2},b", "[ab],c", r"\\,x"])
def test_a_list_is_refused(pattern: str) -> None:
    """As a regular expression it would match nothing, and nobody would be told."""
    with pytest.raises(MirrorError, match=r"--topics .* has a comma") as refused:
        Patterns(["orders", pattern], "--topics")
    assert refused.value.kind is Kind.USAGE
    assert refused.value.fix is not None
    assert refused.value.fix.startswith("repeat the option (--topics '")


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("a{1,2}", "aa"),
        ("b{,2}", "b"),
        ("c{2,}", "cc"),
        ("d[,x]e", "d,e"),
        (r"[\],]g", ",g"),
        ("[],]h", ",h"),
        ("[^],]i", "ai"),
        (r"f\,g", "f,g"),
    ],
)
def test_a_comma_that_is_meant_is_none(pattern: str, name: str) -> None:
    """Names of groups may have some."""
    assert Patterns([pattern], "--groups").matching([name]) == [name]


def test_a_bad_pattern_is_named_with_its_option() -> None:
    with pytest.raises(MirrorError, match=r"--groups '\(' is no regular expression"):
        Patterns(["("], "--groups")
