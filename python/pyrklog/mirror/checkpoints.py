"""Group offsets as MirrorMaker 2 writes them (KIP-382, ``Checkpoint``): big endian; strings have
their length in two bytes before them.

Key: group, topic at the target, partition (INT32). Value: version (INT16, 0), offset at the source
and at the target (INT64), metadata.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

VERSION = 0
_STRING_MAX = 2**15 - 1


class Checkpoint(NamedTuple):
    """Where a group is in a partition."""

    group: str
    topic: str
    partition: int
    source_offset: int
    target_offset: int
    metadata: str = ""

    def key(self) -> bytes:
        names = kafka_string(self.group) + kafka_string(self.topic)
        return names + struct.pack(">i", self.partition)

    def value(self) -> bytes:
        numbers = struct.pack(">hqq", VERSION, self.source_offset, self.target_offset)
        return numbers + kafka_string(self.metadata)


def kafka_string(text: str) -> bytes:
    """With its length before it."""
    data = text.encode()[:_STRING_MAX]
    return struct.pack(">h", len(data)) + data
