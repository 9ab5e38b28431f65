"""Procedures over very many partitions, cut so that others get their turns in between. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

PARTITIONS_A_TURN = 1_000
"""A procedure pauses when it has gone through so many."""

Item = TypeVar("Item")


def pieces(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """The items, so many at a time."""
    for first in range(0, len(items), PARTITIONS_A_TURN):
        yield items[first : first + PARTITIONS_A_TURN]


class Turn:
    """Counts what a procedure does between two pauses."""

    def __init__(self) -> None:
        self._done = 0

    def is_over(self, count: int = 1) -> bool:
        """So many more were gone through: whether it is time to pause."""
        self._done += count
        if self._done < PARTITIONS_A_TURN:
            return False
        self._done = 0
        return True
