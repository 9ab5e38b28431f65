"""The histories of a broker's partitions, within their bounds. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from pyrklog.lag.history import POINT_BYTES, History
from pyrklog.lag.shortening import Shortening

PARTITIONS_MAX = 20_000
HISTORY_BYTES = 680
"""Of a history besides its points, once the log end has moved: with its places in tables, those of
the saver included."""
HISTORIES_SHARE = 0.82
"""Of the bytes, for histories besides their points."""
HISTORIES_A_TURN = 500


class PartitionKey(NamedTuple):
    """A partition created anew has another topic id (16 bytes)."""

    topic: str
    topic_id: bytes
    partition: int


class Histories:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.partitions_max = min(PARTITIONS_MAX, int(bytes_max * HISTORIES_SHARE) // HISTORY_BYTES)
        """As many histories have room, whatever moves."""
        self._by_key: dict[PartitionKey, History] = {}
        self._shortening = Shortening(self._by_key)
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

    def restore(self, loaded: Mapping[PartitionKey, History]) -> Iterator[None]:
        """Takes what a file had, before any sample; in turns."""
        for count, (key, history) in enumerate(loaded.items(), 1):
            self._by_key[key] = history
            self.points += history.points
            if count % HISTORIES_A_TURN == 0:
                yield
        turns = self._shortening.turns()
        while self._is_full() and (forgotten := next(turns, None)) is not None:
            self._forgot(forgotten)
            yield

    def observe(self, key: PartitionKey, at_ms: int, end: int, *, unmoved_ms: int) -> History:
        """A partition's log end; ``unmoved_ms`` is when it was looked at before."""
        history = self._by_key.get(key)
        if history is None:
            history = self._by_key[key] = History(at_ms, end)
            self.moved[key] = end
        elif end != history.end:
            self.points += history.add(at_ms, end, unmoved_ms=unmoved_ms)
            self.moved[key] = end
            if self._is_full():
                self._forgot(self._shortening.step())
        return history

    def keep_only(self, keys: Collection[PartitionKey]) -> Iterator[None]:
        """Forgets the partitions that are no longer here; in turns."""
        for count, key in enumerate(self._by_key.keys() - keys, 1):
            self.points -= self._by_key.pop(key).points
            self.moved.pop(key, None)
            if count % HISTORIES_A_TURN == 0:
                yield

    def take_moved(self) -> dict[PartitionKey, int]:
        moved, self.moved = self.moved, {}
        return moved

    def _is_full(self) -> bool:
        taken = len(self._by_key) * HISTORY_BYTES + self.points * POINT_BYTES
        return taken > self._bytes_max

    def _forgot(self, points: int) -> None:
        self.points -= points
        self.forgotten += points
