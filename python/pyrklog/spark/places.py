"""Where a read starts and ends, as options say it: ``startingOffsets`` and its companions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from pyrklog.spark.offsets import TopicPartition

EARLIEST_CODE = -2
LATEST_CODE = -1

JSON_BYTES_MAX = 16 << 20
_OFFSET_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1


class Kind(Enum):
    """How a place is found."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"


class Place(NamedTuple):
    """``value``: the offset, or the milliseconds since 1970 of a timestamp; else 0."""

    kind: Kind
    value: int = 0


EARLIEST = Place(Kind.EARLIEST)
LATEST = Place(Kind.LATEST)


@dataclass(frozen=True)
class Places:
    """One for all partitions, or one for each by name."""

    option: str
    everywhere: Place | None = None
    single: Mapping[TopicPartition, Place] = field(default_factory=dict)

    def of(self, place: TopicPartition) -> Place | None:
        """None if this partition has none."""
        return self.single.get(place) if self.everywhere is None else self.everywhere


def offsets_option(option: str, text: str) -> Places:
    """``earliest``, ``latest`` or ``{"topic": {"0": 23, "1": -1}}``; -2 is earliest, -1 latest.

    Raises ValueError.
    """
    word = text.strip().lower()
    for known in (EARLIEST, LATEST):
        if word == known.kind.value:
            return Places(option, known)
    if not word.startswith("{"):
        raise ValueError(
            f'{option} is {shown(text)}: it can be earliest, latest or {{"topic": {{"0": OFFSET}}}}'
        )
    single = {}
    for place, value in _by_partition(option, text).items():
        if value == EARLIEST_CODE:
            single[place] = EARLIEST
        elif value == LATEST_CODE:
            single[place] = LATEST
        else:
            single[place] = Place(Kind.OFFSET, _at_least_zero(option, place, value))
    return Places(option, None, single)


def timestamp_option(option: str, text: str) -> Places:
    """Milliseconds for all partitions. Raises ValueError."""
    word = text.strip()
    if not (word.isascii() and word.isdigit() and len(word) <= 19 and int(word) <= _OFFSET_MAX):
        raise ValueError(f"{option} is {shown(text)}: it can be milliseconds since 1970")
    return Places(option, Place(Kind.TIMESTAMP, int(word)))


def timestamps_option(option: str, text: str) -> Places:
    """``{"topic": {"0": MILLISECONDS}}``. Raises ValueError."""
    single = {
        place: Place(Kind.TIMESTAMP, _at_least_zero(option, place, value))
        for place, value in _by_partition(option, text).items()
    }
    return Places(option, None, single)


def assigned(option: str, text: str) -> dict[str, tuple[int, ...]]:
    """``{"topic": [0, 2]}``, partitions sorted and each once. Raises ValueError."""
    found = {}
    for topic, partitions in _object(option, text).items():
        if not isinstance(partitions, list) or not partitions:
            raise ValueError(f"{option}: topic {topic!r} needs a list of partitions")
        for number in partitions:
            if type(number) is not int or not 0 <= number <= _INT_MAX:
                raise ValueError(f"{option}: topic {topic!r} cannot have a partition {number!r}")
        found[topic] = tuple(sorted(set(partitions)))
    if not found:
        raise ValueError(f"{option} names no topic")
    return found


def _by_partition(option: str, text: str) -> dict[TopicPartition, int]:
    found = {}
    for topic, partitions in _object(option, text).items():
        if not isinstance(partitions, dict):
            raise ValueError(f'{option}: topic {topic!r} needs an object: {{"0": NUMBER}}')
        for number, value in partitions.items():
            is_number = number.isascii() and number.isdigit() and len(number) <= 10
            if not is_number or int(number) > _INT_MAX:
                raise ValueError(f"{option}: topic {topic!r} cannot have a partition {number!r}")
            if type(value) is not int:
                raise ValueError(f"{option}: {topic}-{number} has {value!r}, not a whole number")
            found[TopicPartition(topic, int(number))] = value
    if not found:
        raise ValueError(f"{option} names no partition")
    return found


def _object(option: str, text: str) -> dict[str, object]:
    if len(text) > JSON_BYTES_MAX:
        raise ValueError(f"{option} is longer than {JSON_BYTES_MAX} characters")
    try:
        value = json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{option} is {shown(text)}, which is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{option} is {shown(text)}, which is no JSON object")
    return value


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{shown(name)} is there twice")
        found[name] = value
    return found


def _at_least_zero(option: str, place: TopicPartition, value: int) -> int:
    if not 0 <= value <= _OFFSET_MAX:
        raise ValueError(f"{option}: {place} has {value}, which it cannot be")
    return value


def shown(text: str) -> str:
    """An option's value for a message, cut if it is long."""
    return repr(text if len(text) <= 80 else text[:77] + "...")
