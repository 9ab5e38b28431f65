"""Appends that wait for the log, and how they share batches. Pure.

Commits of many groups that come in at the same time go into one batch of their partition. Order is
kept; a transaction's records, and what is large, stay alone.
"""

from __future__ import annotations

from typing import NamedTuple

from pyrklog.groups.machine import GroupMachine
from pyrklog.groups.values import (
    Append,
)
from pyrklog.internal_log import (
    Producer,
)

SHARED_BATCH_BYTES_MAX = 65_536
RECORD_OVERHEAD_BYTES = 16


class QueuedAppend(NamedTuple):
    """An append and the group that awaits it."""

    machine: GroupMachine
    append: Append


class Batch(NamedTuple):
    """Appends whose records go into the log together, in this order."""

    appends: list[QueuedAppend]
    producer: Producer | None

    def records(self) -> list[tuple[bytes, bytes | None]]:
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
        len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES for key, value in append.records
    )


def make_batches(queue: list[QueuedAppend]) -> list[Batch]:
    """Puts neighbours together as far as they may share a batch."""
    batches: list[Batch] = []
    room_bytes = 0
    for item in queue:
        size_bytes = _size_bytes(item.append)
        plain = item.append.producer is None
        if batches and plain and batches[-1].producer is None and size_bytes <= room_bytes:
            batches[-1].appends.append(item)
        else:
            batches.append(Batch([item], item.append.producer))
            room_bytes = SHARED_BATCH_BYTES_MAX if plain else 0
        room_bytes -= size_bytes
    return batches
