"""The topics of a consumer's subscription.

Metadata of the protocol type "consumer" begins, in every version, with an int16 (the version) and
an array of strings (the topics): ``Subscription`` of the consumer protocol.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyrklog.protocol.primitives import DecodeError, string_reader

CONSUMER = "consumer"
TOPICS_MAX = 100_000
"""With more, the topics count as unknown: they would take far more memory than the metadata."""
_PREFIX_BYTES = 6
_read_string = string_reader(flexible=False, nullable=False)


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """None if the bytes are no subscription, or have too many topics."""
    if len(metadata) < _PREFIX_BYTES:
        return None
    version = int.from_bytes(metadata[:2], "big", signed=True)
    count = int.from_bytes(metadata[2:_PREFIX_BYTES], "big", signed=True)
    count_max = min(TOPICS_MAX, (len(metadata) - _PREFIX_BYTES) // 2)
    if version < 0 or not 0 <= count <= count_max:
        return None
    topics = set()
    position = _PREFIX_BYTES
    try:
        for _ in range(count):
            topic, position = _read_string(metadata, position)
            topics.add(topic)
    except DecodeError:
        return None
    return frozenset(topics)


def all_subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members; None if one is unreadable, or they are too many."""
    found: set[str] = set()
    seen: set[bytes] = set()
    for one in metadata:
        if one in seen:
            continue
        seen.add(one)
        topics = subscribed_topics(one)
        if topics is None:
            return None
        found |= topics
        if len(found) > TOPICS_MAX:
            return None
    return frozenset(found)
