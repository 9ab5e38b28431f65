"""Topic names."""

import pytest

from pyrklog.cluster.topic_names import TopicNames, wrong_with_name


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "..a", "x" * 249, "-", "_", "...", "__internal"])
def test_good_names(name: str) -> None:
    assert wrong_with_name(name) is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, "longer than the max allowed length 249"),
        ("a b", "other than ASCII"),
        ("ä", "other than ASCII"),
        ("a/b", "other than ASCII"),
        ("a\n", "other than ASCII"),
        ("٣", "other than ASCII"),
    ],
)
def test_bad_names(name: str, why: str) -> None:
    assert why in (wrong_with_name(name) or "")


def test_dots_and_underscores_collide() -> None:
    existing = TopicNames(["a.b", "a_b", "ab", "a-b", "a.b.c"])
    assert existing.colliding("a_b") == ["a.b"]
    assert existing.colliding("a.b_c") == ["a.b.c"]
    assert existing.colliding("ab") == []
    assert "a_b" in existing
    assert "a_b_c" not in existing
    existing.add("a_b_c")
    assert existing.colliding("a.b_c") == ["a.b.c", "a_b_c"]
    for name in ("a_b_c", "a.b", "a_b", "unknown"):
        existing.discard(name)
    assert existing.colliding("a.b_c") == ["a.b.c"]
    assert existing.colliding("a_b") == []
