"""Splits procedures over many partitions, so that other tasks get turns. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

PARTITIONS_A_TURN = 1_000
"""A procedure pauses after so many."""

Item = TypeVar("Item")


def pieces(items: Sequence[Item], most: int | None = None) -> Iterator[Sequence[Item]]:
    """``most``: of each piece; None: what a procedure does in one go."""
    most = most or PARTITIONS_A_TURN
    for first in range(0, len(items), most):
        yield items[first : first + most]


class Turn:
    """Counts the work between two pauses."""

    def __init__(self) -> None:
        self._done = 0

    def is_over(self, count: int = 1) -> bool:
        """Adds ``count``; returns whether to pause."""
        self._done += count
        if self._done < PARTITIONS_A_TURN:
            return False
        self._done = 0
        return True
