"""What the offsets topic tells of the groups whose generations it holds."""

from collections.abc import Callable, Iterator, Mapping

import pytest
from confluent_kafka import Consumer, TopicPartition

from pyrklog.groups.partitioner import OFFSETS_TOPIC
from pyrklog.protocol.group_records import (
    GroupKey,
    OffsetKey,
    UnknownKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from tests.support.cluster_clients import end_offset

_STORY_MARGIN = 60


def check_generations(
    bootstrap: str,
    topic: str,
    least: Mapping[str, int],
    offsets_partitions: int,
    *,
    stories: Mapping[str, Callable[[int, int, int], str]] | None = None,
) -> None:
    """The offsets topic holds every assignment that was handed out, and every commit in order.

    `least` says how many generations each group has had at the very least; other groups are not
    looked at. All consume `topic`. `stories` tell who committed between two offsets of a group's
    partition.
    """
    generations = dict.fromkeys(least, 0)
    offsets: dict[tuple[str, int], int] = {}
    for key_bytes, value_bytes in _offsets_records(bootstrap, offsets_partitions):
        key = decode_key(key_bytes)
        if isinstance(key, UnknownKey) or key.group not in least:
            continue
        if isinstance(key, GroupKey) and value_bytes is not None:
            group = decode_group_value(value_bytes)
            assert group.generation >= generations[key.group]
            generations[key.group] = group.generation
            shares = [_partitions(member.assignment, topic) for member in group.members]
            owned = sorted(partition for share in shares for partition in share)
            assert len(set(owned)) == len(owned), f"{group}: owned twice"
        elif isinstance(key, OffsetKey) and value_bytes is not None:
            offset = decode_offset_value(value_bytes).offset
            place = (key.group, key.partition)
            if offset < (before := offsets.get(place, 0)):
                span = (key.partition, offset - _STORY_MARGIN, before + _STORY_MARGIN)
                story = stories[key.group](*span) if stories else ""
                pytest.fail(f"{place}: {offset} after {before}\n{story}")
            offsets[place] = offset
    assert all(generations[name] >= count for name, count in least.items()), generations


def _offsets_records(bootstrap: str, partitions: int) -> Iterator[tuple[bytes, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    for partition in range(partitions):
        place = TopicPartition(OFFSETS_TOPIC, partition, 0)
        end = end_offset(consumer, place)
        consumer.assign([place])
        position = 0
        while position < end:
            for message in consumer.consume(500, 1.0):
                assert message.error() is None
                position = message.offset() + 1
                yield message.key(), message.value()
    consumer.close()


def _partitions(assignment: bytes, topic: str) -> list[int]:
    """The partitions of the one topic in a member's assignment (version, topics, user data)."""
    if not assignment:
        return []
    topics = int.from_bytes(assignment[2:6], "big")
    if topics == 0:
        return []
    assert topics == 1
    at = 8 + int.from_bytes(assignment[6:8], "big")
    assert assignment[8:at] == topic.encode()
    count = int.from_bytes(assignment[at : at + 4], "big")
    ends = range(at + 8, at + 8 + 4 * count, 4)
    return [int.from_bytes(assignment[end - 4 : end], "big") for end in ends]
