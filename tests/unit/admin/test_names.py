"""Topic names."""

import pytest

from pyrklog.admin.names import colliding, wrong_with_name


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
    existing = ["a.b", "a_b", "ab", "a-b", "a.b.c"]
    assert colliding("a_b", existing) == ["a.b"]
    assert colliding("a.b_c", existing) == ["a.b.c"]
    assert colliding("ab", existing) == []
