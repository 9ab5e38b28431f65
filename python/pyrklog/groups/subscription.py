"""What a consumer's metadata says of the topics that it subscribes to.

The metadata of the protocol type "consumer" begins with a version and, in every version, the topics
of version 0: an int16 and an array of strings (KIP-62's consumer protocol, ``Subscription``).
"""

from __future__ import annotations

from collections.abc import Iterable

from pyrklog.protocol.primitives import DecodeError, string_reader

CONSUMER = "consumer"
TOPICS_MAX = 100_000
"""Beyond it topics are not told apart: they take far more memory than the metadata."""
_PREFIX_BYTES = 6
_read_string = string_reader(flexible=False, nullable=False)


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics; None where these bytes are no subscription, or one to too many."""
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
    """The topics of all members; None where one of them cannot be read, or they are too many."""
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
