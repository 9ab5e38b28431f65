"""The histories of a broker's partitions, within their bounds. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from pyrklog.lag.history import POINT_BYTES, History

PARTITIONS_MAX = 20_000
TIERS_BYTES = 1_100
"""Of a history that has points, besides them; a hundred bytes without."""
KEPT_SHARE = 0.9
"""Histories that have reached their bound are shortened to this share of it."""


class PartitionKey(NamedTuple):
    """A partition created anew has another topic id (16 bytes)."""

    topic: str
    topic_id: bytes
    partition: int


class Histories:
    def __init__(self, bytes_max: int) -> None:
        self._points_max = bytes_max // POINT_BYTES
        self._points_kept = int(self._points_max * KEPT_SHARE)
        self._shorten_above = self._points_max
        self._by_key: dict[PartitionKey, History] = {}
        self.points = 0
        self.forgotten = 0
        """Points that the bound has cost so far."""
        self.moved: dict[PartitionKey, int] = {}
        """Log ends that have moved, or were seen first, since :meth:`take_moved`."""

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def by_key(self) -> Mapping[PartitionKey, History]:
        return self._by_key

    def restore(self, loaded: Mapping[PartitionKey, History]) -> None:
        """Takes what a file had, before any sample."""
        self._by_key.update(loaded)
        self.points = sum(one.points for one in loaded.values())
        self._shorten()

    def observe(self, key: PartitionKey, at_ms: int, end: int, *, unmoved_ms: int) -> History:
        """A partition's log end; ``unmoved_ms`` is when it was looked at before."""
        history = self._by_key.get(key)
        if history is None:
            history = self._by_key[key] = History(at_ms, end)
            self.moved[key] = end
        elif end != history.end:
            self.points += history.add(at_ms, end, unmoved_ms=unmoved_ms)
            self.moved[key] = end
            if self.points > self._shorten_above:
                self._shorten()
        return history

    def keep_only(self, keys: Collection[PartitionKey]) -> None:
        """Forgets the partitions that are no longer here."""
        for key in self._by_key.keys() - keys:
            self.points -= self._by_key.pop(key).points
            self.moved.pop(key, None)

    def take_moved(self) -> dict[PartitionKey, int]:
        moved, self.moved = self.moved, {}
        return moved

    def _shorten(self) -> None:
        """The histories that no group has asked for longest lose their older halves. It looks at
        all of them, so it happens again only once they have grown by a tenth."""
        self._shorten_until_kept()
        self._shorten_above = max(self._points_max, int(self.points / KEPT_SHARE))

    def _shorten_until_kept(self) -> None:
        while self.points > self._points_max:
            forgotten = 0
            for history in sorted(self._by_key.values(), key=lambda one: one.asked_ms):
                forgotten += history.halve()
                if self.points - forgotten <= self._points_kept:
                    break
            self.points -= forgotten
            self.forgotten += forgotten
            if not forgotten:
                return  # one point a tier is left
