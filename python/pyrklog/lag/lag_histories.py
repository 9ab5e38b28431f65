"""The histories of the groups of a coordinator, within their bounds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import NamedTuple

from pyrklog.lag.lag_history import POINT_BYTES, SPAN_MS, Lag, LagHistory
from pyrklog.lag.shortening import Shortening

SERIES_MAX = 30_000
TOPIC_SERIES_MAX = 10_000
NAME_BYTES_MAX = 2**16 - 1
"""Of a group and a topic together."""
SERIES_BYTES = 900
"""Of a history besides its points and its name, once the lag has moved: with its places in tables,
those of the saver included."""
SERIES_SHARE = 0.75
"""Of the bytes, for histories besides their points; a client may choose long names."""
TOPICS_SHARE = 3
"""A third of these at most are of topics."""
SERIES_A_TURN = 100


class SeriesKey(NamedTuple):
    """``topic`` is empty for the whole group."""

    group: str
    topic: str = ""


class LagHistories:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._series_bytes_max = int(bytes_max * SERIES_SHARE)
        self._topics_max = self._series_bytes_max // SERIES_BYTES // TOPICS_SHARE
        self._by_key: dict[SeriesKey, LagHistory] = {}
        self._shortening = Shortening(self._by_key)
        self._round = 2
        """What a file had is of none."""
        self._series_bytes = 0
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

    def restore(self, loaded: Mapping[SeriesKey, LagHistory]) -> Iterator[None]:
        """Takes what a file had, before any sample, in turns; :meth:`begin` goes on from there."""
        for count, (key, history) in enumerate(loaded.items(), 1):
            if self._has_room(key):
                self._put(key, history)
            if count % SERIES_A_TURN == 0:
                yield
        turns = self._shortening.turns()
        while self._is_full() and (forgotten := next(turns, None)) is not None:
            self._forgot(forgotten)
            yield

    def begin(self, until_ms: int) -> Iterator[None]:
        """Restored histories go until then; what comes next is unknown. In turns."""
        for count, history in enumerate(self._by_key.values(), 1):
            self.points += history.observe(until_ms, history.last.lag) + history.break_off()
            if count % SERIES_A_TURN == 0:
                yield

    def observe(self, key: SeriesKey, at_ms: int, lag: Lag) -> bool:
        """A sample. False: there is no room for another history."""
        history = self._by_key.get(key)
        if history is None:
            if lag.records < 0:
                return True
            if not self._has_room(key):
                return False
            history = LagHistory(at_ms, lag)
            self._put(key, history)
            self.moved[key] = lag
        elif lag == history.last.lag:
            history.observe(at_ms, lag)
        else:
            self.points += history.observe(at_ms, lag)
            self.moved[key] = lag
            if self._is_full():
                self._forgot(self._shortening.step())
        history.seen = self._round
        return True

    def end_round(self, now_ms: int, left_out: int) -> Iterator[None]:
        """The lag of all that the round had no sample of is unknown from now on. Series that have
        had none for as long as histories reach back go, and of the rest as many as ``left_out``,
        longest ago first. In turns."""
        rested: list[tuple[int, SeriesKey]] = []
        for count, (key, history) in enumerate(list(self._by_key.items()), 1):
            if history.seen == self._round - 1:
                self.points += history.break_off()
                self.moved[key] = history.last.lag
            if history.seen < self._round:
                rested.append((history.last.at_ms, key))
            if count % SERIES_A_TURN == 0:
                yield
        self._round += 1
        rested.sort(key=itemgetter(0))
        for count, (at_ms, key) in enumerate(rested):
            if count >= left_out and at_ms >= now_ms - SPAN_MS:
                break
            self.forget([key])
            if count % SERIES_A_TURN == 0:
                yield

    def resting(self) -> list[SeriesKey]:
        """What the last round did not have."""
        return [key for key, one in self._by_key.items() if one.seen < self._round - 1]

    def forget(self, keys: Iterable[SeriesKey]) -> None:
        for key in keys:
            history = self._by_key.pop(key, None)
            if history is not None:
                self.points -= history.points
                self._series_bytes -= _series_bytes(key)
                self._topics -= bool(key.topic)
                self.moved.pop(key, None)

    def take_moved(self) -> dict[SeriesKey, Lag]:
        moved, self.moved = self.moved, {}
        return moved

    def _has_room(self, key: SeriesKey) -> bool:
        if key.topic and self._topics >= min(TOPIC_SERIES_MAX, self._topics_max):
            return False
        if len(self._by_key) >= SERIES_MAX or _name_bytes(key) > NAME_BYTES_MAX:
            return False
        return self._series_bytes + _series_bytes(key) <= self._series_bytes_max

    def _put(self, key: SeriesKey, history: LagHistory) -> None:
        self._by_key[key] = history
        self._series_bytes += _series_bytes(key)
        self._topics += bool(key.topic)
        self.points += history.points

    def _is_full(self) -> bool:
        return self._series_bytes + self.points * POINT_BYTES > self._bytes_max

    def _forgot(self, points: int) -> None:
        self.points -= points
        self.forgotten += points


def _name_bytes(key: SeriesKey) -> int:
    return len(key.group.encode()) + len(key.topic.encode())


def _series_bytes(key: SeriesKey) -> int:
    return SERIES_BYTES + _name_bytes(key)
