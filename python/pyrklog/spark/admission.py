"""How much of each partition's backlog one batch of a stream takes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyrklog.spark.offsets import TopicPartition


@dataclass(frozen=True)
class Limits:
    """Of one batch; None for no limit."""

    records: int | None = None
    bytes: int | None = None


NO_LIMITS = Limits()


@dataclass
class Turns:
    """Whose turn it is where a batch has room for some only: those that got nothing for longest.
    So each waits for at most as many batches as there are partitions, whatever others wait with
    it. A restart forgets this, and goes on by the batch's number."""

    _last: dict[TopicPartition, int] = field(default_factory=dict)
    """The number of the last batch that took something."""

    def order(self, places: Collection[TopicPartition], number: int) -> list[TopicPartition]:
        """The partitions, the first in turn first, for the batch with this number."""
        ordered = sorted(places)
        first = number % max(1, len(ordered))
        rotated = ordered[first:] + ordered[:first]
        return sorted(rotated, key=lambda place: self._last.get(place, -1))

    def note(
        self, taken: Mapping[TopicPartition, int], known: Iterable[TopicPartition], number: int
    ) -> None:
        """The batch with this number takes so much. Others than those ``known`` are forgotten."""
        self._last = {
            place: number if taken.get(place) else self._last.get(place, -1) for place in known
        }


def share(
    limit: int, backlogs: Mapping[TopicPartition, int], turns: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Shares ``limit`` out in proportion to ``backlogs``, by the largest remainders.

    The shares add up to the limit, or to all of the backlogs if that is less, and none is above its
    backlog. Each partition with a backlog gets at least 1. If the limit is below their number, so
    many of them get 1, in the order of ``turns``, which has all of them.
    """
    waiting = {place: size for place, size in sorted(backlogs.items()) if size > 0}
    total = sum(waiting.values())
    if total <= limit:
        return waiting
    if limit <= len(waiting):
        return dict.fromkeys([place for place in turns if place in waiting][:limit], 1)
    # One for each first; the rest by what is left of the backlogs.
    rest, left = limit - len(waiting), total - len(waiting)
    shares = {place: 1 + rest * (size - 1) // left for place, size in waiting.items()}
    remainders = sorted(waiting, key=lambda place: (-(rest * (waiting[place] - 1) % left), place))
    for place in remainders[: limit - sum(shares.values())]:
        shares[place] += 1
    return shares


def admit(
    limits: Limits,
    backlogs: Mapping[TopicPartition, int],
    record_bytes: Mapping[TopicPartition, float],
    turns: Sequence[TopicPartition],
) -> dict[TopicPartition, int]:
    """The offsets to take of each partition; those of which nothing is taken may be absent.

    ``record_bytes`` are estimates above 0, of each partition with a backlog if bytes are limited.
    If the share of some partitions is smaller than a record of theirs, the first of them in
    ``turns`` gets a record: so the limit may be exceeded by one record, and all partitions go on.
    """
    total = sum(backlogs.values())
    taken = share(total if limits.records is None else limits.records, backlogs, turns)
    if limits.bytes is None:
        return taken
    sizes = {place: math.ceil(count * record_bytes[place]) for place, count in taken.items()}
    if sum(sizes.values()) <= limits.bytes:
        return taken
    allowed = share(limits.bytes, sizes, turns)
    fitting = {
        place: min(taken[place], int(allowance / record_bytes[place]))
        for place, allowance in allowed.items()
    }
    starved = [place for place in turns if place in taken and not fitting.get(place)]
    if starved:
        fitting[starved[0]] = 1
    return fitting


def should_wait(available: int, least: int | None, waited_s: float, wait_most_s: float) -> bool:
    """Whether a batch of so few records is put off: ``minOffsetsPerTrigger``, ``maxTriggerDelay``.

    ``waited_s`` is the time since the last batch."""
    return least is not None and available < least and waited_s < wait_most_s
