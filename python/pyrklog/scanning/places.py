"""Where a scan begins and ends in a partition, as callers say it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pyrklog.scanning.settings import CorePlace


class ListedOffset(NamedTuple):
    """An offset with the epoch that a leader names when it lists offsets: the record before may be
    of an older one. -1 unknown."""

    offset: int
    leader_epoch: int


Place = str | int | tuple[int, int] | ListedOffset | datetime
"""``"earliest"``, ``"latest"``, an offset, (offset, leader epoch of the record before it), a listed
offset, or a time with its zone: the first record that is not older. An epoch of -1 is not known."""

Places = Place | Mapping[str, Place | Mapping[int, Place]]
"""One for all partitions, or by topic, or by topic and partition."""

EARLIEST: CorePlace = ("earliest", 0, -1)
LATEST: CorePlace = ("latest", 0, -1)

ALL_PARTITIONS = -1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET_MAX = 2**63 - 1
_LEADER_EPOCH_MAX = 2**31 - 1


def core_place(place: object) -> CorePlace:
    """Raises ValueError for an unknown word, a negative number and a time without zone, TypeError
    for another type."""
    if isinstance(place, str):
        for known in (EARLIEST, LATEST):
            if place == known[0]:
                return known
        raise ValueError(
            f"{place!r} is no place in a partition: 'earliest', 'latest', an offset, or a time "
            "(datetime)"
        )
    if isinstance(place, datetime):
        return "timestamp", _milliseconds(place), -1
    if isinstance(place, int) and not isinstance(place, bool):
        return "offset", _within("offset", place, _OFFSET_MAX), -1
    if isinstance(place, tuple) and len(place) == 2 and all(type(one) is int for one in place):
        offset, epoch = place
        return (
            "listed" if isinstance(place, ListedOffset) else "offset",
            _within("offset", offset, _OFFSET_MAX),
            epoch if epoch == -1 else _within("leader epoch", epoch, _LEADER_EPOCH_MAX),
        )
    raise TypeError(f"{place!r} is no place in a partition: a {type(place).__name__}")


def core_places(
    places: Places, topics: list[tuple[str, list[int] | None]], default: CorePlace
) -> tuple[CorePlace, list[tuple[str, int, CorePlace]]]:
    """The place of all partitions, and those of single ones; partition -1 stands for a topic's.

    Raises ValueError for a topic or partition that is not read, and as :func:`core_place`.
    """
    if not isinstance(places, Mapping):
        return core_place(places), []
    read = dict(topics)
    single: list[tuple[str, int, CorePlace]] = []
    for topic, of_topic in places.items():
        if topic not in read:
            raise ValueError(f"a place is given for topic {topic!r}, which is not read")
        if not isinstance(of_topic, Mapping):
            single.append((topic, ALL_PARTITIONS, core_place(of_topic)))
            continue
        partitions = read[topic]
        for partition, place in of_topic.items():
            is_read = partitions is None or partition in partitions
            if type(partition) is not int or partition < 0 or not is_read:
                raise ValueError(f"a place is given for {topic}-{partition}, which is not read")
            single.append((topic, partition, core_place(place)))
    return default, single


def _milliseconds(time: datetime) -> int:
    """Rounded up: no record is so late only if none is so late by the millisecond."""
    if time.tzinfo is None:
        raise ValueError(f"the time {time.isoformat()} has no time zone")
    return max(0, -((_EPOCH - time) // timedelta(milliseconds=1)))


def _within(what: str, value: int, most: int) -> int:
    if not 0 <= value <= most:
        raise ValueError(f"there is no {what} {value}")
    return value
