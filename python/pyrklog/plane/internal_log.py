"""Records of internal topics, as the coordinators and the data plane hand them to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyrklog.errors import ErrorCode

NO_OFFSET = -1


class Producer(NamedTuple):
    """The producer of a transaction."""

    id: int
    epoch: int


class AppendResult(NamedTuple):
    """``base_offset`` is the offset of the first record; -1 with an error."""

    error: ErrorCode
    base_offset: int = NO_OFFSET


class NewRecord(NamedTuple):
    """A record to append; ``value`` is None for a tombstone, ``headers`` are (key, value)."""

    key: bytes
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes]] = ()


class InternalRecord(NamedTuple):
    """A record of an internal topic; ``value`` is None for a tombstone."""

    offset: int
    key: bytes | None
    value: bytes | None


class InternalBatch(NamedTuple):
    """A batch that was read. A control batch has one record, whose key tells commit from abort.

    ``damage`` says why a batch could not be read (its checksum, its records); it then has no
    records, and the next batch goes on behind it.
    """

    base_offset: int
    last_offset: int
    producer_id: int
    is_transactional: bool
    is_control: bool
    records: Sequence[InternalRecord]
    damage: str | None = None


class InternalRead(NamedTuple):
    """Whole batches from the offset asked for (or the log's start, if that is higher).

    The first batch may begin below that offset. ``next_offset`` is where to go on; the end is
    reached when it is ``end_offset``, the end of what was readable when this was read. With an
    error there are no batches, and both are -1.
    """

    error: ErrorCode
    batches: Sequence[InternalBatch]
    next_offset: int
    end_offset: int
