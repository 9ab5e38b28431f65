"""A stream's offset as Spark keeps it: a position in each partition, as JSON.

The fields: ``docs/understanding/spark-source.md``. Spark compares offsets as texts and keeps no
first offset, so documents are canonical, and an end says where its batch begins if the start
cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

VERSION = 1

_OFFSET_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1

Json = dict[str, object]


class OffsetFormatError(ValueError):
    """A checkpoint's offset is not one of this source's."""


class TopicPartition(NamedTuple):
    """Sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Position(NamedTuple):
    """The next offset to read, and a leader epoch not older than that of the record before it; -1
    unknown."""

    offset: int
    epoch: int = -1


class OffsetRange(NamedTuple):
    """Offsets from ``start`` up to, and without, ``end``; ``epoch`` as that of a position. The
    topic with ``topic_id`` is meant, any if that is empty."""

    topic: str
    partition: int
    start: int
    end: int
    epoch: int = -1
    topic_id: str = ""

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class Gone:
    """Partitions of a topic, by number, that a stream has dropped, last in the offset ``number``:
    where it goes on if they come back with the topic of this id."""

    topic_id: str
    number: int
    positions: Mapping[int, Position]


@dataclass(frozen=True)
class StreamOffset:
    """Where a stream is.

    ``begins`` has the starts of the batch that ends here, of those partitions in which the offset
    before does not say it. ``gone`` has what was dropped, by topic.
    """

    positions: Mapping[TopicPartition, Position]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    begins: Mapping[TopicPartition, Position] = field(default_factory=dict)
    number: int = 0
    is_initial: bool = False
    gone: Mapping[str, Gone] = field(default_factory=dict)

    def to_json(self) -> Json:
        """The same document for equal offsets, whatever order they were made in."""
        topics: dict[str, dict[str, object]] = {}
        for place in sorted(self.positions):
            topic = topics.setdefault(place.topic, self._topic(place.topic))
            partitions = topic["partitions"]
            assert isinstance(partitions, dict)
            partitions[str(place.partition)] = self._partition(place)
        document: Json = {"version": VERSION}
        if self.is_initial:
            document["initial"] = True
        gone = {name: _gone_fields(self.gone[name]) for name in sorted(self.gone)}
        document |= {"number": self.number, "topics": topics}
        return document | ({"gone": gone} if gone else {})

    def _topic(self, name: str) -> dict[str, object]:
        known = self.topic_ids.get(name, "")
        return ({"id": known} if known else {}) | {"partitions": {}}

    def _partition(self, place: TopicPartition) -> dict[str, int]:
        fields = _fields("offset", "epoch", self.positions[place])
        begin = self.begins.get(place)
        return fields if begin is None else fields | _fields("from", "fromEpoch", begin)


def from_json(document: object) -> StreamOffset:
    """An offset of this source, or of the stock connector. Raises OffsetFormatError."""
    fields = _object(document, "the offset")
    version = fields.get("version")
    if isinstance(version, dict) or "version" not in fields:
        return _from_stock(fields)
    if version != VERSION:
        raise OffsetFormatError(
            f"the checkpoint's offset has version {version!r}; this pyrklog reads version {VERSION}"
        )
    positions: dict[TopicPartition, Position] = {}
    begins: dict[TopicPartition, Position] = {}
    topic_ids: dict[str, str] = {}
    for name, topic in _object(fields.get("topics"), "the offset's topics").items():
        of_topic = _object(topic, f"topic {name} of the offset")
        known = _topic_id(name, of_topic)
        if known:
            topic_ids[name] = known
        partitions = _object(of_topic.get("partitions"), f"the partitions of topic {name}")
        for number, one in partitions.items():
            place = TopicPartition(name, _partition_number(name, number))
            position = _object(one, f"{place} in the offset")
            positions[place] = _position(place, position, "offset", "epoch")
            if "from" in position:
                begins[place] = _position(place, position, "from", "fromEpoch")
    gone = {
        name: _gone(name, one)
        for name, one in _object(fields.get("gone", {}), "what is gone in the offset").items()
    }
    count = _number(fields)
    return StreamOffset(positions, topic_ids, begins, count, fields.get("initial") is True, gone)


def ranges_between(start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
    """What a batch reads, sorted by partition; empty ranges are left out.

    A partition that neither offset gives a start begins at 0, as one that is new in a batch of the
    stock connector. Raises OffsetFormatError for an end before its start.
    """
    found = []
    for place in sorted(end.positions):
        begin = end.begins.get(place) or start.positions.get(place) or Position(0)
        last = end.positions[place].offset
        if last < begin.offset:
            raise OffsetFormatError(
                f"the batch ends at offset {last} of {place}, before its start at {begin.offset}: "
                "the checkpoint is not of this stream"
            )
        if last > begin.offset:
            topic_id = end.topic_ids.get(place.topic, "")
            found.append(OffsetRange(*place, begin.offset, last, begin.epoch, topic_id))
    return found


def sentence_of(places: Iterable[TopicPartition], most: int = 10) -> str:
    """``a-0, a-1 and 3 more``, sorted."""
    ordered = sorted(places)
    text = ", ".join(map(str, ordered[:most]))
    return text if len(ordered) <= most else f"{text} and {len(ordered) - most} more"


def _fields(offset_name: str, epoch_name: str, position: Position) -> dict[str, int]:
    fields = {offset_name: position.offset}
    return fields if position.epoch < 0 else fields | {epoch_name: position.epoch}


def _gone_fields(one: Gone) -> Json:
    ordered = sorted(one.positions.items())
    partitions = {str(number): _fields("offset", "epoch", at) for number, at in ordered}
    return {"id": one.topic_id, "number": one.number, "partitions": partitions}


def _gone(name: str, document: object) -> Gone:
    fields = _object(document, f"topic {name}, which is gone in the offset,")
    positions = {}
    for text, one in _object(fields.get("partitions"), f"the partitions of topic {name}").items():
        place = TopicPartition(name, _partition_number(name, text))
        position = _object(one, f"{place} in the offset")
        positions[place.partition] = _position(place, position, "offset", "epoch")
    return Gone(_topic_id(name, fields), _number(fields), positions)


def _topic_id(name: str, fields: Json) -> str:
    known = fields.get("id", "")
    if not isinstance(known, str):
        raise OffsetFormatError(f"topic {name} of the offset has the id {known!r}")
    return known


def _number(fields: Json) -> int:
    return _whole(fields.get("number"), "the offset's number", 0, _OFFSET_MAX)


def _from_stock(fields: Json) -> StreamOffset:
    positions = {}
    for name, partitions in fields.items():
        for number, offset in _object(partitions, f"topic {name} of the offset").items():
            place = TopicPartition(name, _partition_number(name, number))
            positions[place] = Position(_whole(offset, f"the offset of {place}", 0, _OFFSET_MAX))
    return StreamOffset(positions)


def _position(place: TopicPartition, fields: Json, offset_name: str, epoch_name: str) -> Position:
    offset = _whole(fields.get(offset_name), f"{offset_name} of {place}", 0, _OFFSET_MAX)
    epoch = _whole(fields.get(epoch_name, -1), f"{epoch_name} of {place}", -1, _INT_MAX)
    return Position(offset, epoch)


def _partition_number(topic: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _INT_MAX):
        raise OffsetFormatError(f"topic {topic} of the offset has a partition {text!r}")
    return int(text)


def _object(value: object, what: str) -> Json:
    if not isinstance(value, dict):
        raise OffsetFormatError(f"{what} is {value!r}, not an object: not an offset of this source")
    return value


def _whole(value: object, what: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise OffsetFormatError(f"{what} is {value!r}, which it cannot be")
    return value
