"""Whether lag grows: the smallest lag of a window beside that of the window before. Pure."""

from __future__ import annotations

from typing import Generic, TypeVar

from pyrklog.protocol.lag import Trend

WINDOW_SECONDS = 30.0
LAGS_MAX = 400_000
"""Of all groups, both windows together."""
MARGIN = 10
"""A tenth less or more is no change."""

Name = TypeVar("Name")


class Trends(Generic[Name]):
    """Of one group; ``Name`` is a partition, or what stands for all of them."""

    __slots__ = ("_before", "_began", "_lowest")

    def __init__(self) -> None:
        self._began = -WINDOW_SECONDS
        self._lowest: dict[Name, int] = {}
        self._before: dict[Name, int] = {}

    def __len__(self) -> int:
        return len(self._lowest) + len(self._before)

    def has_taken(self, name: Name) -> bool:
        """In this window."""
        return name in self._lowest

    def knows(self, name: Name) -> bool:
        """From the window before."""
        return name in self._before

    def begin(self, now: float) -> None:
        """A look at the group begins, at so many seconds."""
        if now - self._began >= WINDOW_SECONDS:
            self._before, self._lowest, self._began = self._lowest, {}, now

    def take(self, name: Name, lag: int) -> Trend:
        lowest = self._lowest.get(name)
        lowest = self._lowest[name] = lag if lowest is None else min(lag, lowest)
        before = self._before.get(name)
        if before is None:
            return Trend.UNKNOWN
        margin = before // MARGIN
        if lowest > before + margin:
            return Trend.UP
        return Trend.DOWN if lowest < before - margin else Trend.FLAT
