"""Topic names by Kafka's rules. Pure."""

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


class TopicNames:
    """Existing names, with a fast search for colliding ones."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._by_folded: dict[str, set[str]] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        self._by_folded.setdefault(_folded(name), set()).add(name)

    def discard(self, name: str) -> None:
        folded = _folded(name)
        alike = self._by_folded.get(folded, set())
        alike.discard(name)
        if not alike:
            self._by_folded.pop(folded, None)

    def __contains__(self, name: str) -> bool:
        return name in self._by_folded.get(_folded(name), ())

    def colliding(self, name: str) -> list[str]:
        """Names that differ from ``name`` only in '.' and '_', which metrics show alike."""
        return sorted(self._by_folded.get(_folded(name), set()) - {name})


def _folded(name: str) -> str:
    return name.replace(".", "_")
