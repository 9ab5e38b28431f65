"""The histories of the groups of a coordinator, within their bounds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from pyrklog.lag.lag_history import POINT_BYTES, SPAN_MS, Lag, LagHistory

SERIES_MAX = 30_000
TOPIC_SERIES_MAX = 10_000
NAME_BYTES_MAX = 2**16 - 1
"""Of a group and a topic together."""
NAME_SHARE = 0.25
"""Of the bytes, for names; a client may choose long ones."""
KEPT_SHARE = 0.9
"""Histories that have reached their bound are shortened to this share of it."""


class SeriesKey(NamedTuple):
    """``topic`` is empty for the whole group."""

    group: str
    topic: str = ""


class LagHistories:
    def __init__(self, bytes_max: int) -> None:
        self._names_bytes_max = int(bytes_max * NAME_SHARE)
        self._points_max = (bytes_max - self._names_bytes_max) // POINT_BYTES
        self._points_kept = int(self._points_max * KEPT_SHARE)
        self._shorten_above = self._points_max
        self._by_key: dict[SeriesKey, LagHistory] = {}
        self._live: set[SeriesKey] = set()
        """Those of the round before."""
        self._names_bytes = 0
        self._topics = 0
        self.points = 0
        self.forgotten = 0
        """Points that the bound has cost so far."""
        self.moved: dict[SeriesKey, Lag] = {}
        """Lag that has moved, or was seen first, since :meth:`take_moved`."""

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def by_key(self) -> Mapping[SeriesKey, LagHistory]:
        return self._by_key

    def restore(self, loaded: Mapping[SeriesKey, LagHistory]) -> None:
        """Takes what a file had, before any sample; :meth:`begin` goes on from there."""
        for key, history in loaded.items():
            if self._has_room(key):
                self._put(key, history)
        self._shorten()

    def begin(self, until_ms: int) -> None:
        """Restored histories go until then; what comes next is unknown."""
        for history in self._by_key.values():
            self.points += history.observe(until_ms, history.last.lag) + history.break_off()

    def observe(self, key: SeriesKey, at_ms: int, lag: Lag) -> bool:
        """A sample. False: there is no room for another history."""
        history = self._by_key.get(key)
        if history is None:
            if lag.records < 0:
                return True
            if not self._has_room(key):
                return False
            self._put(key, LagHistory(at_ms, lag))
            self.moved[key] = lag
            return True
        before = history.last.lag
        self.points += history.observe(at_ms, lag)
        if lag != before:
            self.moved[key] = lag
            if self.points > self._shorten_above:
                self._shorten()
        return True

    def end_round(self, live: Set[SeriesKey], now_ms: int, left_out: int) -> None:
        """The lag of all others is unknown from now on. Series that have had no sample for as long
        as histories reach back go, and of the rest as many as ``left_out``, longest ago first."""
        for key in self._live - live:
            history = self._by_key.get(key)
            if history is not None:
                self.points += history.break_off()
                self.moved[key] = history.last.lag
        self._live = set(live)
        rested = sorted((self._by_key[key].last.at_ms, key) for key in self.resting())
        self.forget(key for at_ms, key in rested if at_ms < now_ms - SPAN_MS)
        self.forget(key for _, key in rested[:left_out])

    def resting(self) -> list[SeriesKey]:
        """What the round before did not have."""
        return [key for key in self._by_key if key not in self._live]

    def forget(self, keys: Iterable[SeriesKey]) -> None:
        for key in keys:
            history = self._by_key.pop(key, None)
            if history is not None:
                self.points -= history.count
                self._names_bytes -= _name_bytes(key)
                self._topics -= bool(key.topic)
                self.moved.pop(key, None)

    def take_moved(self) -> dict[SeriesKey, Lag]:
        moved, self.moved = self.moved, {}
        return moved

    def _has_room(self, key: SeriesKey) -> bool:
        if key.topic and self._topics >= TOPIC_SERIES_MAX:
            return False
        name_bytes = _name_bytes(key)
        if len(self._by_key) >= SERIES_MAX or name_bytes > NAME_BYTES_MAX:
            return False
        return self._names_bytes + name_bytes <= self._names_bytes_max

    def _put(self, key: SeriesKey, history: LagHistory) -> None:
        self._by_key[key] = history
        self._names_bytes += _name_bytes(key)
        self._topics += bool(key.topic)
        self.points += history.count

    def _shorten(self) -> None:
        """Histories that nobody has asked for longest lose their older halves, long ones first. It
        looks at all of them, so it happens again only once they have grown by a tenth."""
        while self.points > self._points_max:
            forgotten = 0
            every = self._by_key.values()
            for history in sorted(every, key=lambda one: (one.asked_ms, -one.count)):
                forgotten += history.halve()
                if self.points - forgotten <= self._points_kept:
                    break
            self.points -= forgotten
            self.forgotten += forgotten
            if not forgotten:
                break  # one point a tier is left
        self._shorten_above = max(self._points_max, int(self.points / KEPT_SHARE))


def _name_bytes(key: SeriesKey) -> int:
    return len(key.group.encode()) + len(key.topic.encode())
