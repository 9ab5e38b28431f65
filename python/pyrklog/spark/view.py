"""A stream's position beside what the cluster has: what is new, what lags, what is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyrklog.spark.offsets import Gone, Position, StreamOffset, TopicPartition

GONE_MAX = 10_000
"""Partitions that an offset has besides those that are read. The latest are kept."""


@dataclass(frozen=True)
class TopicView:
    """A topic that exists; the id is empty before Kafka 2.8."""

    topic_id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class View:
    """What the cluster has: topics, and first and last offsets of their partitions. Epochs of last
    offsets are those of the leaders that gave them."""

    topics: Mapping[str, TopicView]
    earliest: Mapping[TopicPartition, Position]
    latest: Mapping[TopicPartition, Position]


@dataclass
class Standing:
    """Where each partition that exists goes on, and what was noticed.

    ``begins`` has those positions that the offset before does not have. ``lagging`` are partitions
    whose last offset is below the position. ``losses`` are sentences; positions are those after
    the losses.
    """

    positions: dict[TopicPartition, Position] = field(default_factory=dict)
    begins: dict[TopicPartition, Position] = field(default_factory=dict)
    lagging: list[TopicPartition] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)

    def restart(self, place: TopicPartition, position: Position) -> None:
        """Sets a position that is not the one of the offset before."""
        self.positions[place] = position
        self.begins[place] = position


def compare(start: StreamOffset, view: View, *, are_assigned: bool = False) -> Standing:
    """Puts an offset beside a view of the topics that it is about.

    A partition that only the view has is new, and what was deleted there was lost. If partitions
    are assigned by number it may be new to this stream alone.
    """
    standing = Standing()
    known_topics = {place.topic for place in start.positions}
    recreated = {
        name
        for name, topic in view.topics.items()
        if name in known_topics and is_another(start.topic_ids.get(name, ""), topic.topic_id)
    }
    _note_gone(start, view, standing)
    for name in sorted(recreated):
        standing.losses.append(
            f"topic {name} was deleted and created anew: what was not read before is lost"
        )
    for place in sorted(view.latest):
        first = view.earliest[place]
        position = None if place.topic in recreated else start.positions.get(place)
        returned = _returned(start, view, place)
        if position is not None:
            standing.positions[place] = position
            if start.is_initial:
                standing.begins[place] = position
        elif returned is not None:
            position = returned
            standing.restart(place, position)
        else:
            standing.restart(place, first)
            is_added = place.topic in known_topics and place.topic not in recreated
            if is_added and first.offset > 0 and not are_assigned:
                standing.losses.append(
                    f"partition {place} was added and begins at offset {first.offset}: the records "
                    "before were deleted before they were read"
                )
            continue
        if position.offset < first.offset:
            standing.losses.append(
                f"offsets {position.offset} to {first.offset - 1} of {place} were deleted before "
                "they were read"
            )
            standing.restart(place, first)
        elif position.offset > view.latest[place].offset:
            standing.lagging.append(place)
    return standing


def left_behind(start: StreamOffset, view: View, standing: Standing) -> dict[str, Gone]:
    """What the offset after ``start`` keeps of partitions that it does not read: those that are
    dropped now or were before, while no other topic has the name. Topics without an id are not
    told from others, and forgotten."""
    dropped: dict[str, dict[int, Position]] = {}
    for place, position in start.positions.items():
        if place not in standing.positions:
            dropped.setdefault(place.topic, {})[place.partition] = position
    found = {}
    for name in {*start.gone, *dropped}:
        now, before = dropped.get(name, {}), start.gone.get(name)
        topic_id = start.topic_ids.get(name) or ("" if before is None else before.topic_id)
        there = view.topics.get(name)
        if not topic_id or (there is not None and is_another(topic_id, there.topic_id)):
            continue
        positions = dict(now)
        if before is not None and before.topic_id == topic_id:
            positions = {**before.positions, **now}
        left = {
            number: position
            for number, position in positions.items()
            if TopicPartition(name, number) not in standing.positions
        }
        if left:
            number = start.number + 1 if before is None or now else before.number
            found[name] = Gone(topic_id, number, left)
    return _latest(found)


def _latest(gone: dict[str, Gone]) -> dict[str, Gone]:
    """As many topics as have ``GONE_MAX`` partitions."""
    kept, room = {}, GONE_MAX
    for name, one in sorted(gone.items(), key=lambda item: (-item[1].number, item[0])):
        room -= len(one.positions)
        if room < 0:
            break
        kept[name] = one
    return kept


def _returned(start: StreamOffset, view: View, place: TopicPartition) -> Position | None:
    """Where the stream was when it dropped this partition of the same topic."""
    gone = start.gone.get(place.topic)
    if gone is None or is_another(gone.topic_id, view.topics[place.topic].topic_id):
        return None
    return gone.positions.get(place.partition)


def _note_gone(start: StreamOffset, view: View, standing: Standing) -> None:
    gone = [place for place in sorted(start.positions) if place not in view.latest]
    for topic in dict.fromkeys(place.topic for place in gone):
        if topic not in view.topics:
            standing.losses.append(
                f"topic {topic} does not exist any more: what was not read before is lost"
            )
    for place in gone:
        if place.topic in view.topics:
            standing.losses.append(f"partition {place} does not exist any more")


def is_another(before: str, now: str) -> bool:
    """Whether two ids are those of different topics; empty ones are unknown."""
    return bool(before and now and before != now)


def lacks(found: TopicView, expected: TopicView) -> bool:
    """Whether it is another topic, or has not all partitions that are expected."""
    if is_another(expected.topic_id, found.topic_id):
        return True
    return not set(expected.partitions) <= set(found.partitions)
