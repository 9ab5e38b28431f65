"""Records of internal topics, between the coordinators and the data plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyrklog.errors import ErrorCode

NO_OFFSET = -1


class Producer(NamedTuple):
    id: int
    epoch: int


class AppendResult(NamedTuple):
    """``base_offset`` is the first record's; -1 with an error."""

    error: ErrorCode
    base_offset: int = NO_OFFSET


class NewRecord(NamedTuple):
    """``value`` is None for a tombstone; ``headers`` are (key, value)."""

    key: bytes
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes]] = ()


class InternalRecord(NamedTuple):
    """``value`` is None for a tombstone."""

    offset: int
    key: bytes | None
    value: bytes | None


class InternalBatch(NamedTuple):
    """A batch that was read. A control batch has one record, whose key tells commit from abort.

    ``damage`` says why a batch could not be read (checksum, records); it has no records then, and
    the next batch follows.
    """

    base_offset: int
    last_offset: int
    producer_id: int
    is_transactional: bool
    is_control: bool
    records: Sequence[InternalRecord]
    damage: str | None = None


class InternalRead(NamedTuple):
    """Whole batches from the requested offset, or from a higher log start.

    The first batch may begin below. Continue at ``next_offset``, until it is ``end_offset``, the
    end of what was readable. With an error there are no batches, and both are -1.
    """

    error: ErrorCode
    batches: Sequence[InternalBatch]
    next_offset: int
    end_offset: int
