"""Puts waiting appends into shared batches. Pure.

Simultaneous commits of many groups share a batch of their partition, in order; transactional and
large appends get their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Union

from pyrklog.groups.core_types import OffsetCommit
from pyrklog.groups.effects import Append
from pyrklog.groups.machine import GroupMachine
from pyrklog.plane.internal_log import NewRecord, Producer

SHARED_BATCH_BYTES_MAX = 65_536
BATCH_HEADER_BYTES = 61
RECORD_OVERHEAD_BYTES = 16
HEADER_OVERHEAD_BYTES = 4


Queued = Union["QueuedAppend", OffsetCommit]


class QueuedAppend(NamedTuple):
    machine: GroupMachine
    append: Append


class AppendBatch(NamedTuple):
    """Appends of one batch, in this order."""

    appends: list[QueuedAppend]
    producer: Producer | None
    guard: int | None = None

    def records(self) -> list[NewRecord]:
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
    """Limit of a shared batch below ``message_bytes_max``: no append may fail because of others in
    its batch."""
    return max(0, min(SHARED_BATCH_BYTES_MAX, message_bytes_max - BATCH_HEADER_BYTES))


def make_batches(
    queue: Sequence[Queued], shared_max: int = SHARED_BATCH_BYTES_MAX
) -> list[AppendBatch | list[OffsetCommit]]:
    """Puts neighbours into batches of up to ``shared_max`` bytes. Commits for the data plane share
    batches among themselves."""
    batches: list[AppendBatch | list[OffsetCommit]] = []
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
        is_open = isinstance(last, AppendBatch) and last.producer is None
        if isinstance(last, AppendBatch) and is_open and plain and size_bytes <= room_bytes:
            last.appends.append(item)
        else:
            batches.append(AppendBatch([item], item.append.producer, item.append.guard))
            room_bytes = shared_max if plain else 0
        room_bytes -= size_bytes
    return batches
