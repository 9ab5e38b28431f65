"""Names of topics (Kafka's rules). Pure."""

from __future__ import annotations

from collections.abc import Iterable

NAME_LENGTH_MAX = 249
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def wrong_with_name(name: str) -> str | None:
    """Why the name is refused (INVALID_TOPIC_EXCEPTION), or None."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return (
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length "
            f"{NAME_LENGTH_MAX}"
        )
    if not _LEGAL.issuperset(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        )
    return None


def colliding(name: str, existing: Iterable[str]) -> list[str]:
    """Topics that differ from ``name`` only in '.' and '_' (metrics show both alike)."""
    if "." not in name and "_" not in name:
        return []
    folded = name.replace(".", "_")
    return sorted(
        other for other in existing if other != name and other.replace(".", "_") == folded
    )
