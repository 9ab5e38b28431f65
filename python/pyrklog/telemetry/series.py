"""The series that pushed metrics are exposed as, within bounds for a client, an address and all.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyrklog.telemetry.otlp import Labels, Point, Reading

SERIES_MAX = 10_000
SERIES_OF_ADDRESS_MAX = 5_000
"""One address cannot take the room of all."""
SERIES_OF_CLIENT_MAX = 500

SeriesKey = tuple[str, Labels]
"""Name and labels."""


class Value(NamedTuple):
    value: float
    is_counter: bool
    is_delta: bool


@dataclass(slots=True)
class Pushed:
    """What is exposed of one client."""

    client: Labels = ()
    series: Mapping[SeriesKey, Value] = field(default_factory=dict)
    """Replaced as a whole, so that a reader on another thread sees one push."""
    left_out: int = 0
    """Points of the last push that are not among them."""


class SeriesTable:
    """Counts the series of all clients."""

    def __init__(self) -> None:
        self.total = 0
        self._by_address: dict[str, int] = {}

    def take(self, pushed: Pushed, address: str, reading: Reading) -> None:
        """Replaces what is exposed of a client by its new push. Sums that clients push as
        differences go on from what they were; others are as pushed."""
        before = len(pushed.series)
        room = min(
            SERIES_OF_CLIENT_MAX,
            SERIES_MAX - self.total + before,
            SERIES_OF_ADDRESS_MAX - self._by_address.get(address, 0) + before,
        )
        series = _with_kept_sums(pushed.series, reading.points)
        pushed.client = reading.client
        pushed.left_out = reading.left_out + max(0, len(series) - room)
        pushed.series = dict(list(series.items())[: max(0, room)])
        self._count(address, len(pushed.series) - before)

    def forget(self, pushed: Pushed, address: str) -> None:
        self._count(address, -len(pushed.series))
        pushed.series = {}

    def _count(self, address: str, more: int) -> None:
        self.total += more
        count = self._by_address.pop(address, 0) + more
        if count:
            self._by_address[address] = count


def _with_kept_sums(
    before: Mapping[SeriesKey, Value], points: list[Point]
) -> dict[SeriesKey, Value]:
    """Sums of differences stay when a push does not name them."""
    found = {key: value for key, value in before.items() if value.is_delta}
    for one in points:
        key = (one.name, one.labels)
        value = one.value
        old = before.get(key)
        if one.is_delta and old is not None and old.is_delta:
            value += old.value
        found[key] = Value(value, one.is_counter, one.is_delta)
    return found
