"""The series that pushed metrics are exposed as, within bounds for a client, an address and all: of
their number, and of their text. Pure.
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

TEXT_BYTES_MAX = 6 << 20
TEXT_BYTES_OF_ADDRESS_MAX = TEXT_BYTES_MAX // 2
"""Of what :func:`text_bytes` counts: about what the series take in an answer, and in memory."""
SERIES_OVERHEAD_BYTES = 96
LABEL_OVERHEAD_BYTES = 128
"""Of a name and a value in memory, and of what stands around them in an answer."""
WHO_OVERHEAD_BYTES = 64

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
    text_bytes: int = 0
    """Of the client and its series."""
    who_bytes: int = WHO_OVERHEAD_BYTES
    """Of the labels by which the broker names the client, in each series."""


class _Room(NamedTuple):
    series: int
    text_bytes: int


class SeriesTable:
    """Counts the series of all clients, and their text."""

    def __init__(self) -> None:
        self.total = 0
        self.text_bytes = 0
        self._by_address: dict[str, tuple[int, int]] = {}
        """Series and bytes of text."""

    def take(self, pushed: Pushed, address: str, reading: Reading) -> None:
        """Replaces what is exposed of a client by its new push. Sums that clients push as
        differences go on from what they were; others are as pushed. The client's own labels are
        kept with series only."""
        room = self._room(pushed, address)
        series = _with_kept_sums(pushed.series, reading.points)
        kept: dict[SeriesKey, Value] = {}
        size = text_bytes("", reading.client) + pushed.who_bytes
        for key, value in series.items():
            more = text_bytes(*key) + pushed.who_bytes
            if len(kept) >= room.series or size + more > room.text_bytes:
                break
            kept[key] = value
            size += more
        pushed.left_out = reading.left_out + len(series) - len(kept)
        self._replace(pushed, address, reading.client if kept else (), kept, size if kept else 0)

    def _room(self, pushed: Pushed, address: str) -> _Room:
        """For a client, with what it has."""
        series, size = self._by_address.get(address, (0, 0))
        own, own_bytes = len(pushed.series), pushed.text_bytes
        count = min(SERIES_MAX - self.total, SERIES_OF_ADDRESS_MAX - series)
        left = min(TEXT_BYTES_MAX - self.text_bytes, TEXT_BYTES_OF_ADDRESS_MAX - size)
        return _Room(min(SERIES_OF_CLIENT_MAX, count + own), left + own_bytes)

    def forget(self, pushed: Pushed, address: str) -> None:
        pushed.left_out = 0
        self._replace(pushed, address, (), {}, 0)

    def _replace(
        self,
        pushed: Pushed,
        address: str,
        client: Labels,
        series: Mapping[SeriesKey, Value],
        size: int,
    ) -> None:
        more, more_bytes = len(series) - len(pushed.series), size - pushed.text_bytes
        pushed.client, pushed.series, pushed.text_bytes = client, series, size
        self.total += more
        self.text_bytes += more_bytes
        before, bytes_before = self._by_address.pop(address, (0, 0))
        if before + more:
            self._by_address[address] = before + more, bytes_before + more_bytes


def text_bytes(name: str, labels: Labels) -> int:
    """What a series, or a client with its labels, may take at most in an answer, where its name
    stands three times; in memory it is about as much."""
    texts = sum(shown_bytes(one) for label in labels for one in label)
    return 3 * len(name) + texts + SERIES_OVERHEAD_BYTES + LABEL_OVERHEAD_BYTES * len(labels)


def shown_bytes(text: str) -> int:
    """In an answer, where quotation marks and backslashes take two."""
    return len(text.encode(errors="replace")) + text.count('"') + text.count("\\")


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
