"""Group offsets as MirrorMaker 2 writes them (KIP-382, ``Checkpoint``): big endian; strings have
their length in two bytes before them.

Key: group, topic at the target, partition (INT32). Value: version (INT16, 0), offset at the source
and at the target (INT64), metadata.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Self

VERSION = 0
_NUMBERS = struct.Struct(">hqq")
_LENGTH = struct.Struct(">h")
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
        numbers = _NUMBERS.pack(VERSION, self.source_offset, self.target_offset)
        return numbers + kafka_string(self.metadata)

    def with_value(self, value: bytes) -> Self | None:
        """The same group and partition with what a value says; None if it is none."""
        try:
            version, source_offset, target_offset = _NUMBERS.unpack_from(value)
            (length,) = _LENGTH.unpack_from(value, _NUMBERS.size)
            begin = _NUMBERS.size + _LENGTH.size
            metadata = value[begin : begin + length].decode()
        except (struct.error, UnicodeDecodeError):
            return None
        if version != VERSION:
            return None
        return self._replace(
            source_offset=source_offset, target_offset=target_offset, metadata=metadata
        )


def kafka_string(text: str) -> bytes:
    """With its length before it."""
    data = text.encode()[:_STRING_MAX]
    return struct.pack(">h", len(data)) + data


class Told:
    """What the topic of checkpoints says of the groups that were found last: nothing is kept of
    others. ``stored`` reads that topic, once."""

    def __init__(self, stored: Callable[[], Iterable[tuple[bytes | None, bytes | None]]]) -> None:
        self._stored = stored
        self._told: dict[bytes, Checkpoint] | None = None

    def news(self, found: Mapping[Checkpoint, int]) -> list[Checkpoint]:
        """Those that are to be told. With each comes the last offset at the target that its
        source's may have become.

        The translation of one offset may become lower, when less is known of it: that is not told,
        as by MirrorMaker's ``checkpointIsMoreRecent``. What cannot have been right is replaced,
        such as a checkpoint of a topic that was created anew.
        """
        by_key = {one.key(): one for one in found}
        if self._told is None:
            self._told = self._read(by_key)
        self._told = {key: one for key, one in self._told.items() if key in by_key}
        return [
            one
            for key, one in by_key.items()
            if (before := self._told.get(key)) is None or _is_news(before, one, found[one])
        ]

    def were_told(self, some: Iterable[Checkpoint]) -> None:
        """They are in the topic now."""
        if self._told is not None:
            self._told.update((one.key(), one) for one in some)

    def _read(self, wanted: Mapping[bytes, Checkpoint]) -> dict[bytes, Checkpoint]:
        told: dict[bytes, Checkpoint] = {}
        for key, value in self._stored():
            if key is None or key not in wanted:
                continue
            one = None if value is None else wanted[key].with_value(value)
            if one is None:
                told.pop(key, None)
            else:
                told[key] = one
        return told


def _is_news(before: Checkpoint, now: Checkpoint, most: int) -> bool:
    is_rewound = now.source_offset < before.source_offset
    is_ahead = now.target_offset >= before.target_offset
    return now != before and (is_rewound or is_ahead or before.target_offset > most)
