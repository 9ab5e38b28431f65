"""Appends that wait for the log, and how they share batches. Pure.

Commits of many groups that come in at the same time go into one batch of their partition. Order is
kept; a transaction's records, and what is large, stay alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Union

from pyrklog.groups.machine import GroupMachine
from pyrklog.groups.table import OffsetCommit
from pyrklog.groups.values import (
    Append,
)
from pyrklog.plane.internal_log import NewRecord, Producer

SHARED_BATCH_BYTES_MAX = 65_536
BATCH_HEADER_BYTES = 61
RECORD_OVERHEAD_BYTES = 16
HEADER_OVERHEAD_BYTES = 4


Queued = Union["QueuedAppend", OffsetCommit]


class QueuedAppend(NamedTuple):
    """An append and the group that awaits it."""

    machine: GroupMachine
    append: Append


class Batch(NamedTuple):
    """Appends whose records go into the log together, in this order."""

    appends: list[QueuedAppend]
    producer: Producer | None

    def records(self) -> list[NewRecord]:
        """All records."""
        return [record for item in self.appends for record in item.append.records]

    def base_offsets(self, base_offset: int) -> list[int]:
        """The offset of each append's first record."""
        offsets = []
        for item in self.appends:
            offsets.append(base_offset)
            base_offset += len(item.append.records)
        return offsets


def _size_bytes(append: Append) -> int:
    return sum(
        len(key)
        + len(value or b"")
        + sum(len(name) + len(content) + HEADER_OVERHEAD_BYTES for name, content in headers)
        + RECORD_OVERHEAD_BYTES
        for key, value, headers in append.records
    )


def shared_bytes_max(message_bytes_max: int) -> int:
    """How much may share a batch where the log takes batches of this size at most: what could be
    written alone must not fail for its company."""
    return max(0, min(SHARED_BATCH_BYTES_MAX, message_bytes_max - BATCH_HEADER_BYTES))


def make_batches(
    queue: Sequence[Queued], shared_max: int = SHARED_BATCH_BYTES_MAX
) -> list[Batch | list[OffsetCommit]]:
    """Puts neighbours together as far as they may share a batch of ``shared_max`` bytes. Commits
    that go to the data plane whole share theirs with their like."""
    batches: list[Batch | list[OffsetCommit]] = []
    room_bytes = 0
    for item in queue:
        last = batches[-1] if batches else None
        if isinstance(item, OffsetCommit):
            size_bytes = item.size_bytes
            if isinstance(last, list) and size_bytes <= room_bytes:
                last.append(item)
            else:
                batches.append([item])
                room_bytes = shared_max
            room_bytes -= size_bytes
            continue
        size_bytes = _size_bytes(item.append)
        plain = item.append.producer is None
        is_open = isinstance(last, Batch) and last.producer is None
        if isinstance(last, Batch) and is_open and plain and size_bytes <= room_bytes:
            last.appends.append(item)
        else:
            batches.append(Batch([item], item.append.producer))
            room_bytes = shared_max if plain else 0
        room_bytes -= size_bytes
    return batches
