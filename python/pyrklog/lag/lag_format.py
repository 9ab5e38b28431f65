"""The bytes of the file of groups' histories; lag.md draws them. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from pyrklog.lag.history_format import POINTS, ROUND, Loader, Parsed, chunk, column, parse_with
from pyrklog.lag.lag_histories import SERIES_MAX, SeriesKey
from pyrklog.lag.lag_history import LAG_TIERS, Lag, LagColumns, LagHistory, is_lag, restored

MAGIC = b"pyrklgh\x01"
NAMES_MAX = 2 * SERIES_MAX
_NAME = struct.Struct("<cIHH")


def name_chunk(number: int, key: SeriesKey) -> bytes:
    group, topic = key.group.encode(), key.topic.encode()
    return chunk(_NAME.pack(b"N", number, len(group), len(topic)) + group + topic)


def points_chunk(number: int, tier: int, columns: LagColumns) -> bytes:
    times, records, ms = columns
    count = len(times)
    head = POINTS.pack(b"P", number, tier, count)
    return chunk(head + struct.pack(f"<{count}q{2 * count}f", *times, *records, *ms))


def round_chunk(at_ms: int, wall_ms: int, lags: Mapping[int, Lag]) -> bytes:
    count = len(lags)
    head = ROUND.pack(b"R", at_ms, wall_ms, count)
    records = (one.records for one in lags.values())
    ms = (one.ms for one in lags.values())
    return chunk(head + struct.pack(f"<{count}I{2 * count}f", *lags, *records, *ms))


def history_chunks(number: int, key: SeriesKey, history: LagHistory) -> Iterator[bytes]:
    """A series' name and all its points."""
    yield name_chunk(number, key)
    for tier, columns in enumerate(history.dump()):
        yield points_chunk(number, tier, columns)


def parse(content: bytes, wall_ms: int) -> Parsed[SeriesKey, LagHistory]:
    """Reads a file's content at a start, when the wall clock says ``wall_ms``."""
    return parse_with(MAGIC, _Loader, content, wall_ms)


class _Loader(Loader[SeriesKey, LagColumns, LagHistory]):
    def _take_name(self, body: memoryview) -> None:
        _, number, group, topic = _NAME.unpack_from(body)
        names = bytes(body[_NAME.size :])
        if number != len(self._keys) or number >= NAMES_MAX or len(names) != group + topic:
            raise ValueError(f"the name of series {number}")
        self._history(number - 1)  # its points are whole
        self._keys.append(SeriesKey(names[:group].decode(), names[group:].decode()))

    def _take_points(self, body: memoryview) -> None:
        _, number, tier, count = POINTS.unpack_from(body)
        tiers = self._tiers.get(number, [])
        if number >= len(self._keys) or tier != len(tiers) or tier >= len(LAG_TIERS):
            raise ValueError(f"points of series {number}")
        if len(body) != POINTS.size + 16 * count:
            raise ValueError(f"{count} points in {len(body)} bytes")
        times = column("q", body[POINTS.size : POINTS.size + 8 * count])
        lags = column("f", body[POINTS.size + 8 * count :])
        self._tiers[number] = [*tiers, LagColumns(times, lags[:count], lags[count:])]

    def _take_round(self, body: memoryview) -> None:
        _, at_ms, _, count = ROUND.unpack_from(body)
        if len(body) != ROUND.size + 12 * count:
            raise ValueError(f"a round of {count} in {len(body)} bytes")
        numbers = struct.unpack_from(f"<{count}I", body, ROUND.size)
        lags = struct.unpack_from(f"<{2 * count}f", body, ROUND.size + 4 * count)
        at_ms += self._shift_ms
        for number, lag in zip(numbers, map(Lag, lags[:count], lags[count:]), strict=True):
            if not (is_lag(lag.records) and is_lag(lag.ms)):
                raise ValueError(f"the lag of series {number}")
            history = self._history(number)
            if history is not None:
                history.observe(self.until_ms, history.last.lag)
                history.observe(at_ms, lag)
            elif number < len(self._keys):
                self._histories[number] = LagHistory(at_ms, lag)
            else:
                raise ValueError(f"series {number} has no name")
        self.until_ms = at_ms

    def _restored(self, tiers: list[LagColumns]) -> LagHistory:
        return restored(tiers, self._shift_ms)
